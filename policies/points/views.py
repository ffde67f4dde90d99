"""What policies see of an attempt, and what they answer.

Views and answers are immutable values. Units: seconds, watts, joules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import NO_PROGRESS, Moment, Progress

if TYPE_CHECKING:
    from wattkeeper.policies.pipeline.task import PipelineTask


MOST_LISTED: Final = 40
"""Power limits that a message lists."""


class Options(NamedTuple):
    """What may be chosen for a workload on a GPU type.

    Attributes:
        key: Identifies workload, GPU type and number of GPUs in journals.
        gpu_type: Name of the GPU type.
        gpus: GPUs of the job.
        batch_sizes: Profiled global batch sizes, ascending.
        limits_w: For each batch size, the profiled power limits of one GPU in W, ascending.
        default_batch_size: The workload's batch size where no policy chooses one.
        max_power_w: Largest power limit of the GPU type in W.
        max_epochs: A training that has not reached its target after so many epochs is ended.
        fixed_epochs: The number of epochs, if it is known beforehand; None: it trains to a target.
        pipeline: The instructions of a pipeline-parallel job, whose clocks may be chosen; None if
            it is none. An epoch of it is an iteration.
        clocks_mhz: For each batch size, the profiled locked clocks in MHz, ascending; empty if
            none was profiled at any.
        samples_per_epoch: Samples of an epoch; 0 if not known, and no slice can be asked for.
    """

    key: str
    gpu_type: str
    gpus: int
    batch_sizes: tuple[int, ...]
    limits_w: tuple[tuple[float, ...], ...]
    default_batch_size: int
    max_power_w: float
    max_epochs: int
    fixed_epochs: int | None = None
    pipeline: PipelineTask | None = None
    clocks_mhz: tuple[tuple[int, ...], ...] = ()
    samples_per_epoch: float = 0.0

    def clocks(self, batch_size: int) -> tuple[int, ...]:
        """Locked clocks of a batch size in MHz, ascending; at the highest power limit."""
        return self.clocks_mhz[self.batch_sizes.index(batch_size)] if self.clocks_mhz else ()

    def limits(self, batch_size: int) -> tuple[float, ...]:
        """Power limits of a batch size in W, ascending."""
        return self.limits_w[self.batch_sizes.index(batch_size)]

    @staticmethod
    def limits_text(limits: Sequence[float]) -> str:
        """Power limits (W, ascending) in words: all of them, or the range of many."""
        if len(limits) > MOST_LISTED:
            return f"{limits[0]:g} to {limits[-1]:g} W"
        return f"{', '.join(f'{limit_w:g}' for limit_w in limits)} W"

    def check_batch_size(self, batch_size: int, who: str) -> None:
        """Check that a batch size has a profile.

        Args:
            batch_size: The batch size.
            who: The jobs that it was chosen for, as named in the message.

        Raises:
            PolicyError: If it is not among the options.
        """
        if batch_size not in self.batch_sizes:
            raise PolicyError(
                f"batch size {batch_size} for {who} has no profile on {self.key}; "
                f"there is {', '.join(map(str, self.batch_sizes))}",
                "configure",
            )


class Start(NamedTuple):
    """An attempt that is about to start: placed, but not configured yet.

    Attributes:
        job: The job.
        attempt: Number of the attempt of this job, from 1.
        options: What may be chosen.
        group_in_flight: How many other jobs of the group have started and not ended.
        work: The share of the training that its parent leaves, as expected; 1 from scratch, or
            where the parent is not chosen yet.
        waiting: Other jobs in the queue, over the GPUs of the cluster, those that start at the same
            time included; 0 unless the policy's config says that it reads it (`sees_queue`).
    """

    job: Job
    attempt: int
    options: Options
    group_in_flight: int
    work: float = 1.0
    waiting: float = 0.0

    @property
    def learning_key(self) -> str:
        """Key of what is learnt together: the jobs of one group on one number and type of GPUs."""
        return f"{self.job.group_id}@{self.options.key}"

    def inherit(
        self, parent: str | None, query_s: float = 0.0, trial: ParentTrial | None = None
    ) -> Configuration:
        """The default batch size with a parent's id; None: it starts from scratch."""
        size = self.options.default_batch_size
        return Configuration(size, parent=parent, query_s=query_s, trial=trial)


