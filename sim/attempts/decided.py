"""Decided attempts, what they start from, and what their training came to; immutable values."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import (
    NO_KNOBS,
    Configuration,
    Knobs,
    Measurement,
    Options,
    Outcome,
    Slice,
    Start,
)
from wattkeeper.policies.profile import epochs_left


class SliceTotals(NamedTuple):
    """The totals of an attempt's slices, as profiled (without the job's own `time_scale`).

    Attributes:
        slices: Their number.
        time_s: Their time, s.
        energy_j: Their energy, J.
        discarded_s: Time of those of other batch sizes, whose weights were thrown away, s.
        discarded_j: Energy of these, J.
    """

    slices: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0
    discarded_s: float = 0.0
    discarded_j: float = 0.0

    def add(self, time_s: float, energy_j: float, discarded: bool) -> SliceTotals:
        """These and another slice."""
        discarded_s = self.discarded_s + discarded * time_s
        discarded_j = self.discarded_j + discarded * energy_j
        return SliceTotals(
            self.slices + 1,
            self.time_s + time_s,
            self.energy_j + energy_j,
            discarded_s,
            discarded_j,
        )


NO_SLICES: Final = SliceTotals()


class AttemptTotals(NamedTuple):
    """The totals of an attempt's training, as profiled (without the job's own `time_scale`).

    Attributes:
        epochs: Completed epochs.
        time_s: Seconds of training, slices included.
        energy_j: Energy of training, slices included, J.
        reached: Whether it reached the target.
        saved_s: Time that its parent saved, with the `time_scale`, s; NaN if not known.
        accuracy: Accuracy that its model reached; None: it is modelled.
        slices: Its slices.
    """

    epochs: int
    time_s: float
    energy_j: float
    reached: bool
    saved_s: float = 0.0
    accuracy: float | None = None
    slices: SliceTotals = NO_SLICES


class Decided:
    """An attempt whose configuration is chosen; immutable.

    It is `Untuned` until its power limit is chosen, and `Tuned` then.

    Attributes:
        start: The view that `Configure` received.
        configuration: Its choice.
    """

    def __init__(self, start: Start, configuration: Configuration) -> None:
        self.start = start
        self.configuration = configuration

    @property
    def batch_size(self) -> int:
        """The batch size that was chosen."""
        return self.configuration.batch_size

    @property
    def max_power_w(self) -> float:
        """The largest power limit of all its GPUs, W; it weighs time in the cost."""
        options = self.start.options
        return options.max_power_w * options.gpus


class Untuned(Decided):
    """An attempt whose power limits are measured before `Tune` chooses one.

    Attributes:
        profile_w: The power limits to be measured, W, in this order.
        profile_mhz: The locked clocks to be measured then, MHz, in this order.
        slice: The slice to be trained instead of these.
        measured: Its slices so far.
    """

    def __init__(
        self,
        start: Start,
        configuration: Configuration,
        profile_w: tuple[float, ...],
        profile_mhz: tuple[int, ...] = (),
        slice: Slice | None = None,
        measured: tuple[Measurement, ...] = (),
    ) -> None:
        super().__init__(start, configuration)
        self.profile_w = profile_w
        self.profile_mhz = profile_mhz
        self.slice = slice
        self.measured = measured

    def with_configuration(self, configuration: Configuration) -> Untuned:
        """The same with another configuration."""
        profile = self.profile_w, self.profile_mhz, self.slice, self.measured
        return Untuned(self.start, configuration, *profile)

    def of_attempt(self, number: int) -> Untuned:
        """The same of another attempt of the job."""
        if number == self.start.attempt:
            return self
        start = self.start._replace(attempt=number)
        return Untuned(
            start, self.configuration, self.profile_w, self.profile_mhz, self.slice, self.measured
        )

    def at_present_limit(self) -> Tuned:
        """The attempt if nothing more is measured: at the limit of its slice, if it trains one.

        Else its GPUs run at their highest limit unless another is set.
        """
        if self.slice is not None:
            return Tuned(self.start, self.configuration, self.slice.power_limit_w, True)
        highest_w = self.start.options.limits(self.batch_size)[-1]
        return Tuned(self.start, self.configuration, highest_w, False)


class Tuned(Decided):
    """An attempt whose power limit is chosen.

    Attributes:
        power_limit_w: The power limit of each GPU, W.
        profiled: Whether the power limits were measured.
        knobs: The answer of `Tune`; without one, nothing besides the limit.
    """

    def __init__(
        self,
        start: Start,
        configuration: Configuration,
        power_limit_w: float,
        profiled: bool,
        knobs: Knobs = NO_KNOBS,
    ) -> None:
        super().__init__(start, configuration)
        self.power_limit_w = power_limit_w
        self.profiled = profiled
        self.knobs = knobs

    @property
    def clock_mhz(self) -> int:
        """The locked clock of each GPU, MHz; 0: its clock is free."""
        return self.knobs.clock_mhz or 0

    def with_configuration(self, configuration: Configuration) -> Tuned:
        """The same with another configuration."""
        return Tuned(self.start, configuration, self.power_limit_w, self.profiled, self.knobs)

    def at_limit(self, power_limit_w: float, clock_mhz: int = 0) -> Tuned:
        """The same at another power limit (W), or at its highest with a locked clock (MHz)."""
        knobs = self.knobs
        if clock_mhz != self.clock_mhz:
            knobs = knobs._replace(clock_mhz=clock_mhz or None)
        return Tuned(self.start, self.configuration, power_limit_w, self.profiled, knobs)

    def with_knobs(self, knobs: Knobs) -> Tuned:
        """The same with other knobs at its power limit."""
        return Tuned(self.start, self.configuration, self.power_limit_w, self.profiled, knobs)

    def outcome(self, totals: AttemptTotals, cost: float) -> Outcome:
        """The outcome that policies observe after the end, with a cost in J."""
        epochs, time_s, energy_j, reached = totals[:4]
        return Outcome(
            self.start, self.batch_size, self.power_limit_w, epochs, time_s, energy_j, cost, reached
        )


Decision = Untuned | Tuned


def without_choices(job: Job, gpu_type: str, most_w: float) -> Options:
    """The options of a job whose configuration nobody chooses; `most_w`: of one GPU, W."""
    return Options(f"{gpu_type}x{job.gpus}", gpu_type, job.gpus, (), (), 0, most_w, 0)


def untrained(job: Job, attempt: int) -> Outcome:
    """The outcome of a job that ended for want of nodes; `attempt`: the number of its last one."""
    options = without_choices(job, job.gpu_type or "", 0.0)
    return Outcome(Start(job, attempt, options, 0), 0, math.nan, 0, 0.0, 0.0, 0.0, False)


class Inheritance:
    """What an attempt takes over from a model of the zoo.

    Attributes:
        work: The share of the training that is left to do with its weights; 1 from scratch.
        query_s: Duration of the parent search, during which the GPUs are held, s.
    """

    def __init__(self, work: float = 1.0, query_s: float = 0.0) -> None:
        self.work = work
        self.query_s = query_s

    def epochs_left(self, from_scratch: float) -> float:
        """Whole epochs that are left of those to the target, which are infinite if it is missed."""
        return epochs_left(from_scratch, self.work)


FROM_SCRATCH: Final = Inheritance()
