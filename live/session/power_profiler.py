"""Measures power limits, or slices, during a training (Zeus, NSDI '23, section 4.2)."""

from __future__ import annotations

import math
from typing import Final

from typing_extensions import override

from wattkeeper.live.session.instruments import Instruments
from wattkeeper.policies.points.views import Measurement, Slice

LEAST: Final = 2
"""Steps a limit, so that one can warm up and one be measured."""
WARM_PART, WARM_MOST = 5, 10
"""A fifth of a limit's steps, but at most ten, warm up: they are done and paid, not measured."""
ROUNDING: Final = 1e-9
"""A measurement may last so much less than it should, relatively, by rounding."""
COUNTED_S: Final = 1.0
"""How long a limit of a GPU is measured at least, s: its counter is updated ten times a second."""


class Profiler:
    """Measures during a training; this one, nothing.

    Attributes:
        measurements: What was measured so far.
    """

    def __init__(self, instruments: Instruments) -> None:
        self.measurements: list[Measurement] = []
        self._instruments = instruments
        self._done = 0
        self._clear()

    @property
    def over(self) -> bool:
        """Whether all is measured, and can be reported."""
        return False

    @property
    def steps_to_reading(self) -> int | None:
        """Number of steps until a reading, at least; None if nothing is measured."""
        return None

    def begin_epoch(self) -> None:
        """Begin an epoch; a measurement that is not over continues in it."""

    def step(self) -> bool:
        """Note a step; whether what is measured is reported now, not after the epoch."""
        return False

    def end_epoch(self) -> bool:
        """End an epoch; whether what is measured is reported now, before the epoch is.

        What had too few steps is measured in the next one.
        """
        return False

    def _clear(self) -> None:
        """Count no step so far."""
        self._counted, self._time_s, self._energy_j = 0, 0.0, 0.0

    def _set_mark(self) -> None:
        """Count from here on."""
        self._mark, self._marked_at = self._instruments.read(), self._done

    def _count(self) -> None:
        """Count the steps since the mark, which is set here."""
        then, marked_at = self._mark, self._marked_at
        self._set_mark()
        self._counted += self._done - marked_at
        self._time_s += self._mark.time_s - then.time_s
        self._energy_j += (self._mark.energy_j or 0.0) - (then.energy_j or 0.0)

    def _steps_lasting(self, time_s: float) -> int:
        """Number of steps that last for a time (s), as those that were counted."""
        return math.ceil(time_s / (self._time_s / self._counted))

    def _power_w(self) -> float:
        """Mean power of the steps that were counted, W."""
        return self._energy_j / self._time_s if self._time_s > 0 else 0.0


