"""Decision points: the views that a policy receives, the decisions that it returns, and when.

Views and decisions are immutable values. A policy is a subclass of one of the decision points at
the end of this module. A `Context` gives it the time, a random stream and the objective; nothing
tells it whether the world is simulated or live. Units: seconds, watts, joules.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.immutable import make_immutable
from wattkeeper.policies.moments import NO_PROGRESS, Moment, Progress

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.arrays import Floats, Ints
    from wattkeeper.policies.pipeline.task import PipelineTask
    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.policies.signals import SignalView
    from wattkeeper.policies.zoo_views import ChildModel, TrainedModel


Demand = tuple[int, int, str | None]
"""Number of GPUs, thousandths of each GPU, and the allowed GPU types (None: any)."""

Key = tuple[float | str | None, ...]
"""Demand, workload and any reserved power as a flat tuple; all jobs of one key fit in the cluster,
or none does."""

WHOLE: Final = 1000
"""Thousandths of a whole GPU."""

Slot = tuple[int, int, int]
"""Node, number of GPUs, and index of the shared GPU (`NEW`: GPUs that are not shared yet)."""

Placement = tuple[Slot, ...]
"""The slots of a job: one slot a node for whole GPUs, one slot a GPU for fractions of GPUs."""

NEW: Final = -1
"""Index that stands for GPUs of which no fraction is allocated."""


JOB_ATTRIBUTES = (
    "job_id",
    "group_id",
    "recurrence",
    "workload",
    "gpus",
    "submit_time_s",
    "duration_s",
    "time_scale",
    "number",
    "gpu_milli",
    "gpu_type",
    "user",
    "estimate_s",
    "model",
    "recorded_start_s",
    "reserved_w",
    "deadline_s",
)
"""The attributes that a job is constructed from; the others are derived."""


@mypyc_attr(acyclic=True)  # it refers to texts and numbers alone
class Job:
    """One submitted training run; immutable, also for policies.

    A plain class instead of a tuple: every decision reads some of its attributes, and compiled code
    reads those of a class several times faster.

    Attributes:
        job_id: Unique within a run.
        group_id: Shared by the recurrences of one recurring job; else the job's own id.
        recurrence: Number of the recurrence within its group, from 1, in order of submission.
        workload: Name of what is trained; None if unknown.
        gpus: Number of GPUs, allocated all at once (gang scheduling).
        submit_time_s: Time of submission, s.
        duration_s: Recorded run time, s; NaN if unknown.
        time_scale: Run time over the mean run time of the workload; 1 as profiled.
        number: Position among the jobs of the run as they are written; breaks ties.
        gpu_milli: Thousandths of each GPU that are allocated.
        gpu_type: Allowed GPU types, separated by `|`; None if any.
        user: The submitting user; None if unknown.
        estimate_s: The user's estimate of the run time, s; NaN if unknown.
        model: Name of the trained model, which identifies its graph in the zoo; None if the job
            does not use the zoo.
        recorded_start_s: When it started in the log that it comes from, s; NaN if unknown.
        reserved_w: Power of all its GPUs that counts under a power cap until a limit is chosen, W;
            0: the most that its workload, or a job without one, may draw.
        deadline_s: When it should have ended, s; NaN if it has no deadline.
        gpus_held: Allocated GPUs, fractions included.
    """

    __slots__ = (*JOB_ATTRIBUTES, "gpus_held")

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
        recorded_start_s: float = math.nan,
        reserved_w: float = 0.0,
        deadline_s: float = math.nan,
    ) -> None:
        self.job_id: Final = job_id
        self.group_id: Final = group_id
        self.recurrence: Final = recurrence
        self.workload: Final = workload
        self.gpus: Final = gpus
        self.submit_time_s: Final = submit_time_s
        self.duration_s: Final = duration_s
        self.time_scale: Final = time_scale
        self.number: Final = number
        self.gpu_milli: Final = gpu_milli
        self.gpu_type: Final = gpu_type
        self.user: Final = user
        self.estimate_s: Final = estimate_s
        self.model: Final = model
        self.recorded_start_s: Final = recorded_start_s
        self.reserved_w: Final = reserved_w
        self.deadline_s: Final = deadline_s
        self.gpus_held: Final = gpus * gpu_milli / WHOLE

    @property
    def demand(self) -> Demand:
        """Resources that the job requests; jobs of equal demand fit in the same places."""
        return self.gpus, self.gpu_milli, self.gpu_type

    @property
    def key(self) -> Key:
        """Demand, workload and reserved power: decides where the job fits, also under a cap."""
        demand: Key = (self.gpus, self.gpu_milli, self.gpu_type, self.workload)
        return (*demand, self.reserved_w) if self.reserved_w else demand

    def replace(self, **changes: Any) -> Job:
        """Return a copy with some attributes changed."""
        return Job(**{name: getattr(self, name) for name in JOB_ATTRIBUTES} | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Job, tuple(getattr(self, name) for name in JOB_ATTRIBUTES)

    def __repr__(self) -> str:
        return f"Job({', '.join(f'{name}={getattr(self, name)!r}' for name in JOB_ATTRIBUTES)})"


make_immutable(Job)


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

    def inherit(self, parent: str | None, query_s: float = 0.0) -> Configuration:
        """The default batch size with a parent's id; None: it starts from scratch."""
        return Configuration(self.options.default_batch_size, parent=parent, query_s=query_s)


