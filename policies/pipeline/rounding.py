"""From durations to single clocks: round down, then spend what slack is left."""

from __future__ import annotations

from bisect import bisect_right

from mypy_extensions import i64


class ClockRounding:
    """One point for each instruction, within a time of the iteration.

    Attributes:
        choices: By instruction, the place of its point among those of its operation.
    """

    def __init__(
        self,
        operations: tuple[int, ...],
        before: tuple[tuple[int, ...], ...],
        times_ns: list[list[int]],
        costs_j: list[list[float]],
    ) -> None:
        self.before = before
        self.after: list[list[int]] = [[] for _ in operations]
        for index in range(len(operations)):
            for other in before[index]:
                self.after[other].append(index)
        self.times_ns = [times_ns[operation] for operation in operations]
        self.costs_j = [costs_j[operation] for operation in operations]
        self.choices = [0] * len(operations)
        self.start = [0] * len(operations)
        """Earliest start of each instruction."""
        self.tail = [0] * len(operations)
        """Time from the latest end of each instruction to the end of the iteration."""

    def round_down(self, durations_ns: list[int]) -> None:
        """Choose the slowest points that fit."""
        for index in range(len(self.choices)):
            place = bisect_right(self.times_ns[index], durations_ns[index]) - 1
            self.choices[index] = max(place, 0)
        self._find_times()

    def spend_slack(self, end_ns: i64) -> None:
        """Slow instructions down within a time of the iteration, best saving per second first."""
        while True:
            best: i64 = -1
            best_place: i64 = 0
            most = 0.0
            for index in range(len(self.choices)):
                times_ns, costs_j = self.times_ns[index], self.costs_j[index]
                place: i64 = self.choices[index]
                room: i64 = end_ns - self.tail[index] - self.start[index]
                slower = place + 1
                while slower < len(times_ns) and times_ns[slower] <= room:
                    rate = (costs_j[place] - costs_j[slower]) / (times_ns[slower] - times_ns[place])
                    if rate > most:
                        most, best, best_place = rate, index, slower
                    slower += 1
            if best < 0:
                return
            self.choices[best] = best_place
            self._find_times()

    def cost_j(self) -> float:
        """What all instructions cost beyond waiting, J."""
        total = 0.0
        for index in range(len(self.choices)):
            total += self.costs_j[index][self.choices[index]]
        return total

    def _find_times(self) -> None:
        """Earliest starts, and what comes after each instruction."""
        count = len(self.choices)
        for index in range(count):
            start: i64 = 0
            for other in self.before[index]:
                start = max(start, self.start[other] + self.times_ns[other][self.choices[other]])
            self.start[index] = start
        for index in range(count - 1, -1, -1):
            tail: i64 = 0
            for other in self.after[index]:
                tail = max(tail, self.tail[other] + self.times_ns[other][self.choices[other]])
            self.tail[index] = tail
