"""The exact frontier of time and cost: a parametric flow (Kelley; Fulkerson, 1961).

The time of the iteration is shortened from break point to break point. Each arc between two events
has a convex cost of the gap between them; the flow over it is the slope of its cost at that gap, so
a gap at a break point leaves the flow a range. Where no more can flow, all events behind the
minimum cut move ahead together, until a gap reaches its next break point. The flow is kept.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from mypy_extensions import i64

from wattkeeper.policies.pipeline.flow import UNBOUNDED, FlowNetwork, connect_events


class TimeCosts(NamedTuple):
    """Convex cost of an operation by time.

    Attributes:
        times_ns: Break points, ascending.
        slopes_uw: What time saves between each two of them, uW, descending.
    """

    times_ns: list[int]
    slopes_uw: list[int]


class ExactStep(NamedTuple):
    """A stretch of the frontier, in which all durations change linearly.

    Attributes:
        start_ns: Time of the iteration at its slow end.
        end_ns: Time of the iteration at its fast end.
        slope_uw: What a shorter iteration costs, uW.
        shortened: Instructions that become shorter with the iteration.
        lengthened: Instructions that become as much longer.
    """

    start_ns: int
    end_ns: int
    slope_uw: int
    shortened: list[int]
    lengthened: list[int]


NO_COSTS = TimeCosts([0], [])
"""Of an arc between instructions: it may have any length from 0 on."""


class ExactWalk:
    """The walk, in plain methods: `step` until it returns None.

    Between two changes of the flow, the nodes that the search has not reached move ahead, by
    `moved` so far.

    Attributes:
        end_ns: Present time of the iteration.
    """

    def __init__(
        self,
        operations: tuple[int, ...],
        before: tuple[tuple[int, ...], ...],
        costs: list[TimeCosts],
    ) -> None:
        count = len(operations)
        self.count: i64 = count
        self.source: i64 = 2 * count
        self.sink: i64 = 2 * count + 1
        tail, head = connect_events(before)
        times: list[int] = []
        for index in range(count):
            start = 0
            for other in before[index]:
                start = max(start, times[2 * other + 1])
            times += [start, start + costs[operations[index]].times_ns[-1]]
        self.end_ns: i64 = max(times)
        self.times = [*times, 0, max(times)]
        """By node; as of the last change of the flow for those not reached since."""
        self.costs = [costs[operation] for operation in operations]
        self.costs += [NO_COSTS] * (len(tail) - count)
        self.place = [len(item.slopes_uw) for item in self.costs]
        """By arc, the last break point that is not above its gap."""
        self.network = FlowNetwork(2 * count + 2, tail, head)
        self.moved: i64 = 0
        for arc in range(len(tail)):
            self._set_bounds(arc)
        self.sinks = [False] * (2 * count + 2)
        self.sinks[self.sink] = True
        self.slope: i64 = 0
        self.old: i64 = 0
        """How many nodes of the search's queue were reached before."""
        self.watched: list[int] = []
        """Arcs whose gap has changed since the flow did."""
        self.crossing: list[int] = []
        """Those of instructions that change at present."""
        self.events: list[tuple[int, int]] = []
        """Arcs and when, in terms of `moved`, they come to a break point; a heap."""
        self._restart()

    def step(self) -> ExactStep | None:
        """Shorten the iteration to its next break point; None if it cannot be shorter."""
        while self._reach():
            amount = self.network.room(self.source, self.sink, UNBOUNDED)
            if amount > UNBOUNDED // 2:
                return None
            self.network.push(self.source, self.sink, amount)
            self.slope += amount
            self._restart()
        return self._move()

    def _restart(self) -> None:
        """Start a search from the source after the flow has changed."""
        network = self.network
        for node in range(len(self.times)):
            if not network.reached[node]:
                self.times[node] -= self.moved
        self.moved = 0
        for arc in self.watched:
            self._set_bounds(arc)
        self.watched, self.crossing, self.events = [], [], []
        network.reached = [False] * len(self.times)
        network.reached[self.source] = True
        network.queue = [self.source]
        self.old = 0

    def _reach(self) -> bool:
        """Continue the search; whether more can flow."""
        network = self.network
        sink = network.expand_queue(self.sinks)
        queue = network.queue
        for position in range(self.old, len(queue)):
            self.times[queue[position]] -= self.moved
        if sink >= 0:
            return True
        reached, tail, head = network.reached, network.tail, network.head
        for position in range(self.old, len(queue)):
            for arc in network.incident[queue[position]]:
                if reached[tail[arc]] != reached[head[arc]]:
                    self.watched.append(arc)
                    if arc < self.count:
                        self.crossing.append(arc)
                    self._announce(arc)
        return False

    def _move(self) -> ExactStep:
        """Move the events behind the cut ahead, as far as nothing else changes."""
        network, events = self.network, self.events
        reached, tail, head = network.reached, network.tail, network.head
        while reached[tail[events[0][1]]] == reached[head[events[0][1]]]:
            heappop(events)
        moved: i64 = events[0][0]
        start = self.end_ns
        self.end_ns -= moved - self.moved
        self.moved = moved
        shortened: list[int] = []
        lengthened: list[int] = []
        for arc in self.crossing:
            if reached[tail[arc]] != reached[head[arc]]:
                (shortened if reached[tail[arc]] else lengthened).append(arc)
        self.crossing = shortened + lengthened
        network.queue = []
        while events and events[0][0] == moved:
            _, arc = heappop(events)
            forward = reached[tail[arc]]
            if forward == reached[head[arc]]:
                continue
            self._set_bounds(arc)
            if network.open[2 * arc if forward else 2 * arc + 1]:
                network.queue.append(tail[arc] if forward else head[arc])
            else:
                self._announce(arc)
        self.old = len(network.queue)
        return ExactStep(start, self.end_ns, self.slope, shortened, lengthened)

    def _gap(self, arc: i64) -> i64:
        """Time between the two events of an arc."""
        network = self.network
        tail, head = network.tail[arc], network.head[arc]
        gap: i64 = self.times[head] - self.times[tail]
        if network.reached[tail]:
            return gap if network.reached[head] else gap - self.moved
        return gap + self.moved if network.reached[head] else gap

    def _set_bounds(self, arc: i64) -> None:
        """Find the place of an arc's gap, and the range of its flow."""
        times_ns, slopes_uw = self.costs[arc].times_ns, self.costs[arc].slopes_uw
        gap = self._gap(arc)
        place: i64 = self.place[arc]
        while times_ns[place] > gap:
            place -= 1
        while place + 1 < len(times_ns) and times_ns[place + 1] <= gap:
            place += 1
        self.place[arc] = place
        low: i64 = slopes_uw[place] if place < len(slopes_uw) else 0
        self.network.low[arc] = low
        if times_ns[place] < gap:
            self.network.high[arc] = low
        else:
            self.network.high[arc] = slopes_uw[place - 1] if place else UNBOUNDED
        self.network.refresh(arc)

    def _announce(self, arc: i64) -> None:
        """Note when a gap that changes comes to its next break point."""
        times_ns = self.costs[arc].times_ns
        place: i64 = self.place[arc]
        gap = self._gap(arc)
        if self.network.reached[self.network.tail[arc]]:
            room: i64 = gap - (times_ns[place - 1] if times_ns[place] == gap else times_ns[place])
        elif place + 1 < len(times_ns):
            room = times_ns[place + 1] - gap
        else:
            return
        heappush(self.events, (self.moved + room, arc))