def _format_fields(
    name: str, fields: tuple[str, ...], values: tuple[object, ...], hidden: int
) -> str:
    """A named tuple in words; its last fields, which came later, may be left out.

    Journals have a digest of these words: they stay what they were where the fields are not used.
    """
    number = len(fields) - hidden
    pairs = zip(fields[:number], values[:number], strict=True)
    return f"{name}({', '.join([f'{field}={value!r}' for field, value in pairs])})"


class Configuration(NamedTuple):
    """The configuration of an attempt.

    Attributes:
        batch_size: One of the options' batch sizes.
        power_limit_w: Power limit of each GPU in W; None leaves the choice to `Tune`.
        cost_bound: The attempt ends before the epoch that would raise its cost above this bound, J.
        parent: Id of the zoo's model whose weights it starts from; None: it starts from scratch.
        query_s: Duration of the parent search in s, during which the job holds its GPUs.
        clock_mhz: Locked clock of each GPU in MHz, with the highest power limit; 0: free clocks.
    """

    batch_size: int
    power_limit_w: float | None = None
    cost_bound: float = math.inf
    parent: str | None = None
    query_s: float = 0.0
    clock_mhz: int = 0

    def __repr__(self) -> str:
        return _format_fields(type(self).__name__, self._fields, self, not self.clock_mhz)


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
        batch_size: Its batch size.
        power_limit_w: Its last power limit, W.
        epochs: Completed epochs; 0 if the cost bound excluded even the first one.
        time_s: Training time as profiled (without the job's own `time_scale`), s.
        energy_j: Training energy as profiled, J.
        cost: The objective's cost of time and energy, J.
        reached: Whether it reached the target.

    Time, energy and cost include its slices.
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
    """Read-only view of the cluster for `Place`.

    Attributes:
        gpu_types: Names of the GPU types, in the order of the scenario.
        node_type: Index into `gpu_types` by node, shape (nodes,).
        capacity: GPUs by node, shape (nodes,).
        racks: Number of the rack by node, shape (nodes,); -1 if it is not known.
        deadlines_s: When a node is expected to go down, as it announced, s, shape (nodes,);
            infinite if it did not.
        slowdowns: Time of an iteration over that at full pace by node, shape (nodes,): 1 or more.
    """

    gpu_types: tuple[str, ...]
    node_type: Ints
    capacity: Ints
    racks: Ints
    deadlines_s: Floats
    slowdowns: Floats

    @property
    @abstractmethod
    def free(self) -> Ints:
        """Unallocated GPUs by node, shared ones not included, shape (nodes,)."""
        raise NotImplementedError

    @property
    @abstractmethod
    def changes(self) -> Ints:
        """Change counters by node, shape (nodes,): they grow with every allocation and release.

        What was computed for a node remains valid until its counter changes.
        """
        raise NotImplementedError

    @abstractmethod
    def shared(self, node: int) -> Mapping[int, int]:
        """Free thousandths of the shared GPUs of a node, by GPU index."""
        raise NotImplementedError

    @abstractmethod
    def types_for(self, job: Job) -> tuple[int, ...]:
        """Indices of the GPU types that a job may run on, ascending."""
        raise NotImplementedError

    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        """Best fit: the node of a type with the fewest free GPUs, but at least `gpus`.

        Ties go to the lowest number; None if there is no such node.
        """
        free = self.free
        (nodes,) = ((free >= gpus) & (self.node_type == gpu_type)).nonzero()
        return int(nodes[free[nodes].argmin()]) if len(nodes) else None

    def first_node(self, gpus: int, gpu_type: int) -> int | None:
        """First fit: the first node of a type with at least `gpus` free; None if there is none."""
        fitting = (self.free >= gpus) & (self.node_type == gpu_type)
        node = int(fitting.argmax())
        return node if fitting[node] else None


@mypyc_attr(allow_interpreted_subclasses=True)
class CapacityView:
    """Read-only view of the cluster's free capacity for `Select`."""

    @property
    @abstractmethod
    def gpus(self) -> int:
        """GPUs of all nodes."""
        raise NotImplementedError

    @property
    @abstractmethod
    def free_gpus(self) -> int:
        """Unallocated GPUs, shared ones not included."""
        raise NotImplementedError

    @abstractmethod
    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Whether `Place` finds a place for a job now, if the jobs of `without` were preempted.

        The answer is the same for all jobs of one demand and workload, unless `Place` has a
        `wake_s`. What was started and refused does not fit until the time advances or something is
        given back.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def growths(self) -> int:
        """Number that changes when more may fit for another reason than that a job gave GPUs back.

        Policies are told of each job that gives its GPUs back, or preempt it themselves. As long as
        neither that nor this number changes, what did not fit does not fit.
        """
        raise NotImplementedError


class Selection:
    """A scheduling decision: running jobs to preempt, then waiting jobs to start, in order."""

    def __init__(self, start: tuple[Job, ...] = (), preempt: tuple[Job, ...] = ()) -> None:
        self.start = start
        self.preempt = preempt

    def __repr__(self) -> str:
        return f"Selection({self.start!r}, {self.preempt!r})"


class ZooView(Protocol):
    """Read-only view of the model zoo for `Configure`."""

    def child(self, job: Job) -> ChildModel | None:
        """The model that a job trains; None if the job does not use the zoo."""

    def models(self) -> Sequence[TrainedModel]:
        """The models now in the zoo, in order of addition."""

    def work_left(self, job: Job, parent: str) -> float:
        """The share of a job's training that is left with a parent, as expected, 0 to 1.

        1 where nothing is known of it.

        Raises:
            PolicyError: If the parent is not there, or the job has no model.
        """


class EmptyZoo:
    """The zoo where there is none."""

    def child(self, job: Job) -> ChildModel | None:
        """None."""
        return None

    def models(self) -> Sequence[TrainedModel]:
        """Nothing."""
        return ()

    def work_left(self, job: Job, parent: str) -> float:
        """It has no parent.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError(
            f"{job.job_id} shall start from {parent}, but there is no zoo", "configure"
        )


class Context(Protocol):
    """What every policy may ask of the world."""

    @property
    def zoo(self) -> ZooView:
        """Trained models to start from; empty where the scenario has no zoo."""

    @property
    def now_s(self) -> float:
        """Time since the start of the run, s."""

    @property
    def objective(self) -> Objective:
        """The cost function of the run."""

    def rng(self, name: str) -> np.random.Generator:
        """The policy's random stream of that name; equal names give the same stream."""

    def signal(self, name: str) -> SignalView:
        """A signal of the scenario.

        Raises:
            PolicyError: If the policy's config does not declare it (`signals`).
        """

    def foresight(self, start: Start) -> Profile:
        """The profile from which the attempt will be replayed.

        Raises:
            PolicyError: If there is none, as in a live run, or if the policy's config does not
                declare `needs_foresight`.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy:
    """Base of all policies: observes nothing and has no state."""

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Called when a job is submitted."""

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Called when an attempt has ended."""

    def state_dict(self) -> dict[str, Any]:
        """The learnt state as JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Configure(Policy):
    """How does this job run? Asked once before each attempt."""

    @abstractmethod
    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Choose batch size, cost bound, parent, and power limit if the config has `sets_power`."""
        raise NotImplementedError

    def on_loss(self, ctx: Context, start: Start) -> None:
        """Called when an attempt was lost to an accident and is not repeated: it has no outcome."""

    def tuner(self) -> Tune:
        """The `Tune` policy that shares the state of this one, if the config says `tunes`.

        This one saves the state of both.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Tune(Policy):
    """Which knobs change now? Asked at the moments that the policy's config names (`moments`)."""

    @abstractmethod
    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """Choose knobs; None changes nothing.

        At the start, the answer is a power limit, or a request to profile some first.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Select(Policy):
    """Which waiting jobs start now, and which running jobs are preempted for them?

    The policy maintains the queue itself: it is told of every job that begins to wait (`on_submit`)
    and of every job that ends (`on_end`). A job that it preempts waits again without such a call.
    Its state holds what it learnt, not the queue: after a restore, all jobs are submitted again.
    Where partitions have queues of their own, each has a policy, which knows its queue alone.
    """

    @abstractmethod
    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """Decide what changes now; asked again until nothing changes or no job waits."""
        raise NotImplementedError

    def on_end(self, ctx: Context, job: Job) -> None:
        """Called when a running job has ended."""

    def on_pause(self, ctx: Context, job: Job) -> None:
        """Called when `Tune` paused a running job, which gave up its GPUs; by default as an end."""
        self.on_end(ctx, job)

    def on_resume(self, ctx: Context, job: Job) -> None:
        """Called when a paused job waits for GPUs to go on; by default as a submission."""
        self.on_submit(ctx, job)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Called when a started job cannot be placed; it waits on.

        The job must not be started again before it fits. Never called for a policy that starts one
        job at a time, and only if it fits.

        Raises:
            PolicyError: Unless the policy overrides this method.
        """
        raise PolicyError(f"job {job.job_id} was started, but does not fit anywhere", "select")

    def wake_s(self, ctx: Context) -> float:
        """When to ask again if nothing happens before, s; infinite for never."""
        return math.inf


@mypyc_attr(allow_interpreted_subclasses=True)
class Place(Policy):
    """On which GPUs does this job run?"""

    @abstractmethod
    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Choose slots on nodes of one GPU type; empty if the job does not fit now.

        The choice must depend on nothing but the job's demand, unless the policy overrides
        `wake_s`, and the call must not change the policy's state: it is also asked hypothetically,
        by `CapacityView.fits`.
        """
        raise NotImplementedError

    def wake_s(self, ctx: Context) -> float:
        """When a job that did not fit may fit although nothing was given back, s; infinite: never.

        A policy that overrides this is asked anew about each job whenever jobs are scheduled, and
        its choice may depend on the whole job and on the time. (What fits is otherwise the same for
        all jobs of one demand, until GPUs or power are taken or given back.)
        """
        return math.inf
