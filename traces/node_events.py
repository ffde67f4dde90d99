"""Events of nodes: they go down, come back, and announce that they will go down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.schema import NODE_EVENTS

EVENTS: Final = ("down", "up", "notice")


class NodeEvent(NamedTuple):
    """An event of a node.

    Attributes:
        time_s: When, s since the start of the trace.
        event: `down`, `up` or `notice`.
        node: Name of the node.
        cause: Why; empty if not known.
        deadline_s: With a notice: when the node is expected to go down, s; NaN if not known.
    """

    time_s: float
    event: str
    node: str
    cause: str = ""
    deadline_s: float = math.nan


def events_table(events: Iterable[NodeEvent]) -> pa.Table:
    """The table of events, in the schema of the trace kind."""
    rows = list(events)
    causes = [event.cause or None for event in rows]
    deadlines = [None if math.isnan(event.deadline_s) else event.deadline_s for event in rows]
    columns = {
        "time_s": [event.time_s for event in rows],
        "event": [event.event for event in rows],
        "node": [event.node for event in rows],
        "cause": causes,
        "deadline_s": deadlines,
    }
    return pa.table(columns, schema=NODE_EVENTS)


def node_events(table: pa.Table) -> tuple[NodeEvent, ...]:
    """The events of a table."""
    columns = (table[name].to_pylist() for name in NodeEvent._fields)
    return tuple(
        NodeEvent(time_s, event, node, cause or "", math.nan if due_s is None else due_s)
        for time_s, event, node, cause, due_s in zip(*columns, strict=True)
    )


def check_node_events(table: pa.Table, where: str) -> None:
    """Check that events can follow each other; those of one time come in the order of their rows.

    A node that first comes up was absent before; any other one is there from the start.

    Raises:
        TraceError: With one problem for each of the first wrong rows.
    """
    problems: list[Problem] = []
    is_up: dict[str, bool] = {}
    before_s = 0.0
    for row, event in enumerate(node_events(table), 1):
        fault = _fault(event, is_up.get(event.node), before_s)
        if fault:
            problems.append(Problem(fault, f"{where}, row {row}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        before_s = event.time_s
        if event.event != "notice":
            is_up[event.node] = event.event == "up"
        else:
            is_up.setdefault(event.node, True)
    if problems:
        raise TraceError(problems)


def _fault(event: NodeEvent, is_up: bool | None, before_s: float) -> str:
    """What is wrong with an event; empty if nothing is. `is_up`: None before its first one."""
    if event.event not in EVENTS:
        return f"event is {event.event!r}; allowed is {', '.join(EVENTS)}"
    if event.time_s < before_s:
        return f"time_s is {event.time_s:g}, before the row above, {before_s:g}; rows go by time"
    if event.event == "up" and is_up:
        return f"node {event.node!r} comes up, but is up"
    if event.event != "up" and is_up is False:
        what = "goes down" if event.event == "down" else "gives notice"
        return f"node {event.node!r} {what}, but is down"
    if not math.isnan(event.deadline_s):
        if event.event != "notice":
            return f"deadline_s belongs to a notice, not to {event.event!r}"
        if event.deadline_s < event.time_s:
            return f"deadline_s is {event.deadline_s:g}, before its notice"
    return ""


def absent_at_first(events: Sequence[NodeEvent]) -> list[str]:
    """Names of the nodes that are not there before their first event, in its order."""
    first: dict[str, str] = {}
    for event in events:
        first.setdefault(event.node, event.event)
    return [node for node, event in first.items() if event == "up"]
