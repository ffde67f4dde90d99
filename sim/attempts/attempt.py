"""The life of an attempt: decided, running, paused, ended.

`Untuned` and `Tuned` are its configuration, `Attempt` its GPUs and overheads, `Execution` the state
of the backend that runs it, and `AttemptTotals` its result.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.moments import NO_PROGRESS, Progress
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
from wattkeeper.sim.attempts.pace import Causes, Pace, own_pace, peers_pace, with_cause

if TYPE_CHECKING:
    from wattkeeper.policies.planning.hull import SpeedPoint
    from wattkeeper.sim.cluster.checkpoints import CheckpointRule


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


class LostWork(NamedTuple):
    """An attempt that a lost node ended.

    Attributes:
        time_s: Its training time, s.
        energy_j: Energy of that, J.
        lost_time_s: Of its time, what was trained since its last checkpoint, s.
        lost_energy_j: Energy of that, J.
    """

    time_s: float
    energy_j: float
    lost_time_s: float
    lost_energy_j: float


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


@mypyc_attr(acyclic=True)  # it refers to no execution, and so not to itself
class Attempt:
    """A try of a job, from the time at which it first holds GPUs.

    While it holds them without training, its GPUs draw idle power; `hold`, `train` and `count_idle`
    account for that as overhead.

    Attributes:
        job: The job.
        number: Number of the attempt of this job, from 1.
        placement: The GPUs that it holds, or held before it was preempted.
        where: Index of the placement in the journal.
        gpu_type: The type of its GPUs.
        begun_s: When it first held GPUs.
        idle_w: Idle power of its GPUs, W.
        has_trained: Whether it has trained, so that it must be restored if it is preempted.
        is_idle: Whether it holds its GPUs without training.
        idle_since_s: When it last began to.
        power: Current power above that of idle GPUs, in `recorder.UNITS_PER_WATT`.
        first_power: The same at its beginning.
        overhead_s: Time for which it held GPUs without training, s.
        overhead_j: Energy of that time, J.
        holds: Begin and end (s) of each time for which it held GPUs without training.
        preemptions: Number of preemptions.
        is_stopped: Whether `Tune` ended it.
        tune_paused_s: Time for which `Tune` paused it, s.
        tune_paused_since_s: Since when it does; NaN if it does not.
        draws: Time (s) and power (W) of each change of its power, where knobs may change.
        reserved_w: What it counts with under a power cap at least, W: a straggler lowers its power
            for a while only.
        losses: How many attempts of the job before it ended with a lost node.
        kept_time_s: Training time of the work that it took over from these, s.
        kept_energy_j: Energy of that, J.
        waits_anew: Whether it waits for its first GPUs since a node was lost.
        slow_s: Of `overhead_s`, time that slow nodes added to its training, s.
    """

    has_trained = False
    is_idle = False
    idle_since_s = 0.0
    power = 0
    first_power = 0
    overhead_s = 0.0
    overhead_j = 0.0
    holds: tuple[tuple[float, float], ...] = ()
    preemptions = 0
    is_stopped = False
    tune_paused_s = 0.0
    tune_paused_since_s = math.nan
    draws: list[tuple[float, float]] | None = None
    reserved_w = 0.0
    losses = 0
    kept_time_s = 0.0
    kept_energy_j = 0.0
    waits_anew = False
    slow_s = 0.0

    def __init__(
        self,
        job: Job,
        number: int,
        placement: Placement,
        where: int,
        gpu_type: str,
        begun_s: float,
        idle_w: float,
    ) -> None:
        self.job = job
        self.number = number
        self.placement = placement
        self.where = where
        self.gpu_type = gpu_type
        self.begun_s = begun_s
        self.idle_w = idle_w

    @property
    def tries(self) -> int:
        """Its number, without attempts that were lost."""
        return self.number - self.losses

    def outcome(
        self, most_w: float, totals: AttemptTotals, cost: float, power_limit_w: float = math.nan
    ) -> Outcome:
        """The outcome of a job without a configuration, at a cost in J.

        Args:
            most_w: The most that all its GPUs may draw, W.
            totals: What it trained.
            cost: What that cost.
            power_limit_w: Power limit of each GPU, W; NaN: none was chosen.
        """
        options = without_choices(self.job, self.gpu_type, most_w / self.job.gpus_held)
        start = Start(self.job, self.number, options, 0)
        return Outcome(start, 0, power_limit_w, *totals[:3], cost, totals.reached)

    def next_try(self, begun_s: float) -> Attempt:
        """The next try of the job, on the same GPUs."""
        again = Attempt(
            self.job,
            self.number + 1,
            self.placement,
            self.where,
            self.gpu_type,
            begun_s,
            self.idle_w,
        )
        again.losses = self.losses
        return again

    def after_loss(self, job: Job, lost: LostWork, now_s: float) -> Attempt:
        """The attempt that resumes from the last checkpoint of this one.

        `job`: as it waits from now on.
        """
        again = self.next_try(now_s)
        again.job = job
        again.losses += 1
        again.kept_time_s = self.kept_time_s + lost.time_s - lost.lost_time_s
        again.kept_energy_j = self.kept_energy_j + lost.energy_j - lost.lost_energy_j
        again.waits_anew = True
        return again

    def without_gpus(self, now_s: float) -> Attempt:
        """The attempt that waits where this one gave up its GPUs; one that began now continues."""
        again = self.next_try(now_s)
        again.number -= self.begun_s == now_s
        again.losses = 0
        again.waits_anew = True
        return again

    def hold(self, since_s: float) -> None:
        """Hold the GPUs without training from a time on, s."""
        self.count_idle(since_s)
        self.is_idle = True
        self.idle_since_s = since_s

    def train(self, since_s: float) -> None:
        """Train from a time on, s."""
        self.count_idle(since_s)
        self.has_trained = True

    def count_idle(self, until_s: float) -> None:
        """End holding the GPUs without training, if it does, at a time, s."""
        if self.is_idle:
            self.is_idle = False
            spent_s = until_s - self.idle_since_s
            self.add_overhead(spent_s, spent_s * self.idle_w)
            if spent_s > 0:
                self.holds += ((self.idle_since_s, until_s),)

    @property
    def is_paused_by_tune(self) -> bool:
        """Whether `Tune` pauses it."""
        return not math.isnan(self.tune_paused_since_s)

    def end_pause(self, now_s: float) -> None:
        """Count the time for which `Tune` paused it, if it does, at a time, s."""
        if self.is_paused_by_tune:
            self.tune_paused_s += now_s - self.tune_paused_since_s
            self.tune_paused_since_s = math.nan

    def add_overhead(self, spent_s: float, spent_j: float) -> None:
        """Count time (s) on its GPUs, and energy (J), as spent without use."""
        self.overhead_s += spent_s
        self.overhead_j += spent_j


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Execution:
    """An attempt that runs, or resumes once it holds GPUs again.

    Each backend has a subclass with its own state of the attempt. Many subclasses are left out of
    garbage collection, though they refer to the world: it lets go of them (`World.run`).

    Attributes:
        attempt: The attempt.
        causes: What slows it down.
    """

    causes: Causes = ()

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    @abstractmethod
    def go_on(self, delay_s: float) -> None:
        """Begin, or resume after `pause`, on the GPUs that the attempt now holds.

        It holds them without training for a delay (s) first, and reports on its own from then on.
        """

    @abstractmethod
    def pause(self) -> None:
        """Stop at once; what was done is kept."""

    def lose(self) -> LostWork:
        """Stop at once, since a node is lost, and go back to the last checkpoint.

        Raises:
            NotImplementedError: If the backend cannot do that.
        """
        raise NotImplementedError

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """Write checkpoints from now on, where it starts or resumes, since nodes may be lost.

        Raises:
            NotImplementedError: If the backend cannot do that.
        """
        raise NotImplementedError

    def write_checkpoint(self) -> None:
        """Write a checkpoint now, if it trains and writes any."""

    def configured(self) -> tuple[int, float]:
        """Its batch size (-1: not known), and the power limit of each GPU, W (NaN: none is set)."""
        return -1, math.nan

    def begun_with(self) -> Start | None:
        """What `Configure` was asked about; None: it was not."""
        return None

    @property
    def is_training(self) -> bool:
        """Whether it trains with the knobs that were chosen, so that they can be changed now."""
        return False

    def progress(self) -> Progress:
        """What it has done so far."""
        return NO_PROGRESS

    def retune(self, knobs: Knobs) -> None:
        """Continue with other knobs from now on; those that are not given stay as they are.

        A power limit without a clock releases the clocks of jobs that are not pipeline-parallel.
        If it is paused, they hold from when it resumes.

        Raises:
            NotImplementedError: If the backend cannot change them.
        """
        raise NotImplementedError

    def slow(self, cause: str, pace: Pace) -> None:
        """Let a cause impose a pace from now on, beside other causes; a full one: it ended.

        Of `PEERS` the slowest holds, and all other causes multiply. If it does not train, that
        holds from when it does.

        Raises:
            NotImplementedError: If the backend cannot do that.
        """
        before = self.causes
        self.causes = after = with_cause(before, cause, pace)
        peers, own = peers_pace(after), own_pace(after)
        if peers != peers_pace(before) or own != own_pace(before):
            self.change_pace(peers, own)

    def change_pace(self, peers: Pace, own: Pace) -> None:
        """Continue at another pace: that of the slowest peer, and the product of other causes.

        For a pipeline-parallel job, the pace of a peer is the least time of an iteration over that
        at the highest clocks.

        Raises:
            NotImplementedError: If the backend cannot do that.
        """
        raise NotImplementedError

    @property
    def slowdown(self) -> float:
        """Time of a step over that at full pace, which the slowest of its peers imposes."""
        return peers_pace(self.causes).slowdown

    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        """What it does at each power limit, or at clocks, up to those that were chosen; ascending.

        Speeds are relative to the highest limit or clocks. Empty if that is not known.
        """
        return ()

    def stop(self) -> None:
        """End now, without having reached the target.

        Raises:
            NotImplementedError: If the backend cannot do that.
        """
        raise NotImplementedError


class Paused:
    """An attempt that was preempted.

    Attributes:
        execution: What resumes once it holds GPUs again.
        since_s: When it lost its GPUs.
    """

    def __init__(self, execution: Execution, since_s: float) -> None:
        self.execution = execution
        self.since_s = since_s
