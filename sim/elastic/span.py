"""What a shape trains between two pauses, beside slow nodes."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final

from wattkeeper.sim.elastic.cycle import Cycle
from wattkeeper.sim.elastic.ledger import StepLedger

MOST_WRITES: Final = 10_000
"""So many writes of checkpoints of a span are told apart: each of them takes memory."""


class PaceClock:
    """What is done over time, in s at full pace; between changes of the pace it grows evenly.

    Args:
        now_s: When it begins, s.
        factor: Time that anything takes over that at full pace, from then on.
        done_s: What was done before, s.
    """

    def __init__(self, now_s: float, factor: float, done_s: float = 0.0) -> None:
        self._since_s = [now_s]
        self._done_s = [done_s]
        self._factors = [factor]

    @property
    def is_slow(self) -> bool:
        """Whether it ever was not at full pace."""
        return self._factors != [1.0]

    def change(self, now_s: float, factor: float) -> None:
        """Go on at another pace."""
        done_s = self.done_s(now_s)
        self._since_s.append(now_s)
        self._done_s.append(done_s)
        self._factors.append(factor)

    def done_s(self, now_s: float) -> float:
        """What is done at a time since the last change, in s at full pace."""
        return self._done_s[-1] + (now_s - self._since_s[-1]) / self._factors[-1]

    def time_s(self, done_s: float) -> float:
        """When so much is or was done; at the present pace, where it is not yet."""
        at = max(0, bisect_right(self._done_s, done_s) - 1)
        return self._since_s[at] + (done_s - self._done_s[at]) * self._factors[at]

    def span_s(self, end_s: float, length_s: float) -> float:
        """How long a part took that ended when `end_s` was done; both in s at full pace."""
        span_s, left_s = 0.0, length_s
        for at in range(len(self._factors) - 1, 0, -1):
            part_s = min(left_s, max(0.0, end_s - self._done_s[at]))
            span_s += part_s * self._factors[at]
            left_s -= part_s
            end_s -= part_s
        return span_s + left_s * self._factors[0]


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
