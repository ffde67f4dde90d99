"""Events of nodes as a CSV file, in one of two forms.

With the columns of the trace kind ``node-events``; or ``time_ms,add|remove,name``, as Bamboo (NSDI
'23) and Oobleck (SOSP '23) have spot nodes that come and go.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS
from wattkeeper.traces.node_events import NodeEvent, check_node_events, events_table
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_csv, read_whole
from wattkeeper.traces.readers.textfile import first_line, has_header, one_path
from wattkeeper.traces.schema import NODE_EVENTS
from wattkeeper.traces.trace import Trace

ROW: Final = re.compile(r"(\d{1,15}),(add|remove),([^\s,]+)")
EVENTS: Final = {"add": "up", "remove": "down"}


def read(paths: Sequence[Path]) -> Trace:
    """The events of a file."""
    path = one_path(paths, "CSV file")
    if _has_changes(path):
        return _read_changes(path)
    file = read_csv(path, NODE_EVENTS)
    check_node_events(file.table, str(path))
    return Trace(
        name=derive_name(path.stem),
        kind="node-events",
        format="node-events",
        origin="recorded",
        tables={"node-events": file.table},
        source="as the imported file",
        licence="as the imported file",
        inputs={path.name: file.sha256},
    )


def _read_changes(path: Path) -> Trace:
    """The events of a file; a node is there from its first row on."""
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
        name=derive_name(path.stem),
        kind="node-events",
        format="node-events",
        origin="recorded",
        tables={"node-events": table},
        inputs={path.name: digest_file(path)},
        source="events of spot nodes in the form of Bamboo (NSDI 2023) and Oobleck (SOSP 2023)",
        licence="as the imported file",
    )


def _has_changes(path: Path) -> bool:
    """Whether the first line is `time_ms,add|remove,name`."""
    return ROW.fullmatch(first_line(path).strip()) is not None


def sniff(path: Path) -> bool:
    """Whether a file has one of the two forms."""
    return _HAS_COLUMNS(path) or _has_changes(path)


_HAS_COLUMNS: Final = has_header("time_s", "event", "node")

FORMAT: Final = Format(
    name="node-events",
    summary="nodes that go down, come back and become slow: time_s, event, node, rack, cause, "
    "deadline_s, repair_s, factor; or time_ms, add|remove, name (Bamboo, Oobleck)",
    takes="one CSV file, plain or gzip",
    read=read,
    sniff=sniff,
)
