"""The life of an attempt: running, paused, ended.

`Attempt` is its GPUs and overheads, `Execution` the state of the backend that runs it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.moments import NO_PROGRESS, Progress
from wattkeeper.policies.points.views import NO_KNOBS, Knobs, Outcome, Start
from wattkeeper.sim.attempts.decided import AttemptTotals, without_choices
from wattkeeper.sim.attempts.pace import Causes, Pace, own_pace, peers_pace, with_cause

if TYPE_CHECKING:
    from wattkeeper.policies.planning.hull import SpeedPoint
    from wattkeeper.sim.cluster.checkpoints import CheckpointRule


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


@mypyc_attr(acyclic=True)  # it refers to no execution, and so not to itself
class Attempt:
    """A try of a job, from the time at which it first holds GPUs.

    While it holds them without training, its GPUs draw idle power; `hold`, `train` and `count_idle`
    account for that as overhead. What few attempts need are defaults of the class, so that many
    fields cost no memory: one flat object of a million is the cheapest.

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
    """An attempt without GPUs, which resumes once it gets some: preempted, suspended or lost.

    Attributes:
        execution: What resumes once it holds GPUs again.
        since_s: When it lost its GPUs.
    """

    def __init__(self, execution: Execution, since_s: float) -> None:
        self.execution = execution
        self.since_s = since_s
