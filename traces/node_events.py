"""Events of nodes: they go down, come back, become slow, and announce that they will go down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.schema import NODE_EVENTS

EVENTS: Final = ("down", "up", "notice", "degraded")

BELONGS: Final = {
    "deadline_s": ("notice",),
    "repair_s": ("down", "degraded"),
    "factor": ("degraded",),
}
"""Events that a value may be stated with."""


class NodeEvent(NamedTuple):
    """An event of a node.

    Attributes:
        time_s: When, s since the start of the trace.
        event: One of `EVENTS`.
        node: Name of the node.
        cause: Why; empty if not known.
        deadline_s: With a notice: when the node is expected to go down, s; NaN if not known.
        rack: Name of its rack; empty if not known.
        repair_s: When it goes down or becomes slow: time until it is up, or at full pace, again, s,
            unless another event comes before; NaN if only an event says so.
        factor: When it becomes slow: time of an iteration over that at full pace; 1: it is at full
            pace again. Else NaN.
    """

    time_s: float
    event: str
    node: str
    cause: str = ""
    deadline_s: float = math.nan
    rack: str = ""
    repair_s: float = math.nan
    factor: float = math.nan


TEXTS: Final = ("cause", "rack")
NUMBERS: Final = ("deadline_s", "repair_s", "factor")
"""Columns that may be missing."""


def events_table(events: Iterable[NodeEvent]) -> pa.Table:
    """The table of events, in the schema of the trace kind."""
    rows = list(events)
    columns = {name: [getattr(event, name) for event in rows] for name in NodeEvent._fields}
    for name in TEXTS:
        columns[name] = [value or None for value in columns[name]]
    for name in NUMBERS:
        columns[name] = [None if math.isnan(value) else value for value in columns[name]]
    return pa.table(columns, schema=NODE_EVENTS)


def node_events(table: pa.Table) -> tuple[NodeEvent, ...]:
    """The events of a table, without those that follow from `repair_s`."""
    columns = {name: table[name].to_pylist() for name in NodeEvent._fields}
    for name in TEXTS:
        columns[name] = [value or "" for value in columns[name]]
    for name in NUMBERS:
        columns[name] = [math.nan if value is None else value for value in columns[name]]
    return tuple(map(NodeEvent._make, zip(*columns.values(), strict=True)))


def add_repairs(events: Iterable[NodeEvent]) -> Iterator[NodeEvent]:
    """The events, which may be without an end, and those that follow from `repair_s`.

    Of one time, events come before those that follow from earlier ones, and replace those of the
    same node.
    """
    due: list[tuple[float, int, NodeEvent]] = []
    latest: dict[str, int] = {}
    for number, event in enumerate(events):
        while due and due[0][0] < event.time_s:
            yield from _repair(*heappop(due), latest)
        if event.event != "notice":
            latest[event.node] = number
            if not math.isnan(event.repair_s):
                heappush(due, (event.time_s + event.repair_s, number, event))
        yield event
    while due:
        yield from _repair(*heappop(due), latest)


def _repair(
    time_s: float, number: int, cause: NodeEvent, latest: dict[str, int]
) -> Iterator[NodeEvent]:
    """The end of what an event began, unless another one came since."""
    if latest[cause.node] == number:
        if cause.event == "down":
            yield NodeEvent(time_s, "up", cause.node, rack=cause.rack)
        else:
            yield NodeEvent(time_s, "degraded", cause.node, rack=cause.rack, factor=1.0)


def check_node_events(table: pa.Table, where: str) -> None:
    """Check that events can follow each other; those of one time come in the order of their rows.

    A node that first comes up was absent before; any other one is there from the start.

    Raises:
        TraceError: With one problem for each of the first wrong rows.
    """
    problems: list[Problem] = []
    is_up: dict[str, bool] = {}
    back_s: dict[str, float] = {}
    rack: dict[str, str] = {}
    before_s = 0.0
    for row, event in enumerate(node_events(table), 1):
        node = event.node
        if back_s.get(node, math.inf) < event.time_s:
            is_up[node] = True
        fault = _fault(event, is_up.get(node), before_s, rack.get(node, ""))
        if fault:
            problems.append(Problem(fault, f"{where}, row {row}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        before_s = event.time_s
        if event.rack:
            rack[node] = event.rack
        if event.event in ("down", "up"):
            is_up[node] = event.event == "up"
            back_s[node] = math.inf if math.isnan(event.repair_s) else before_s + event.repair_s
        else:
            is_up.setdefault(node, True)
    if problems:
        raise TraceError(problems)


VERBS: Final = {"down": "goes down", "notice": "gives notice", "degraded": "becomes slow"}


def _fault(event: NodeEvent, is_up: bool | None, before_s: float, rack: str) -> str:
    """What is wrong with an event; empty if nothing is.

    Args:
        event: The event.
        is_up: Whether its node is; None before its first event.
        before_s: Time of the row above, s.
        rack: Rack of its node, as stated before; empty: it was not.
    """
    if event.event not in EVENTS:
        return f"event is {event.event!r}; allowed is {', '.join(EVENTS)}"
    if event.time_s < before_s:
        return f"time_s is {event.time_s:g}, before the row above, {before_s:g}; rows go by time"
    if event.event == "up" and is_up:
        return f"node {event.node!r} comes up, but is up"
    if event.event != "up" and is_up is False:
        return f"node {event.node!r} {VERBS[event.event]}, but is down"
    if event.rack and rack and event.rack != rack:
        return f"node {event.node!r} is in rack {event.rack!r}, but was in {rack!r} above"
    return _fault_of_values(event)


def _fault_of_values(event: NodeEvent) -> str:
    """What is wrong with the values of an event; empty if nothing is."""
    for name, allowed in BELONGS.items():
        if event.event not in allowed and not math.isnan(getattr(event, name)):
            return f"{name} belongs to {' or '.join(allowed)}, not to {event.event!r}"
    if event.deadline_s < event.time_s:
        return f"deadline_s is {event.deadline_s:g}, before its notice"
    if event.event == "degraded" and math.isnan(event.factor):
        return "factor is absent; 'degraded' needs one, 1 or more (1: at full pace again)"
    if event.factor == 1 and not math.isnan(event.repair_s):
        return "repair_s has no effect with factor 1: the node is at full pace already"
    return ""


def absent_at_first(events: Sequence[NodeEvent]) -> list[str]:
    """Names of the nodes that are not there before their first event, in its order."""
    first: dict[str, str] = {}
    for event in events:
        first.setdefault(event.node, event.event)
    return [node for node, event in first.items() if event == "up"]
