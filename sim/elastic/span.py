"""What a shape trains between two pauses, beside slow nodes."""

from __future__ import annotations

import math
from typing import Final

from wattkeeper.sim.elastic.cycle import Cycle
from wattkeeper.sim.elastic.ledger import StepLedger
from wattkeeper.sim.elastic.pace import PaceClock

MOST_WRITES: Final = 10_000
"""So many writes of checkpoints of a span are told apart: each of them takes memory."""


class TrainingSpan:
    """A span of steps and commits, which may end with a commit out of turn.

    Args:
        cycle: Its steps and commits at full pace.
        ledger: The ledger of the training.
        now_s: When it begins, s.
        slowdown: Time of a step over that at full pace.
    """

    def __init__(self, cycle: Cycle, ledger: StepLedger, now_s: float, slowdown: float) -> None:
        self._cycle, self._ledger = cycle, ledger
        goes_on = cycle.most_of(ledger.uncommitted)
        self._before = ledger.uncommitted - goes_on
        self._begun_s = (goes_on + ledger.share) * cycle.step_s
        self._clock = self._steps_clock = PaceClock(now_s, slowdown, self._begun_s)
        self._steps_end_s = 0.0

    def change_pace(self, now_s: float, slowdown: float) -> None:
        """Go on at another pace."""
        self._clock.change(now_s, slowdown)

    def finish_s(self) -> float:
        """When the last step of the training is finished, s; infinite: there is none."""
        left = self._ledger.wanted - self._ledger.committed
        if math.isinf(left):
            return math.inf
        return self._clock.time_s(self._cycle.time_of_s(int(left) - self._before))

    def step_end_s(self, now_s: float) -> float:
        """When the step or commit under way ends, s."""
        return self._clock.time_s(self._cycle.step_end_s(self._clock.done_s(now_s)))

    def steps_at(self, now_s: float) -> tuple[int, int]:
        """Steps that it has committed, and finished steps that are not."""
        state = self._cycle.at(self._clock.done_s(now_s))
        if state.committed:
            return state.committed + self._before, state.uncommitted
        return 0, state.uncommitted + self._before

    def count_steps(self, since_s: float, now_s: float) -> None:
        """Enter in the ledger what it did from its begin on (s), as it ends or commits."""
        ledger, clock, cycle = self._ledger, self._clock, self._cycle
        spent, span_s, done_s = ledger.spent, now_s - since_s, clock.done_s(now_s)
        state = cycle.at(done_s)
        spans = cycle.write_spans(done_s, MOST_WRITES)
        # By rounding, the end of the last one may lie after now.
        writes = [
            (min(clock.time_s(begin_s), now_s), min(clock.time_s(end_s), now_s))
            for begin_s, end_s in spans
        ]
        written_s = math.fsum(end_s - begin_s for begin_s, end_s in writes)
        at_full_pace_s = math.fsum(end_s - begin_s for begin_s, end_s in spans)
        if clock.is_slow:
            write_slow_s = max(0.0, written_s - at_full_pace_s)
            spent.write_slow_s += write_slow_s
            spent.slow_s += max(0.0, span_s - (done_s - self._begun_s) - write_slow_s)
        spent.steps_s += span_s - written_s
        spent.writes += writes
        committed, uncommitted = self.steps_at(now_s)
        ledger.finish(committed + uncommitted - ledger.uncommitted)
        ledger.commit(committed)
        ledger.share = state.part_s / cycle.step_s
        ledger.steps_s, ledger.part_s = state.uncommitted * cycle.step_s, state.part_s
        if self._begun_s:
            own_s = done_s - self._begun_s - at_full_pace_s
            ledger.part_s = min(ledger.part_s, own_s)
            ledger.steps_s = min(ledger.steps_s, own_s - ledger.part_s)
        self._steps_end_s = done_s - state.writing_s

    def begin_commit(self, now_s: float, slowdown: float) -> None:
        """Commit out of turn from now on."""
        self._clock = PaceClock(now_s, slowdown)

    def commit_end_s(self, write_s: float) -> float:
        """When that ends which takes so long at full pace, s."""
        return self._clock.time_s(write_s)

    def count_commit(self, since_s: float, now_s: float) -> None:
        """Enter it in the ledger, as it ends."""
        spent, span_s = self._ledger.spent, now_s - since_s
        spent.write_slow_s = spent.write_slow_s + span_s - self._clock.done_s(now_s)
        spent.writes.append((since_s, now_s))

    def took_s(self, done_s: float) -> float:
        """How long its last steps took, whose time at full pace that is, s."""
        return self._steps_clock.span_s(self._steps_end_s, done_s)
