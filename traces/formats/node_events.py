"""Events of nodes as a CSV file with the columns of the trace kind ``node-events``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.node_events import check_node_events
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.readers.textfile import has_header
from wattkeeper.traces.schema import NODE_EVENTS
from wattkeeper.traces.trace import Trace


def only_path(paths: Sequence[Path], form: str) -> Path:
    """The only path.

    Raises:
        InputError: If there are several.
    """
    if len(paths) != 1:
        raise InputError(f"format {form} needs one file, not {len(paths)}")
    return paths[0]


def read(paths: Sequence[Path]) -> Trace:
    """The events of a file."""
    path = only_path(paths, "node-events")
    file = read_csv(path, NODE_EVENTS)
    check_node_events(file.table, str(path))
    return Trace(
        name=derive_name(path.stem), kind="node-events", format="node-events", origin="recorded",
        tables={"node-events": file.table}, source="as the imported file",
        licence="as the imported file", inputs={path.name: file.sha256},
    )  # fmt: skip


FORMAT: Final = Format(
    name="node-events",
    summary="nodes that go down and come back: time_s, event, node, cause, deadline_s",
    takes="one CSV file, plain or gzip",
    read=read,
    sniff=has_header("time_s", "event", "node"),
)
