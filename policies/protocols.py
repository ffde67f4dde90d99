"""The decision points: what a policy is shown, what it answers, and when it is asked.

Views and decisions are plain immutable values. A policy is a subclass of one of the decision points
at the end; it gets the time, a random stream and the objective from a `Context`, and never learns
whether the world around it is simulated or live. Units: seconds, watts, joules.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import PolicyError

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.arrays import Ints
    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.policies.zoo_views import ChildModel, TrainedModel


Demand = tuple[int, int, str | None]
"""Number of GPUs, thousandths of each, and the types allowed (None: any)."""

Key = tuple[int | str | None, ...]
"""Demand and workload, flat: jobs of one key fit, or do not fit, together."""

WHOLE: Final = 1000
"""Thousandths of a GPU."""

Slot = tuple[int, int, int]
"""A node, how many GPUs of it, and which one of those that are shared (`NEW`: untouched ones)."""

Placement = tuple[Slot, ...]
"""Where a job runs. A job of whole GPUs has one slot a node, another one a slot a GPU."""

NEW: Final = -1
"""Stands for GPUs that nobody holds a part of."""


class Job:
    """One submitted training run; it never changes.

    A class of its own and no tuple, because every decision about it reads some of its attributes,
    and compiled code reads those of a class several times faster.

    Attributes:
        job_id: Unique within a run.
        group_id: Ties the recurrences of one recurring job; the job's own id if it does not recur.
        recurrence: 1 for the first of its group, and so on in order of submission.
        workload: What is trained.
        gpus: GPUs that it holds, all at once.
        submit_time_s: When it is submitted.
        duration_s: Recorded run time; NaN if nobody recorded it.
        time_scale: Its run time over the mean of its workload; 1 as profiled.
        number: Its place among the jobs of the run, as they are written; decides ties.
        gpu_milli: Thousandths that it holds of each of its GPUs.
        gpu_type: GPU types that it may run on, with `|` between; None if any.
        user: Who submitted it; None if nobody knows.
        estimate_s: Run time that its user expected; NaN if nobody knows.
        model: Name of the model that it trains, by which the zoo knows its graph; None if it has
            no part in the zoo.
        key: What decides where it fits, under a power cap too.
        gpus_held: GPUs that it holds, parts counted as parts.
    """

    def __init__(
        self,
        job_id: str,
        group_id: str,
        recurrence: int,
        workload: str | None,
        gpus: int,
        submit_time_s: float,
        duration_s: float = math.nan,
        time_scale: float = 1.0,
        number: int = 0,
        gpu_milli: int = WHOLE,
        gpu_type: str | None = None,
        user: str | None = None,
        estimate_s: float = math.nan,
        model: str | None = None,
    ) -> None:
        self.job_id = job_id
        self.group_id = group_id
        self.recurrence = recurrence
        self.workload = workload
        self.gpus = gpus
        self.submit_time_s = submit_time_s
        self.duration_s = duration_s
        self.time_scale = time_scale
        self.number = number
        self.gpu_milli = gpu_milli
        self.gpu_type = gpu_type
        self.user = user
        self.estimate_s = estimate_s
        self.model = model
        self.key: Key = (gpus, gpu_milli, gpu_type, workload)
        self.gpus_held = gpus * gpu_milli / WHOLE

    @property
    def demand(self) -> Demand:
        """What it asks of the cluster: jobs of one demand fit in the same places."""
        return self.gpus, self.gpu_milli, self.gpu_type

    def replace(self, **changes: Any) -> Job:
        """The same job with some attributes changed."""
        return Job(**{name: getattr(self, name) for name in JOB_ATTRIBUTES} | changes)

    def __repr__(self) -> str:
        return f"Job({', '.join(f'{name}={getattr(self, name)!r}' for name in JOB_ATTRIBUTES)})"


JOB_ATTRIBUTES = ("job_id", "group_id", "recurrence", "workload", "gpus", "submit_time_s",
                  "duration_s", "time_scale", "number", "gpu_milli", "gpu_type", "user",
                  "estimate_s", "model")  # fmt: skip
"""What a job is made of; the others follow."""


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
        group_in_flight: How many other jobs of the group have started and not ended.
    """

    job: Job
    attempt: int
    options: Options
    group_in_flight: int

    @property
    def learning_key(self) -> str:
        """Names what is learnt together: jobs of one group on one kind of GPUs."""
        return f"{self.job.group_id}@{self.options.key}"


class Configuration(NamedTuple):
    """How an attempt shall run.

    Attributes:
        batch_size: One of the options' batch sizes.
        power_limit_w: Power limit of each GPU in W; None leaves it to `Tune`.
        cost_bound: The attempt stops before the epoch that would make it cost more (J).
        parent: Model of the zoo whose weights it starts from, by its id; None: from scratch.
        query_s: How long the choice took, while the job holds its GPUs.
    """

    batch_size: int
    power_limit_w: float | None = None
    cost_bound: float = math.inf
    parent: str | None = None
    query_s: float = 0.0


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


