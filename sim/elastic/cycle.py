"""Steps and commits of an elastic training over time, in closed form: none of them is an event."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

ROUNDING: Final = 1e-9
"""A number of steps that should be whole differs by less, by rounding."""


class CycleState(NamedTuple):
    """What a training has done since it began.

    Attributes:
        committed: Steps that are committed.
        uncommitted: Finished steps since.
        part_s: Time spent on the step under way, s.
        writes: Writes of checkpoints that are complete.
        writing_s: Time spent on the one under way, s.
    """

    committed: int
    uncommitted: int
    part_s: float
    writes: int
    writing_s: float


class Cycle(NamedTuple):
    """Steps of equal length, committed after every so many of them.

    Attributes:
        step_s: Time of a step, s.
        commit_steps: Steps between two commits; 0: nothing is committed.
        write_s: Time of a commit, in which nothing is trained, s.
    """

    step_s: float
    commit_steps: int
    write_s: float

    def at(self, elapsed_s: float) -> CycleState:
        """What is done after a time, s. A step that ends then is finished."""
        if not self.commit_steps:
            steps = _whole(elapsed_s, self.step_s)
            return CycleState(0, steps, max(0.0, elapsed_s - steps * self.step_s), 0, 0.0)
        cycles = _whole(elapsed_s, self._period_s)
        committed = cycles * self.commit_steps
        writes = cycles if self.write_s else 0
        left_s = max(0.0, elapsed_s - cycles * self._period_s)
        steps = _whole(left_s, self.step_s)
        if steps < self.commit_steps:
            return CycleState(committed, steps, max(0.0, left_s - steps * self.step_s), writes, 0.0)
        writing_s = max(0.0, left_s - self.commit_steps * self.step_s)
        return CycleState(committed, self.commit_steps, 0.0, writes, writing_s)

    def most_of(self, steps: int) -> int:
        """The most of so many finished steps that are not committed when another one begins."""
        return min(steps, self.commit_steps - 1) if self.commit_steps else steps

    def write_spans(self, elapsed_s: float, most: int) -> list[tuple[float, float]]:
        """Begin and end of the writes up to a time, in s since the training began.

        Where there are more than `most`, some stand together, from the begin of their first one on.
        """
        state = self.at(elapsed_s)
        writes = state.writes + (state.writing_s > 0)
        together = max(1, math.ceil(writes / most))
        spans = []
        for number in range(0, writes, together):
            begin_s = self.commit_steps * self.step_s + number * self._period_s
            spans.append((begin_s, begin_s + min(together, writes - number) * self.write_s))
        if state.writing_s > 0:
            begin_s, end_s = spans[-1]
            whole = together == 1 or writes % together == 1
            spans[-1] = (begin_s, elapsed_s if whole else end_s - self.write_s + state.writing_s)
        return spans

    def step_end_s(self, elapsed_s: float) -> float:
        """When the step under way after a time ends, or the commit under way; s.

        At the end of a step it is that time.
        """
        state = self.at(elapsed_s)
        if state.uncommitted and state.uncommitted == self.commit_steps:
            return (state.committed // self.commit_steps + 1) * self._period_s
        steps = state.committed + state.uncommitted + (state.part_s > ROUNDING * self.step_s)
        return max(elapsed_s, self.time_of_s(steps))

    def time_of_s(self, steps: int) -> float:
        """When so many steps are finished, s."""
        if not self.commit_steps:
            return steps * self.step_s
        before = max(0, steps - 1) // self.commit_steps
        return before * self.write_s + steps * self.step_s

    @property
    def _period_s(self) -> float:
        return self.commit_steps * self.step_s + self.write_s


def _whole(span_s: float, unit_s: float) -> int:
    """How many whole units a span has."""
    return math.floor(span_s / unit_s + ROUNDING)
