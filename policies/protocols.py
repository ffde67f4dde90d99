"""The decision points: what a policy is shown, what it answers, and when it is asked.

Views and decisions are plain immutable values. A policy implements one of the protocols below; it
gets the time, a random stream and the objective from a `Context`, and never learns whether the
world around it is simulated or live. Units: seconds, watts, joules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from wattkeeper.policies.errors import PolicyError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from wattkeeper.policies.profile import Objective, Profile


class Job(NamedTuple):
    """One submitted training run.

    Attributes:
        job_id: Unique within a run.
        group_id: Ties the recurrences of one recurring job; the job's own id if it does not recur.
        recurrence: 1 for the first of its group, and so on in order of submission.
        workload: What is trained.
        gpus: GPUs that it holds, all at once.
        submit_time_s: When it is submitted.
        duration_s: Recorded run time; NaN if nobody recorded it.
        time_scale: Its run time over the mean of its workload; 1 as profiled.
    """

    job_id: str
    group_id: str
    recurrence: int
    workload: str
    gpus: int
    submit_time_s: float
    duration_s: float = math.nan
    time_scale: float = 1.0


class Options(NamedTuple):
    """What may be chosen for a workload on a GPU type.

    Attributes:
        key: Names the workload, GPU type and number of GPUs, for journals.
        gpu_type: Name of the GPU type.
        gpus: GPUs of the job.
        batch_sizes: Ascending.
        limits_w: For each batch size the power limits of one GPU in W, ascending.
        default_batch_size: What the workload uses if nobody chooses.
        max_power_w: Largest power limit of the GPU type in W.
        max_epochs: A run is given up after so many epochs.
    """

    key: str
    gpu_type: str
    gpus: int
    batch_sizes: tuple[int, ...]
    limits_w: tuple[tuple[float, ...], ...]
    default_batch_size: int
    max_power_w: float
    max_epochs: int

    def limits(self, batch_size: int) -> tuple[float, ...]:
        """Power limits of a batch size in W, ascending."""
        return self.limits_w[self.batch_sizes.index(batch_size)]

    def check_batch_size(self, batch_size: int, who: str) -> None:
        """Refuse a batch size without a profile.

        Raises:
            PolicyError: If it is not among the options.
        """
        if batch_size not in self.batch_sizes:
            raise PolicyError(
                f"batch size {batch_size} was chosen for {who}, which {self.key} has no profile "
                f"of; there is {', '.join(map(str, self.batch_sizes))}",
                "configure",
            )


class Start(NamedTuple):
    """An attempt of a job that is about to start: its GPUs are found, its configuration is not.

    Attributes:
        job: The job.
        attempt: 1 for the first try of this job, and so on.
        options: What may be chosen.
        group_in_flight: How many other jobs of the group are running.
    """

    job: Job
    attempt: int
    options: Options
    group_in_flight: int

    @property
    def learner(self) -> str:
        """Names what is learnt together: jobs of one group on one kind of GPUs."""
        return f"{self.job.group_id}@{self.options.key}"


class Configuration(NamedTuple):
    """How an attempt shall run.

    Attributes:
        batch_size: One of the options' batch sizes.
        power_limit_w: Power limit of each GPU in W; None leaves it to `Tune`.
        cost_bound: The attempt stops before the epoch that would make it cost more (J).
    """

    batch_size: int
    power_limit_w: float | None = None
    cost_bound: float = math.inf


class Measurement(NamedTuple):
    """What profiling found at one power limit: seconds an epoch, and mean power in W."""

    power_limit_w: float
    time_per_epoch_s: float
    average_power_w: float


class Running(NamedTuple):
    """An attempt that runs, or is about to.

    Attributes:
        start: The attempt.
        configuration: What `Configure` chose.
        measured: What profiling found, a report for each limit; empty before that.
    """

    start: Start
    configuration: Configuration
    measured: tuple[Measurement, ...] = ()


class Knobs(NamedTuple):
    """What changes in a running attempt: a power limit (W), or first a profile of several.

    Attributes:
        power_limit_w: Power limit of each GPU from now on.
        profile_w: Power limits to be measured, in this order, during the first epoch; then `Tune`
            is asked again.
    """

    power_limit_w: float | None = None
    profile_w: tuple[float, ...] = ()


class Outcome(NamedTuple):
    """An attempt that ended.

    Attributes:
        start: The attempt.
        batch_size: The batch size it ran with.
        power_limit_w: The power limit it ran with at last, W.
        epochs: Epochs done; 0 if its cost bound left no room for the first, so that it never ran.
        time_s: Seconds of training, as profiled (without the job's own `time_scale`).
        energy_j: Energy of training, as profiled.
        cost: The objective's cost of both, J.
        reached: Whether it reached the target.
    """

    start: Start
    batch_size: int
    power_limit_w: float
    epochs: int
    time_s: float
    energy_j: float
    cost: float
    reached: bool


class ClusterView(NamedTuple):
    """Free GPUs by node, read only, shape (nodes,)."""

    free: npt.NDArray[np.int64]


class Context(Protocol):
    """What every policy may ask of the world."""

    @property
    def now_s(self) -> float:
        """Time since the run began, s."""

    @property
    def objective(self) -> Objective:
        """What a job costs."""

    def rng(self, name: str) -> np.random.Generator:
        """The policy's random stream of that name; the same name gives the same stream."""

    def foresight(self, start: Start) -> Profile:
        """The profile that the attempt will be replayed from.

        Raises:
            PolicyError: If there is none, as live, or if the policy's class did not say
                `needs_foresight`.
        """


class Stateful(Protocol):
    """What all policies share."""

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn from an attempt that ended."""

    def state_dict(self) -> dict[str, Any]:
        """All that was learnt, as JSON values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""


class Configure(Stateful, Protocol):
    """How shall this job run? Asked once before each attempt."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Choose batch size, cost bound and, if the policy sets it itself, the power limit."""


class Tune(Stateful, Protocol):
    """Which knobs change now? Asked when an attempt starts and when its profile is reported."""

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """Choose a power limit, or ask for a profile."""


class Select(Stateful, Protocol):
    """Which of the waiting jobs runs next? Strict: nobody overtakes a job that does not fit."""

    def rank(self, ctx: Context, job: Job) -> tuple[float, ...]:
        """The job's place in the queue, smallest first; asked once, when it begins to wait.

        Equal ranks keep the order of submission.
        """


class Place(Stateful, Protocol):
    """Where?"""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> tuple[tuple[int, int], ...]:
        """Nodes and the number of GPUs on each; empty if the job does not fit now."""
