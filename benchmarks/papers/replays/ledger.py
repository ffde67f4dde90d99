"""What the published replays note: finished steps, their rates, and the nodes present."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class FinishedStep(NamedTuple):
    """A finished step.

    Attributes:
        begin_ms: End of the last step or checkpoint before it; pauses between count.
        end_ms: When it was finished.
        begun_ms: When it was begun.
        nodes: Nodes at its end that are not booting.
    """

    begin_ms: int
    end_ms: int
    begun_ms: int
    nodes: int


class StepLedger:
    """Finished steps and their rates, in two lists that the artifacts keep apart.

    Attributes:
        start_ms: When the first step began; None: not yet.
        clock_ms: End of the last finished step, or of the checkpoint after it.
        steps: Steps that count.
        finished: Finished steps.
        rates: Their rates, samples/s; 0 if lost. May be longer, see `fail`.
    """

    def __init__(self) -> None:
        self.start_ms: int | None = None
        self.clock_ms = 0
        self.steps = 0
        self.finished: list[FinishedStep] = []
        self.rates: list[float] = []

    def start(self, now_ms: int) -> None:
        """Start the clock, unless it runs."""
        if self.start_ms is None:
            self.start_ms = self.clock_ms = now_ms

    def finish(self, now_ms: int, begun_ms: int, nodes: int, batch: int) -> FinishedStep:
        """Note a step of so many samples that is finished now.

        One that ends with a checkpoint, beside which it went on after a pause, has no length.
        """
        step = FinishedStep(self.clock_ms, now_ms, begun_ms, nodes)
        length_s = (now_ms - self.clock_ms) / 1000
        self.finished.append(step)
        self.rates.append(batch / length_s if length_s else 0.0)
        self.steps += 1
        self.clock_ms = now_ms
        return step

    def place_of(self, begin_ms: int) -> int | None:
        """Place of the step that begins at a time; None: there is none yet."""
        places = (i for i, step in enumerate(self.finished) if step.begin_ms == begin_ms)
        return next(places, None)

    def lose_from(self, place: int) -> int:
        """Set all rates from a place to 0, and return their number."""
        lost = len(self.rates) - place
        self.rates[place:] = [0.0] * lost
        return lost

    def fail(self, steps: int) -> None:
        """Lose the last steps, down to 0, and their rates.

        With fewer rates their list becomes so long: later rates then stand beside later steps than
        their own.
        """
        self.steps = max(0, self.steps - steps)
        self.rates[-steps:] = [0.0] * steps

    def mean_rate(self) -> float:
        """Samples/s from the start to the end of the last finished step; 0 without one."""
        if self.start_ms is None or not self.finished:
            return 0.0
        pairs = zip(self.finished, self.rates, strict=False)
        samples = sum((step.end_ms - step.begin_ms) * rate for step, rate in pairs)
        return samples / (self.finished[-1].end_ms - self.start_ms)


class NodeCounts:
    """How many nodes are there over time; a time's count is that after all its events."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._counts: list[int] = []
        self._first: tuple[int, int] | None = None  # first time above 0, and its count

    def note(self, now_ms: int, count: int) -> None:
        """Note the count after an event."""
        if now_ms > 0 and (self._first is None or self._first[0] == now_ms):
            self._first = now_ms, count
        if self._times_ms and self._times_ms[-1] == now_ms:
            self._times_ms.pop()
            self._counts.pop()
        if not self._counts or self._counts[-1] != count:
            self._times_ms.append(now_ms)
            self._counts.append(count)

    def mean(self, begin_ms: int, end_ms: int) -> float:
        """Mean count between two times, after the first note."""
        index = bisect_right(self._times_ms, begin_ms) - 1
        total, since_ms = 0, begin_ms
        while index + 1 < len(self._times_ms) and self._times_ms[index + 1] < end_ms:
            total += self._counts[index] * (self._times_ms[index + 1] - since_ms)
            index += 1
            since_ms = self._times_ms[index]
        return (total + self._counts[index] * (end_ms - since_ms)) / (end_ms - begin_ms)

    def published_mean(self, end_ms: int) -> float:
        """Mean count from 0 to the end of the last finished step, as published.

        Up to the first time above 0 that time's count holds. From the last change to the end, which
        may lie before it, the last count does.
        """
        if not self._times_ms or end_ms <= 0:
            return 0.0
        total, since_ms, count = 0, 0, self._counts[0]
        if self._first is not None:
            count = self._first[1]
        for time_ms, next_count in zip(self._times_ms, self._counts, strict=True):
            if time_ms > 0:
                total += (time_ms - since_ms) * count
                since_ms, count = time_ms, next_count
        return (total + (end_ms - since_ms) * self._counts[-1]) / end_ms