class PowerProfiler(Profiler):
    """Shares the steps of an epoch out among limits, and measures each.

    A limit whose share takes less than `least_s` has more steps, at most as many as an epoch; what
    is left of the epoch is shared out among the limits after it, and those that find fewer than two
    steps wait for the next one. Later epochs count on as many steps as the shortest one had. Where
    the number of steps is not known, or below two a limit, each limit has a whole epoch; so have
    all limits once an epoch had fewer than two steps.

    Args:
        limits_w: In this order, W.
        steps: Of an epoch; None if not known.
        instruments: Measure, and put limits in force.
    """

    def __init__(
        self, limits_w: tuple[float, ...], steps: int | None, instruments: Instruments
    ) -> None:
        super().__init__(instruments)
        self._limits_w = self._left = limits_w
        self._steps = steps if steps is not None and steps >= LEAST * len(limits_w) else None
        self._in_epoch = self._steps or 0
        self._least_s = 0.0 if instruments.meter.how == "synthetic" else COUNTED_S * (1 - ROUNDING)
        self._warm = self._taken = 0
        self._end: int | None = None
        self._ends: list[int] = []

    @property
    @override
    def over(self) -> bool:
        return not self._left

    @property
    @override
    def steps_to_reading(self) -> int:
        return 1

    @override
    def begin_epoch(self) -> None:
        done, self._done, self._warm = self._done, 0, 0
        self._set_mark()
        if self._steps is None:
            self._instruments.limit(self._left[0])
        elif self._end is not None and self._counted:
            self._end -= done
        else:
            self._ends = []
            self._begin_limit()

    @override
    def step(self) -> bool:
        if self.over or self._steps is None:
            return self.over
        self._done += 1
        if self._end is None:
            return False
        self._taken += 1
        if self._done == self._warm:
            self._set_mark()
        elif self._done == self._in_epoch or self._done >= self._end:
            self._count()
            self._end_if_long_enough(self._steps)
        return self.over

    @override
    def end_epoch(self) -> bool:
        if self.over:
            return True
        if self._steps is None:
            self._clear()
            self._count()
            self._add_measurement(1.0)
        elif self._done < self._in_epoch:
            self._in_epoch = self._done
            if self._in_epoch < LEAST:
                self._steps = None
                self._left, self.measurements = self._limits_w, []
        return self.over

    def _begin_limit(self) -> None:
        """Begin the next limit, if the epoch has the steps for it."""
        if not self._ends:
            rest = self._in_epoch - self._done
            shares = min(len(self._left), rest // LEAST)
            self._ends = [self._done + (share + 1) * rest // shares for share in range(shares)]
        self._taken = 0
        self._clear()
        self._end = self._ends.pop(0) if self._ends else None
        if self._end is not None:
            warm = min(WARM_MOST, (self._end - self._done) // WARM_PART)
            self._warm = self._done + max(1, warm)
            self._instruments.limit(self._left[0])

    def _end_if_long_enough(self, steps: int) -> None:
        missing_s = self._least_s - self._time_s
        if missing_s > 0 and self._taken < steps:
            more = steps
            if self._time_s > 0:
                more = self._steps_lasting(missing_s)
            self._end, self._ends = self._done + min(more, steps - self._taken), []
            return
        self._add_measurement(steps / self._counted)
        if self._left:
            self._begin_limit()

    def _add_measurement(self, parts: float) -> None:
        """Add what the limit in force took over `1 / parts` of an epoch."""
        point = Measurement(self._left[0], self._time_s * parts, self._power_w())
        self.measurements.append(point)
        self._left = self._left[1:]


class SliceProfiler(Profiler):
    """Measures slices of a training, one after the other.

    A slice is at most an epoch long. One that continues in the next epoch leaves out what is
    between the steps of both. Where an epoch has no steps that are seen, it is the slice.

    Args:
        piece: The first one.
        batch_size: The batch size of the training.
        epoch_steps: Steps of an epoch; a fraction stands for a smaller last batch.
        instruments: Measure, and put limits in force.

    Attributes:
        measurements: The last slice, once it is over; else empty.
    """

    def __init__(
        self, piece: Slice, batch_size: int, epoch_steps: float, instruments: Instruments
    ) -> None:
        super().__init__(instruments)
        self._batch_size, self._epoch_steps = batch_size, epoch_steps
        self._most = max(1, math.ceil(epoch_steps))
        self._in_epoch = 0
        self.begin(piece)

    def begin(self, piece: Slice) -> None:
        """Begin a slice."""
        self.measurements = []
        self._piece = piece
        self._done = 0
        self._set_mark()
        self._begun = self._mark
        self._instruments.limit(piece.power_limit_w)
        self._warm = min(piece.warm_steps, self._most // WARM_PART)
        self._next = self._warm or piece.steps
        self._clear()

    @property
    @override
    def over(self) -> bool:
        return bool(self.measurements)

    @property
    @override
    def steps_to_reading(self) -> int:
        return max(1, min(self._next, self._most) - self._done)

    @override
    def begin_epoch(self) -> None:
        self._in_epoch = 0
        self._set_mark()

    @override
    def step(self) -> bool:
        self._in_epoch += 1
        self._done += 1
        if self._done == self._warm:
            self._set_mark()
            self._next = self._warm + self._piece.steps
        elif self._done >= min(self._next, self._most):
            self._count()
            self._end_if_long_enough()
        elif self._in_epoch == self._most and self._done > self._warm:
            self._count()
        return self.over and self._in_epoch < self._most  # else it may be the last epoch

    @override
    def end_epoch(self) -> bool:
        if self.over:
            return False
        if not self._in_epoch:
            self._count()
            self._end(1.0)
        elif self._done > max(self._warm, self._marked_at):
            self._count()
        return False

    def end(self) -> None:
        """End the slice, if it is not over, after the steps that there were: at least one."""
        if self.over:
            return
        if not self._counted and self._marked_at == self._done:
            self._mark, self._marked_at = self._begun, 0
        if self._marked_at < self._done:
            self._count()
        self._end(self._epoch_steps / self._counted)

    def _end_if_long_enough(self) -> None:
        missing_s = self._piece.least_s * (1 - ROUNDING) - self._time_s
        if missing_s <= 0 or self._done >= self._most:
            self._end(self._epoch_steps / self._counted)
        elif self._time_s > 0:
            self._next = self._done + self._steps_lasting(missing_s)
        else:
            self._next = self._most

    def _end(self, parts: float) -> None:
        """Add the measurement, of `1 / parts` of an epoch."""
        now, begun = self._mark, self._begun
        self.measurements.append(
            Measurement(
                self._piece.power_limit_w,
                self._time_s * parts,
                self._power_w(),
                0,
                self._batch_size,
                now.time_s - begun.time_s,
                (now.energy_j or 0.0) - (begun.energy_j or 0.0),
            )
        )
