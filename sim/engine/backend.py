"""What carries decisions out: the seam between the world and its clock's reality."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import (
    Configuration,
    Job,
    Knobs,
    Measurement,
    Options,
    Placement,
    Running,
    Start,
    ZooView,
)
from wattkeeper.policies.retaining import Retention
from wattkeeper.sim.engine.attempt import Decision
from wattkeeper.sim.engine.clock import Driven
from wattkeeper.sim.engine.zoo import FinishedModel


class Attempt:
    """A try of a job, from its start to its end.

    Attributes:
        job: The job.
        number: 1 for the first try of this job, and so on.
        placement: The GPUs it holds, or held before it was preempted.
        where: The same by its index in the journal.
        gpu_type: Their type.
        begun_s: When it first held GPUs.
        start: The view that `Configure` was shown; None where there is nothing to choose.
        configuration: What `Configure` chose; None where there was nothing to choose.
        power_limit_w: The limit it runs at, W; None until `Tune` chose it.
        profiled: Whether its power limits were profiled.
        idle: Whether it holds its GPUs without training.
        trained: Whether it has trained, so that it must be restored if it is preempted.
        power: What it draws now beyond idle GPUs, in `recorder.UNITS_PER_WATT`.
        first_power: What it drew from its beginning.
        overhead_s: Seconds that it held GPUs without training.
        overhead_j: Energy of that.
        parent: Model of the zoo whose weights it started from; None: from scratch.
        work: The share of the training that is left to do with these weights.
        query_s: What is left of the time that the choice of the parent takes.
        querying: Whether it holds its GPUs for that now.
        saved_epochs: Epochs that the parent saved it.
        saved_s: Seconds of training that the parent saved it.
        preempted_s: When it lost its GPUs; None while it holds them.
        preemptions: How often it did.
        plan: The backend's own.
    """

    decision: Decision | None = None
    start: Start | None = None
    configuration: Configuration | None = None
    power_limit_w: float | None = None
    profiled = False
    idle = False
    trained = False
    power = 0
    first_power = 0
    overhead_s = 0.0
    overhead_j = 0.0
    parent: str | None = None
    work = 1.0
    query_s = 0.0
    querying = False
    saved_epochs = 0.0
    saved_s = 0.0
    preempted_s: float | None = None
    preemptions = 0
    plan: Any = None

    def __init__(
        self,
        job: Job,
        number: int,
        placement: Placement,
        where: int,
        gpu_type: str,
        begun_s: float,
    ) -> None:
        self.job = job
        self.number = number
        self.placement = placement
        self.where = where
        self.gpu_type = gpu_type
        self.begun_s = begun_s

    def running(self, measured: tuple[Measurement, ...] = ()) -> Running:
        """The view for `Tune`."""
        assert self.start is not None
        assert self.configuration is not None
        return Running(self.start, self.configuration, measured)


@mypyc_attr(allow_interpreted_subclasses=True)
class Backend:
    """Runs attempts and reports to the `Listener` what becomes of them.

    Attributes:
        listener: The world; set once it is made.
    """

    listener: Listener

    @abstractmethod
    def options(self, job: Job, gpu_type: str) -> Options:
        """What may be chosen for a job with a workload on a GPU type.

        Raises:
            ProfileMissing: If nothing is known of it.
        """
        raise NotImplementedError

    @abstractmethod
    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """The most that a job draws on a GPU type, whatever is chosen, W."""
        raise NotImplementedError

    @abstractmethod
    def foresight(self, start: Start) -> Profile:
        """The profile that an attempt will be replayed from.

        Raises:
            PolicyError: If the future cannot be known.
        """
        raise NotImplementedError

    @abstractmethod
    def begin(self, attempt: Attempt, knobs: Knobs | None, delay_s: float) -> None:
        """Start an attempt; it reports on its own from then on.

        It holds its GPUs idle for a delay (s) first.
        """

    @abstractmethod
    def pause(self, attempt: Attempt) -> None:
        """Stop an attempt at once; what it did is kept."""

    @abstractmethod
    def resume(self, attempt: Attempt, delay_s: float) -> None:
        """Go on with a paused attempt, on the GPUs that it now holds, after a delay (s)."""


class ZooBackend(ZooView, Protocol):
    """Trained models that the world lets jobs start from, and adds to.

    Attributes:
        policy: Kind of the `Retain` policy.
        done: The models that were trained, in order.
        size_bytes: What is in it.
    """

    policy: str
    done: list[FinishedModel]
    size_bytes: int

    def work(self, job: Job, parent: str) -> float:
        """The share of a job's training that is left with a parent, which counts as used.

        Raises:
            PolicyError: If the parent is not there, or the job has no model.
        """

    def finished(self, job: Job, now_s: float, parent: str | None, saved_s: float) -> Retention:
        """Offer the model that a job trained to the `Retain` policy, and do what it says."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Listener(Driven):
    """The world, as a backend tells it what happens.

    The clock drives it: a compiled class has one base.
    """

    @abstractmethod
    def draws(self, attempt: Attempt, power_w: float, since_s: float | None = None) -> None:
        """The attempt draws so much, W, from now on; or has done so since a time (s)."""

    @abstractmethod
    def measured(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Knobs:
        """Profiling found this; the answer holds from now on."""
        raise NotImplementedError

    @abstractmethod
    def ended(
        self, attempt: Attempt, epochs: int | None, time_s: float, energy_j: float, reached: bool
    ) -> None:
        """The attempt is over, after so much training as profiled."""

    @abstractmethod
    def lost(self, attempt: Attempt, epochs: int, time_s: float, energy_j: float) -> None:
        """The attempt died of something else than what was chosen, after so much training.

        It is tried again on its GPUs as it was, and no policy learns of it; but the last attempt
        that a job is allowed ends, without having reached its target.
        """


Done = Callable[[Attempt], None]