def _format_fields(
    name: str, fields: tuple[str, ...], values: tuple[object, ...], hidden: int
) -> str:
    """A named tuple in words; its last fields, which came later, may be left out.

    Journals have a digest of these words: they stay what they were where the fields are not used.
    """
    number = len(fields) - hidden
    pairs = zip(fields[:number], values[:number], strict=True)
    return f"{name}({', '.join([f'{field}={value!r}' for field, value in pairs])})"


TrialKind = Literal["none", "evaluated", "trained"]
"""How parents are tried before one is chosen: not at all, by the accuracies of the initial weights
that they give, or by epochs of training from each."""


class ParentTrial(NamedTuple):
    """Other parents that the host tries before an attempt trains; the best of all is the parent.

    They are tried by successive halving; see `wattkeeper.policies.learning.halving`.

    Attributes:
        rivals: Their ids, the most promising first; `Configuration.parent` is more promising still.
        epochs: Epochs of training from each one before the first halving; 0: the accuracies of the
            initial weights decide.
    """

    rivals: tuple[str, ...]
    epochs: int = 0


class Configuration(NamedTuple):
    """The configuration of an attempt.

    Attributes:
        batch_size: One of the options' batch sizes.
        power_limit_w: Power limit of each GPU in W; None leaves the choice to `Tune`.
        cost_bound: The attempt ends before the epoch that would raise its cost above this bound, J.
        parent: Id of the zoo's model whose weights it starts from; None: it starts from scratch.
        query_s: Duration of the parent search in s, during which the job holds its GPUs.
        clock_mhz: Locked clock of each GPU in MHz, with the highest power limit; 0: free clocks.
        trial: Other parents to be tried first, if the policy's config says that it asks for that
            (`trial`); None: `parent` is the choice.
    """

    batch_size: int
    power_limit_w: float | None = None
    cost_bound: float = math.inf
    parent: str | None = None
    query_s: float = 0.0
    clock_mhz: int = 0
    trial: ParentTrial | None = None

    def __repr__(self) -> str:
        hidden = 0 if self.trial else 1 if self.clock_mhz else 2
        return _format_fields(type(self).__name__, self._fields, self, hidden)

    @property
    def parents(self) -> tuple[str, ...]:
        """The parents to be tried, the most promising first; without a trial, the one or none."""
        if self.parent is None:
            return ()
        return (self.parent, *(self.trial.rivals if self.trial else ()))


SETUP_S: Final = 2.0
"""What it takes to set another batch size up for a slice, s, at the power of the slice: assumed."""


class Slice(NamedTuple):
    """A short training that measures what an epoch costs at a batch size and a power limit.

    Attributes:
        power_limit_w: Power limit of each GPU, W.
        batch_size: None: that of the attempt, which keeps the progress of the slice. Another one
            once the attempt reached its target; what the slice learnt is thrown away then.
        warm_steps: So many steps are not measured, first.
        steps: Least number of steps that are.
        least_s: Least time of these, s.
    """

    power_limit_w: float
    batch_size: int | None = None
    warm_steps: int = 5
    steps: int = 20
    least_s: float = 2.0

    def epochs(self, epoch_s: float, samples: float, batch_size: int) -> float:
        """The part of an epoch that it trains, at most all of it.

        Args:
            epoch_s: Time of an epoch at its batch size and power limit, s.
            samples: Samples of an epoch.
            batch_size: Its batch size.
        """
        steps = samples / batch_size
        taken = self.warm_steps + max(float(self.steps), self.least_s / epoch_s * steps)
        return min(1.0, taken / steps)


