"""Measures power limits, or slices, while a training goes on (Zeus, NSDI '23, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wattkeeper.policies.points.views import Measurement, Slice

if TYPE_CHECKING:
    from wattkeeper.live.devices.energy_meter import Reading

LEAST: Final = 2
"""Steps a limit, so that one can warm up and one be measured."""
WARM_PART, WARM_MOST = 5, 10
"""A fifth of a limit's steps, but at most ten, warm up: they are done and paid, not measured."""
ROUNDING: Final = 1e-9
"""A measurement may last so much less than it should, relatively, by rounding."""
COUNTED_S: Final = 1.0
"""How long a limit of a GPU is measured at least, s: its counter is updated ten times a second."""


class PowerProfiler:
    """Shares the steps of an epoch out among limits, and measures each.

    A limit whose share takes less than `least_s` has more steps, at most as many as an epoch; what
    is left of the epoch is shared out among the limits after it, and those that find fewer than two
    steps wait for the next one. Later epochs count on as many steps as the shortest one had. Where
    the number of steps is not known, or below two a limit, each limit has a whole epoch; so have
    all limits once an epoch had fewer than two steps.

    Args:
        limits_w: In this order, W.
        steps: Of an epoch; None if not known.
        read: Time and energy now.
        limit: Puts a limit in force.
        least_s: How long a limit is measured at least, s.

    Attributes:
        measurements: What was measured so far.
        steps_to_reading: Number of steps until a reading, at least.
        waits: Whether what was measured is reported at the end of the epoch.
    """

    steps_to_reading = 1
    waits = False

    def __init__(
        self,
        limits_w: tuple[float, ...],
        steps: int | None,
        read: Callable[[], Reading],
        limit: Callable[[float], None],
        least_s: float,
    ) -> None:
        self.measurements: list[Measurement] = []
        self._limits_w = self._left = limits_w
        self._steps = steps if steps is not None and steps >= LEAST * len(limits_w) else None
        self._in_epoch = self._steps or 0
        self._read, self._limit, self._least_s = read, limit, least_s * (1 - ROUNDING)
        self._done = self._warm = self._taken = self._counted = 0
        self._time_s = self._energy_j = 0.0
        self._end: int | None = None
        self._ends: list[int] = []

    @property
    def over(self) -> bool:
        """Whether all limits are measured."""
        return not self._left

    def begin_epoch(self) -> None:
        """Begin an epoch; a limit that is not measured goes on."""
        self._mark, self._marked_at = self._read(), 0
        done, self._done, self._warm = self._done, 0, 0
        if self._steps is None:
            self._limit(self._left[0])
        elif self._end is not None and self._counted:
            self._end -= done
        else:
            self._ends = []
            self._begin_limit()

    def step(self) -> None:
        """Note a step."""
        if self.over or self._steps is None:
            return
        self._done += 1
        if self._end is None:
            return
        self._taken += 1
        if self._done == self._warm:
            self._mark, self._marked_at = self._read(), self._done
        elif self._done == self._in_epoch or self._done >= self._end:
            self._count()
            self._end_if_long_enough(self._steps)

    def end_epoch(self) -> None:
        """End an epoch; limits that had too few steps are measured in the next one."""
        if self.over:
            return
        if self._steps is None:
            self._counted, self._time_s, self._energy_j = 0, 0.0, 0.0
            self._count()
            self._add_measurement(1.0)
        elif self._done < self._in_epoch:
            self._in_epoch = self._done
            if self._in_epoch < LEAST:
                self._steps = None
                self._left, self.measurements = self._limits_w, []

    def _begin_limit(self) -> None:
        """Begin the next limit, if the epoch has the steps for it."""
        if not self._ends:
            rest = self._in_epoch - self._done
            shares = min(len(self._left), rest // LEAST)
            self._ends = [self._done + (share + 1) * rest // shares for share in range(shares)]
        self._taken, self._counted, self._time_s, self._energy_j = 0, 0, 0.0, 0.0
        self._end = self._ends.pop(0) if self._ends else None
        if self._end is not None:
            warm = min(WARM_MOST, (self._end - self._done) // WARM_PART)
            self._warm = self._done + max(1, warm)
            self._limit(self._left[0])

    def _count(self) -> None:
        """Count the steps since the mark."""
        now, then = self._read(), self._mark
        self._counted += self._done - self._marked_at
        self._time_s += now.time_s - then.time_s
        self._energy_j += (now.energy_j or 0.0) - (then.energy_j or 0.0)
        self._mark, self._marked_at = now, self._done

    def _end_if_long_enough(self, steps: int) -> None:
        missing_s = self._least_s - self._time_s
        if missing_s > 0 and self._taken < steps:
            more = steps
            if self._time_s > 0:
                more = math.ceil(missing_s / (self._time_s / self._counted))
            self._end, self._ends = self._done + min(more, steps - self._taken), []
            return
        self._add_measurement(steps / self._counted)
        if self._left:
            self._begin_limit()

    def _add_measurement(self, parts: float) -> None:
        """Add what the limit in force took over `1 / parts` of an epoch."""
        power_w = self._energy_j / self._time_s if self._time_s > 0 else 0.0
        self.measurements.append(Measurement(self._left[0], self._time_s * parts, power_w))
        self._left = self._left[1:]


class SliceProfiler:
    """Measures slices of a training, one after the other.

    A slice is at most an epoch long. One that goes on in the next epoch leaves out what is between
    the steps of both. Where an epoch has no steps that are seen, it is the slice.

    Args:
        piece: The first one.
        batch_size: The batch size of the training.
        epoch_steps: Steps of an epoch; a fraction stands for a smaller last batch.
        read: Time and energy now.
        limit: Puts a limit in force.

    Attributes:
        measurements: The last slice, once it is over; else empty.
    """

    def __init__(
        self,
        piece: Slice,
        batch_size: int,
        epoch_steps: float,
        read: Callable[[], Reading],
        limit: Callable[[float], None],
    ) -> None:
        self._batch_size, self._epoch_steps = batch_size, epoch_steps
        self._read, self._limit = read, limit
        self._most = max(1, math.ceil(epoch_steps))
        self._in_epoch = 0
        self.begin(piece)

    def begin(self, piece: Slice) -> None:
        """Begin a slice."""
        self.measurements: list[Measurement] = []
        self._piece = piece
        self._begun = self._mark = self._read()
        self._limit(piece.power_limit_w)
        self._done = self._marked_at = 0
        self._warm = min(piece.warm_steps, self._most // WARM_PART)
        self._next = self._warm or piece.steps
        self._steps, self._time_s, self._energy_j = 0, 0.0, 0.0

    @property
    def over(self) -> bool:
        """Whether the slice is measured."""
        return bool(self.measurements)

    @property
    def steps_to_reading(self) -> int:
        """Number of steps until a reading, at least."""
        return max(1, min(self._next, self._most) - self._done)

    @property
    def waits(self) -> bool:
        """Whether the epoch has no further step, so that it may be the last one."""
        return self._in_epoch >= self._most

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        self._in_epoch = 0
        self._mark, self._marked_at = self._read(), self._done

    def step(self) -> None:
        """Note a step."""
        self._in_epoch += 1
        self._done += 1
        if self._done == self._warm:
            self._mark, self._marked_at = self._read(), self._done
            self._next = self._warm + self._piece.steps
        elif self._done >= min(self._next, self._most):
            self._count()
            self._end_if_long_enough()
        elif self._in_epoch == self._most and self._done > self._warm:
            self._count()

    def end_epoch(self) -> None:
        """End an epoch; a slice that is not over goes on in the next one."""
        if self.over:
            return
        if not self._in_epoch:
            self._count()
            self._end(1.0)
        elif self._done > max(self._warm, self._marked_at):
            self._count()

    def end(self) -> None:
        """End the slice, if it is not over, after the steps that there were: at least one."""
        if self.over:
            return
        if not self._steps and self._marked_at == self._done:
            self._mark, self._marked_at = self._begun, 0
        if self._marked_at < self._done:
            self._count()
        self._end(self._epoch_steps / self._steps)

    def _count(self) -> None:
        """Count the steps since the mark."""
        now, then = self._read(), self._mark
        self._steps += self._done - self._marked_at
        self._time_s += now.time_s - then.time_s
        self._energy_j += (now.energy_j or 0.0) - (then.energy_j or 0.0)
        self._mark, self._marked_at = now, self._done

    def _end_if_long_enough(self) -> None:
        missing_s = self._piece.least_s * (1 - ROUNDING) - self._time_s
        if missing_s <= 0 or self._done >= self._most:
            self._end(self._epoch_steps / self._steps)
        elif self._time_s > 0:
            self._next = self._done + math.ceil(missing_s / (self._time_s / self._steps))
        else:
            self._next = self._most

    def _end(self, parts: float) -> None:
        """Add the measurement, of `1 / parts` of an epoch."""
        now, begun, time_s = self._mark, self._begun, self._time_s
        power_w = self._energy_j / time_s if time_s > 0 else 0.0
        spent_j = (now.energy_j or 0.0) - (begun.energy_j or 0.0)
        self.measurements.append(
            Measurement(
                self._piece.power_limit_w,
                time_s * parts,
                power_w,
                0,
                self._batch_size,
                now.time_s - begun.time_s,
                spent_j,
            )
        )
