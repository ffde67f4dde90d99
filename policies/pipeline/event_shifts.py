"""Single clocks by shifts of events: a local search each of whose moves is a cut."""

from __future__ import annotations

from mypy_extensions import i64

from wattkeeper.policies.pipeline.flow import UNBOUNDED, FlowNetwork, connect_events

AMOUNTS = 20
"""Most amounts that a round tries to shift events by."""
ROUNDS = 5
"""Most rounds over the amounts."""


class EventShifts:
    """Searches for times of events at which the slowest points that fit between them cost least.

    A move shifts some events by one amount. Instructions that end later than before save, those
    that start later cost. Where no instruction could save more by the amount than lose by it, as
    with convex costs, the events are found as those behind a violated cut: a circulation whose flow
    lies between what the longer instruction saves and what the shorter one costs exists if and only
    if no set of events can be shifted to advantage (Hoffman's theorem, 1960). Costs of measured
    points have steps, so that an instruction may save more than it loses: it is then counted as
    losing as much as it saves, or as saving as little as it loses. Either way a move saves at least
    what it is taken for.
    """

    def __init__(
        self,
        operations: tuple[int, ...],
        before: tuple[tuple[int, ...], ...],
        times_ns: list[list[int]],
        costs_j: list[list[float]],
    ) -> None:
        count = len(operations)
        self.count: i64 = count
        self.source: i64 = 2 * count
        self.sink: i64 = 2 * count + 1
        self.before = before
        costs_uj = [[round(cost_j * 1e6) for cost_j in row] for row in costs_j]
        self.times_ns = [times_ns[operation] for operation in operations]
        self.costs_uj = [costs_uj[operation] for operation in operations]
        tail, head = connect_events(before)
        self.back: i64 = len(tail)
        """The arc from sink to source: what is left of the time of the iteration."""
        self.network = FlowNetwork(2 * count + 2, [*tail, 2 * count + 1], [*head, 2 * count])
        self.times = [0] * (2 * count + 2)
        """By event."""
        self.places = [0] * count
        """By instruction, the place of the slowest point that fits between its events."""
        self.end_ns: i64 = 0

    def search(self, durations_ns: list[int], end_ns: int) -> list[int]:
        """Durations of points at which a local search ends.

        Args:
            durations_ns: Where it begins, by instruction.
            end_ns: Time of the iteration, which is kept.
        """
        self.end_ns = end_ns
        self._begin(durations_ns)
        for _ in range(ROUNDS):
            moved = False
            for amount in self._amounts():
                for raises in (True, False):
                    while self._shift(amount, raises):
                        moved = True
            if not moved:
                break
        return [self.times_ns[index][self.places[index]] for index in range(len(self.places))]

    def _begin(self, durations_ns: list[int]) -> None:
        """All events as early as can be."""
        times = self.times
        end: i64 = 0
        for index in range(len(durations_ns)):
            start: i64 = 0
            for other in self.before[index]:
                start = max(start, times[2 * other + 1])
            times[2 * index] = start
            start += durations_ns[index]
            times[2 * index + 1] = start
            end = max(end, start)
            self.places[index] = 0
        times[self.source], times[self.sink] = 0, end
        self._find_places()

    def _find_places(self) -> None:
        """The slowest points that fit."""
        for index in range(len(self.places)):
            times_ns = self.times_ns[index]
            gap: i64 = self.times[2 * index + 1] - self.times[2 * index]
            place: i64 = self.places[index]
            while place > 0 and times_ns[place] > gap:
                place -= 1
            while place + 1 < len(times_ns) and times_ns[place + 1] <= gap:
                place += 1
            self.places[index] = place

    def _amounts(self) -> list[int]:
        """Amounts at which some instruction comes to another point, the largest first."""
        found: list[int] = []
        for index in range(len(self.places)):
            times_ns = self.times_ns[index]
            gap: i64 = self.times[2 * index + 1] - self.times[2 * index]
            place: i64 = self.places[index]
            for other in range(max(place - 1, 0), min(place + 3, len(times_ns))):
                found.append(times_ns[other] - gap)
        amounts = sorted({abs(amount) for amount in found if amount}, reverse=True)
        if len(amounts) <= AMOUNTS:
            return amounts
        last = len(amounts) - 1
        return [amounts[place * last // (AMOUNTS - 1)] for place in range(AMOUNTS)]

    def _shift(self, amount: i64, raises: bool) -> bool:
        """Shift events by an amount, if that saves.

        Args:
            amount: By how much, ns.
            raises: Whether to raise what an instruction loses to what it saves, or to lower this.
        """
        self._set_bounds(amount, raises)
        network, times = self.network, self.times
        if network.make_feasible():
            return False
        reached = network.reached
        later = not reached[self.source]
        for node in range(len(times)):
            if reached[node] == later:
                times[node] += amount if later else -amount
        self._find_places()
        return True

    def _set_bounds(self, amount: i64, raises: bool) -> None:
        """What each instruction saves and loses by the amount; no other arc becomes negative."""
        network, times = self.network, self.times
        tail, head, low, high = network.tail, network.head, network.low, network.high
        for index in range(self.count):
            times_ns, costs_uj = self.times_ns[index], self.costs_uj[index]
            gap: i64 = times[2 * index + 1] - times[2 * index]
            place: i64 = self.places[index]
            longer = place
            while longer + 1 < len(times_ns) and times_ns[longer + 1] <= gap + amount:
                longer += 1
            saving: i64 = costs_uj[place] - costs_uj[longer]
            shorter = place
            while shorter >= 0 and times_ns[shorter] > gap - amount:
                shorter -= 1
            price: i64 = costs_uj[shorter] - costs_uj[place] if shorter >= 0 else UNBOUNDED
            if price < saving:
                if raises:
                    price = saving
                else:
                    saving = price
            low[index], high[index] = saving, price
        for arc in range(self.count, self.back):
            high[arc] = UNBOUNDED if times[head[arc]] - times[tail[arc]] < amount else 0
        high[self.back] = UNBOUNDED if self.end_ns - times[self.sink] < amount else 0