class Measurement(NamedTuple):
    """Profile of one power limit, or of one locked clock.

    Attributes:
        power_limit_w: The limit of each GPU in W; with a locked clock, the highest one.
        time_per_epoch_s: Seconds per epoch.
        average_power_w: Mean power of all GPUs together in W.
        clock_mhz: The locked clock of each GPU in MHz; 0: free clocks.
        batch_size: Of a slice; 0: it was no slice, but a part of an attempt's first epoch.
        spent_s: Time of the slice as profiled (without the job's own `time_scale`), s.
        spent_j: Energy of the slice as profiled, J.
    """

    power_limit_w: float
    time_per_epoch_s: float
    average_power_w: float
    clock_mhz: int = 0
    batch_size: int = 0
    spent_s: float = 0.0
    spent_j: float = 0.0

    def __repr__(self) -> str:
        hidden = 0 if self.batch_size else 3 + (not self.clock_mhz)
        return _format_fields(type(self).__name__, self._fields, self, hidden)


class Knobs(NamedTuple):
    """The choice of `Tune`; what it leaves out stays as it is.

    Attributes:
        power_limit_w: Power limit of each GPU from now on, W.
        profile_w: Power limits to profile, in this order, during the first epoch; then `Tune` is
            asked again. Only at the start, and without a power limit.
        clock_mhz: Clock of each GPU from now on, MHz; it replaces a plan. Jobs that are not
            pipeline-parallel have the highest power limit then; a power limit without a clock
            releases the clock.
        plan: Clocks of a pipeline-parallel job from now on, MHz: of each GPU's instructions, in
            their order. It replaces a single clock.
        run: Whether it trains from now on, pauses, or ends without having reached its target.
        wake_s: When to ask again, s; infinite for never. It replaces the time of an earlier answer.
        profile_mhz: Locked clocks to profile, after the power limits of `profile_w`.
        slice: A slice to train now; then `Tune` is asked again. At the start and after other
            slices, instead of a power limit; and once the target was reached.
    """

    power_limit_w: float | None = None
    profile_w: tuple[float, ...] = ()
    clock_mhz: int | None = None
    plan: tuple[tuple[int, ...], ...] | None = None
    run: Literal["go", "pause", "stop"] = "go"
    wake_s: float = math.inf
    profile_mhz: tuple[int, ...] = ()
    slice: Slice | None = None

    def __repr__(self) -> str:
        hidden = 0 if self.slice is not None else 1 + (not self.profile_mhz)
        return _format_fields(type(self).__name__, self._fields, self, hidden)


NO_KNOBS: Final = Knobs()


class Running(NamedTuple):
    """A running attempt, or one that is about to run.

    Attributes:
        start: The attempt.
        configuration: The choice of `Configure`.
        measured: One measurement for each profiled power limit, or for each slice so far; empty
            before the profile is done.
        moment: Why `Tune` is asked.
        progress: What the attempt has done so far.
        knobs: What is in force.
        slowdown: Time of an iteration over that at full pace, which its slowest node imposes; of
            a pipeline-parallel job, least time over that at the highest clock, also by a
            straggler elsewhere. 1 without one.
        share_w: Its share of the cluster's power cap, W; infinite without one.
    """

    start: Start
    configuration: Configuration
    measured: tuple[Measurement, ...] = ()
    moment: Moment = "start"
    progress: Progress = NO_PROGRESS
    knobs: Knobs = NO_KNOBS
    slowdown: float = 1.0
    share_w: float = math.inf


class Outcome(NamedTuple):
    """The result of an attempt.

    Attributes:
        start: The attempt.
        batch_size: Its batch size; 0: the job has no configuration, since its log recorded how long
            it ran, or since it is elastic.
        power_limit_w: Its last power limit, W; NaN: none was chosen.
        epochs: Completed epochs; 0 if the cost bound excluded even the first one, or without a
            configuration.
        time_s: Training time as profiled (without the job's own `time_scale`), s.
        energy_j: Training energy as profiled, J.
        cost: The objective's cost of time and energy, J.
        reached: Whether it reached the target.

    Time, energy and cost include its slices. Without a configuration, its options are empty. An
    elastic job has one outcome, at its end, with the training time, energy and cost of all its
    attempts, lost steps included. Live, energy and cost are NaN where nothing measures them.
    """

    start: Start
    batch_size: int
    power_limit_w: float
    epochs: int
    time_s: float
    energy_j: float
    cost: float
    reached: bool
