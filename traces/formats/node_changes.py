"""Spot nodes that come and go, as Bamboo and Oobleck have them: ``time_ms,add|remove,name``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.formats.node_events import only_path
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS
from wattkeeper.traces.node_events import NodeEvent, check_node_events, events_table
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_whole
from wattkeeper.traces.trace import Trace

ROW: Final = re.compile(r"(\d{1,15}),(add|remove),([^\s,]+)")
EVENTS: Final = {"add": "up", "remove": "down"}


def read(paths: Sequence[Path]) -> Trace:
    """The events of a file; a node is there from its first row on."""
    path = only_path(paths, "node-changes")
    text = read_whole(path, MOST_BYTES).decode("utf-8", "replace")
    events, problems = [], []
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip():
            continue
        row = ROW.fullmatch(content.strip())
        if row is None:
            what = f"{content.strip()[:60]!r} is not time_ms,add,name or time_ms,remove,name"
            problems.append(Problem(what, f"{path}, line {line}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        events.append(NodeEvent(int(row[1]) / 1000, EVENTS[row[2]], row[3]))
    if problems or not events:
        raise TraceError(problems or [Problem("has no rows", str(path))])
    table = events_table(events)
    check_node_events(table, str(path))
    return Trace(
        name=derive_name(path.stem), kind="node-events", format="node-changes", origin="recorded",
        tables={"node-events": table}, inputs={path.name: digest_file(path)},
        source="events of spot nodes in the form of Bamboo (NSDI 2023) and Oobleck (SOSP 2023)",
        licence="as the imported file",
    )  # fmt: skip


def sniff(path: Path) -> bool:
    """Whether the first line is such a row."""
    try:
        with path.open(encoding="utf-8") as file:
            return ROW.fullmatch(file.readline(200).strip()) is not None
    except (OSError, UnicodeDecodeError):
        return False


FORMAT: Final = Format(
    name="node-changes",
    summary="spot nodes that come and go: time_ms,add|remove,name (Bamboo, Oobleck)",
    takes="one CSV file without a header",
    read=read,
    sniff=sniff,
)
