"""Inputs of the published replays: nodes that come and go, and rates by the number of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.node_events import NodeEvent, absent_at_first

ENDLESS_MS: Final = 10**12
"""Length of a step at rate 0."""


class SpotChange(NamedTuple):
    """A node comes or is lost.

    Attributes:
        time_ms: When, ms since the start of the trace.
        what: Which of the two.
        name: Name of the node.
    """

    time_ms: int
    what: Literal["add", "remove"]
    name: str


def spot_changes(events: Sequence[NodeEvent]) -> tuple[SpotChange, ...]:
    """Changes from events of nodes; times are rounded to ms, and notices left out.

    A node whose first event is not that it comes up is added at 0, before all others.

    Raises:
        InputError: If a node becomes slow, which the published replays do not know.
    """
    if slow := [event.node for event in events if event.event == "degraded"]:
        raise InputError(
            f"node {slow[0]!r} becomes slow (degraded); the published replays know only nodes that "
            "go down and come up"
        )
    absent = set(absent_at_first(events))
    present = dict.fromkeys(event.node for event in events if event.node not in absent)
    changes = [SpotChange(0, "add", name) for name in present]
    for event in events:
        if event.event != "notice":
            what: Literal["add", "remove"] = "add" if event.event == "up" else "remove"
            changes.append(SpotChange(round(event.time_s * 1000), what, event.node))
    return tuple(changes)


def check_changes(changes: Iterable[SpotChange]) -> None:
    """Check that changes can follow each other.

    Raises:
        InputError: With one problem for each of the first wrong rows.
    """
    problems: list[Problem] = []
    present = set[str]()
    before_ms = 0
    row = 0
    for row, change in enumerate(changes, 1):
        fault = _fault(change, change.name in present, before_ms)
        if fault:
            problems.append(Problem(fault, f"row {row}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        before_ms = change.time_ms
        (present.add if change.what == "add" else present.remove)(change.name)
    if problems or not row:
        raise InputError(problems or [Problem("no node comes: there are no rows")])


def _fault(change: SpotChange, is_present: bool, before_ms: int) -> str:
    """What is wrong with a change; empty if nothing is."""
    if change.what not in ("add", "remove"):
        return f"{change.what!r} is not allowed; allowed is add, remove"
    if change.time_ms < before_ms:
        return f"time is {change.time_ms} ms, before {before_ms} ms; rows go by time, from 0"
    if change.what == "add" and is_present:
        return f"node {change.name!r} is added, but is there"
    if change.what == "remove" and not is_present:
        return f"node {change.name!r} is removed, but is not there"
    return ""


def check_length(what: str, length_ms: int) -> None:
    """Check the length of a pause.

    Raises:
        InputError: If it is negative.
    """
    if length_ms < 0:
        raise InputError(f"{what} takes {length_ms} ms; allowed is 0 or more")


class RateTable:
    """Training rates by the number of nodes.

    Args:
        samples_per_s: Rate by nodes, for each number from the fewest to the most.

    Raises:
        InputError: If a number of nodes is missing, or a rate is negative or not finite.
    """

    def __init__(self, samples_per_s: Mapping[int, float]) -> None:
        if not samples_per_s:
            raise InputError("rates: there are none; one for each number of nodes is needed")
        self._fewest, self._most = min(samples_per_s), max(samples_per_s)
        for nodes in range(self._fewest, self._most + 1):
            rate = samples_per_s.get(nodes)
            if nodes < 1 or rate is None or not 0 <= rate < math.inf:
                found = "missing" if rate is None else f"{rate:g}"
                raise InputError(
                    f"rates: that of {nodes} nodes is {found}; allowed is 0 or more samples/s for "
                    f"each number of nodes from {self._fewest} to {self._most}, 1 or more"
                )
        self._rates = dict(samples_per_s)

    def step_ms(self, nodes: int, batch: int) -> int:
        """Length of a step; fewer or more nodes than in the table count as its first or last.

        Raises:
            InputError: If it is below 1 ms.
        """
        rate = self._rates[min(max(nodes, self._fewest), self._most)]
        length_ms = int(batch / rate * 1000) if rate else ENDLESS_MS
        if length_ms < 1:
            raise InputError(
                f"a step of {batch} samples at {rate:g} samples/s is shorter than 1 ms, the unit "
                "of time of the published replays"
            )
        return length_ms


OUT_OF_MEMORY: Final = RateTable({1: 0.0})
"""Of a model that does not fit."""
