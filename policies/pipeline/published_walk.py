"""Perseus from its slowest plan to its fastest one: a minimum cut for each unit of time."""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import i64

from wattkeeper.policies.pipeline.flow import UNBOUNDED, FlowNetwork, connect_events


class CostTable(NamedTuple):
    """Costs and bounds of an operation by duration, from the shortest one on.

    Attributes:
        shortest: Smallest duration, units.
        costs_j: Modelled cost.
        low_uj: Lower bound of the flow over an instruction.
        high_uj: Upper bound.
    """

    shortest: int
    costs_j: list[float]
    low_uj: list[int]
    high_uj: list[int]


class WalkStep(NamedTuple):
    """A plan, by what differs from the one before.

    Attributes:
        duration: Of the iteration, units.
        cost_change_j: How much more it costs.
        shortened: Instructions that are one unit shorter.
        lengthened: Instructions that are one unit longer.
    """

    duration: int
    cost_change_j: float
    shortened: list[int]
    lengthened: list[int]


class PublishedWalk:
    """The walk, as an iterator in plain methods: `step` until it returns None.

    Attributes:
        choices: Present duration of each instruction, as a place in its cost table.
    """

    def __init__(
        self,
        operations: tuple[int, ...],
        before: tuple[tuple[int, ...], ...],
        tables: list[CostTable],
        unlimited_uj: int,
    ) -> None:
        self.before = before
        self.tables = [tables[operation] for operation in operations]
        self.choices = [len(table.costs_j) - 1 for table in self.tables]
        self.unlimited: i64 = unlimited_uj
        count = len(operations)
        self.source: i64 = 2 * count
        self.sink: i64 = 2 * count + 1
        self.after: list[list[int]] = [[] for _ in range(count)]
        for index, others in enumerate(before):
            for other in others:
                self.after[other].append(index)
        tail, head = connect_events(before)
        self.back: i64 = len(tail)
        """The arc from sink to source, which closes the circulation."""
        self.network = FlowNetwork(2 * count + 2, [*tail, 2 * count + 1], [*head, 2 * count])
        self.critical = [False] * len(tail)
        self.earliest = [0] * (2 * count + 2)
        self.latest = [0] * (2 * count + 2)

    def step(self) -> WalkStep | None:
        """Make the plan one unit shorter at the least cost; None if it cannot be."""
        self._find_times()
        self._set_bounds()
        network = self.network
        back = self.back
        network.low[back] = 0
        network.high[back] = UNBOUNDED
        if not network.make_feasible():
            return None
        network.low[back] = network.high[back] = network.flow[back]
        network.refresh(back)
        network.maximise(self.source, self.sink)
        network.flow[back] = self._total()
        return self._cut()

    def _find_times(self) -> None:
        """Earliest and latest time of each event: longest paths."""
        earliest, latest, choices = self.earliest, self.latest, self.choices
        end: i64 = 0
        count = len(choices)
        for index in range(count):
            start: i64 = 0
            for other in self.before[index]:
                start = max(start, earliest[2 * other + 1])
            earliest[2 * index] = start
            start += self.tables[index].shortest + choices[index]
            earliest[2 * index + 1] = start
            end = max(end, start)
        earliest[2 * count + 1] = latest[2 * count + 1] = end
        for index in range(count - 1, -1, -1):
            last = end
            for other in self.after[index]:
                last = min(last, latest[2 * other])
            latest[2 * index + 1] = last
            latest[2 * index] = last - self.tables[index].shortest - choices[index]

    def _set_bounds(self) -> None:
        """Bounds of the critical arcs; nothing flows over the others."""
        earliest, latest, network = self.earliest, self.latest, self.network
        low, high, tail, head = network.low, network.high, network.tail, network.head
        critical = self.critical
        for arc in range(len(self.choices)):
            critical[arc] = earliest[2 * arc] == latest[2 * arc]
            choice = self.choices[arc]
            low[arc] = self.tables[arc].low_uj[choice] if critical[arc] else 0
            high[arc] = self.tables[arc].high_uj[choice] if critical[arc] else 0
        for arc in range(len(self.choices), self.back):
            critical[arc] = earliest[tail[arc]] == latest[head[arc]]
            high[arc] = self.unlimited if critical[arc] else 0

    def _total(self) -> i64:
        """What flows from the source."""
        total: i64 = 0
        network = self.network
        for arc in network.incident[self.source]:
            if network.tail[arc] == self.source:
                total += network.flow[arc]
        return total

    def _cut(self) -> WalkStep | None:
        """Change the instructions that cross the minimum cut."""
        network, tables, choices = self.network, self.tables, self.choices
        reached = network.reached
        shortened: list[int] = []
        lengthened: list[int] = []
        cost = 0.0
        for arc in range(self.back):
            forward = reached[network.tail[arc]]
            if forward == reached[network.head[arc]] or not self.critical[arc]:
                continue
            if arc >= len(choices):
                if forward:
                    return None
                continue
            choice = choices[arc]
            costs_j = tables[arc].costs_j
            if forward:
                if choice == 0:
                    return None
                cost += costs_j[choice - 1] - costs_j[choice]
                shortened.append(arc)
            else:
                if choice == len(costs_j) - 1:
                    return None
                cost -= costs_j[choice] - costs_j[choice + 1]
                lengthened.append(arc)
        if not shortened or abs(cost) < 1e-6:
            return None
        for arc in shortened:
            choices[arc] -= 1
        for arc in lengthened:
            choices[arc] += 1
        return WalkStep(self.earliest[self.sink] - 1, cost, shortened, lengthened)