@mypyc_attr(allow_interpreted_subclasses=True)
class ClusterView:
    """What `Place` is shown of the cluster; nothing of it may be changed.

    Attributes:
        gpu_types: Names of the GPU types, in the order of the scenario.
        node_type: Index into `gpu_types` by node, shape (nodes,).
        capacity: GPUs by node, shape (nodes,).
    """

    gpu_types: tuple[str, ...]
    node_type: Ints
    capacity: Ints

    @property
    @abstractmethod
    def free(self) -> Ints:
        """GPUs that nobody holds a part of by node, shape (nodes,)."""
        raise NotImplementedError

    @property
    @abstractmethod
    def changes(self) -> Ints:
        """Numbers by node, shape (nodes,), that grow if anything was taken or given back there.

        What was computed of a node of one view holds until its number grows.
        """
        raise NotImplementedError

    @abstractmethod
    def shared(self, node: int) -> Mapping[int, int]:
        """Free thousandths of the GPUs of a node that somebody holds a part of, by their index."""
        raise NotImplementedError

    @abstractmethod
    def types_for(self, job: Job) -> tuple[int, ...]:
        """Indices of the GPU types that a job may run on, ascending."""
        raise NotImplementedError

    @abstractmethod
    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        """The node of a type with the fewest free GPUs, but so many; the first of several."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class CapacityView:
    """What `Select` is shown of the cluster."""

    @property
    @abstractmethod
    def gpus(self) -> int:
        """GPUs of all nodes."""
        raise NotImplementedError

    @property
    @abstractmethod
    def free_gpus(self) -> int:
        """GPUs that nobody holds a part of."""
        raise NotImplementedError

    @abstractmethod
    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Whether a job could start now, as `Place` sees it, if some running jobs were preempted.

        Jobs of one demand and workload fit or do not fit together.
        """
        raise NotImplementedError


class Selection:
    """What changes now: first some running jobs are preempted, then some waiting ones start."""

    def __init__(self, start: tuple[Job, ...] = (), preempt: tuple[Job, ...] = ()) -> None:
        self.start = start
        self.preempt = preempt

    def __repr__(self) -> str:
        return f"Selection({self.start!r}, {self.preempt!r})"


class ZooView(Protocol):
    """What `Configure` is shown of the zoo."""

    def child(self, job: Job) -> ChildModel | None:
        """What a job is about to train; None if it has no part in the zoo."""

    def models(self) -> Sequence[TrainedModel]:
        """What is in the zoo now, in the order of addition."""


class EmptyZoo:
    """The zoo where there is none."""

    def child(self, job: Job) -> ChildModel | None:
        """None."""
        return None

    def models(self) -> Sequence[TrainedModel]:
        """Nothing."""
        return ()


class Context(Protocol):
    """What every policy may ask of the world."""

    @property
    def zoo(self) -> ZooView:
        """Trained models to start from; empty where the scenario has no zoo."""

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


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy:
    """What all policies share: as it stands, nothing is observed and nothing is kept."""

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Learn of a job that was submitted."""

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn from an attempt that ended."""

    def state_dict(self) -> dict[str, Any]:
        """All that was learnt, as JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Configure(Policy):
    """How shall this job run? Asked once before each attempt."""

    @abstractmethod
    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Choose batch size, cost bound and, if the policy sets it itself, the power limit."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Tune(Policy):
    """Which knobs change now? Asked when an attempt starts and when its profile is reported."""

    @abstractmethod
    def tune(self, ctx: Context, running: Running) -> Knobs:
        """Choose a power limit, or ask for a profile."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Select(Policy):
    """Which of the waiting jobs run next, and which of the running ones make room?

    It keeps the queue: the world tells it of every job that begins to wait (`submitted`) and of
    every one that ends. A job that it preempts waits again without being told of. Its state holds
    what it learnt, not the queue: whoever restores it submits the jobs anew.
    """

    @abstractmethod
    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """What changes now. Asked once more, at the same time, until nothing does or waits."""
        raise NotImplementedError

    def on_end(self, ctx: Context, job: Job) -> None:
        """The job, which was running, is over."""

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """A job that it started cannot be placed: it waits on.

        It is not to be started again before the time goes on. This cannot happen to a policy that
        starts one job at a time, and only if it fits.

        Raises:
            PolicyError: Unless a policy knows what to do.
        """
        raise PolicyError(f"job {job.job_id} was started, but does not fit anywhere", "select")

    def wake_s(self, ctx: Context) -> float:
        """When it wants to be asked if nothing happens before, s; infinite if never."""
        return math.inf


@mypyc_attr(allow_interpreted_subclasses=True)
class Place(Policy):
    """Where?"""

    @abstractmethod
    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """The job's nodes, all of one GPU type; empty if it does not fit now.

        It depends on nothing of the job but its demand, and keeps nothing of the call: it is also
        asked what would be if.
        """
        raise NotImplementedError
