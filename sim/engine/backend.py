"""The interface of backends, which run attempts, and that of the world to which they report."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final, Protocol, get_args

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import ZooView
from wattkeeper.policies.points.retain import Retention
from wattkeeper.policies.points.views import Configuration, Measurement, Options, Slice, Start
from wattkeeper.policies.profile import Profile
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import AttemptTotals, Decision, Inheritance, Tuned, Untuned
from wattkeeper.sim.engine.zoo import FinishedModel
from wattkeeper.sim.kernel.hosting import JOB_HOOKS, Capabilities, Host
from wattkeeper.sim.kernel.loop import LoopClient

CLUSTER_HOOKS: Final = JOB_HOOKS | {"on_end", "on_pause", "on_resume", "on_refuse", "on_use"}
"""Hooks that the cluster engine calls."""
SIMULATED: Final = Capabilities(
    "a simulation",
    get_args(Moment),
    CLUSTER_HOOKS,
    signals=True,
    foresight=True,
    queue=True,
    zoo=True,
    slices=True,
    clocks=True,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Backend:
    """Runs attempts and reports to the `Listener`.

    Attributes:
        listener: The world; set after its construction.
        capabilities: What it offers to policies.
    """

    listener: Listener
    capabilities: ClassVar[Capabilities] = SIMULATED

    @abstractmethod
    def options(self, job: Job, gpu_type: str) -> Options:
        """What may be chosen for a job on a GPU type; power limits alone without a workload.

        Raises:
            ProfileMissing: If there is no profile of its workload.
            InputError: If it has no workload, and nothing models power limits of the GPU type.
        """
        raise NotImplementedError

    @abstractmethod
    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """Upper bound of the power of a job on a GPU type, for all choices, W."""
        raise NotImplementedError

    def foresight(self, start: Start) -> Profile:
        """The profile that an attempt will be replayed from, if `capabilities` have foresight."""
        raise NotImplementedError

    def try_parents(self, attempt: Attempt, configuration: Configuration) -> str:
        """The best of the parents that a configuration names, if `capabilities` have a trial.

        The attempt that is prepared then has the parent, and the cost of the trial.
        """
        raise NotImplementedError

    @abstractmethod
    def run(self, attempt: Attempt, inheritance: Inheritance, limit_w: float) -> Execution:
        """Prepare an attempt of a job without a workload; `Execution.go_on` begins it.

        `limit_w`: power limit of each GPU, W; NaN: none was chosen.
        """
        raise NotImplementedError

    @abstractmethod
    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Prepare an attempt of a job with a workload; `Execution.go_on` begins it."""
        raise NotImplementedError

    def discard(self, models: tuple[str, ...]) -> None:
        """Forget models that the zoo refused or evicted, by their ids."""
        return


class ZooBackend(ZooView, Protocol):
    """The zoo of a run: trained models from which jobs start, and to which they add theirs.

    Attributes:
        done: The models that were trained, in order.
        size_bytes: Size of the stored models.
    """

    done: list[FinishedModel]
    size_bytes: int

    def engage(self, host: Host) -> None:
        """Let the host of the run build its `Retain` policy, and tell it of jobs."""

    def work(self, job: Job, parent: str) -> float:
        """The share of a job's training that is left with a parent, which counts as used.

        Raises:
            PolicyError: If the parent is not there, or the job has no model.
        """

    def offer(
        self, job: Job, now_s: float, parent: str | None, saved_s: float, accuracy: float | None
    ) -> Retention:
        """Offer the model that a job trained to the `Retain` policy, and apply its decision.

        Without an accuracy, it is modelled.
        """


class Listener(LoopClient):
    """The interface of the world for reports of a backend.

    The event loop calls it, too: a compiled class has one base.

    Attributes:
        retunes: Whether knobs of running attempts may change.
        wants_epochs: Whether it is told of the end of each epoch.
        wants_slices: Whether it is asked for slices once a target is reached.
    """

    retunes: bool
    wants_epochs: bool
    wants_slices: bool

    @abstractmethod
    def epoch_ended(self, attempt: Attempt) -> None:
        """Called after each epoch of an attempt but the last, if `wants_epochs`.

        The attempt continues afterwards, unless it was paused or stopped meanwhile.
        """

    @abstractmethod
    def signal_arrived(self) -> None:
        """Called when a signal has another value that was not foreseen."""

    @abstractmethod
    def holds(self, attempt: Attempt) -> None:
        """Called when an attempt holds its GPUs without training from now on."""

    @abstractmethod
    def trains(self, attempt: Attempt) -> None:
        """Called when an attempt trains at the limit that was chosen, its power not known yet."""

    @abstractmethod
    def draws(self, attempt: Attempt, power_w: float, since_s: float, settled: bool) -> None:
        """Called when an attempt trains at a power (W) since a time (s).

        Args:
            attempt: The attempt.
            power_w: Power of all its GPUs, W.
            since_s: The time, s: now or before.
            settled: Whether its power limit is chosen, so that a power cap counts this power.
        """

    @abstractmethod
    def measured(self, untuned: Untuned, report: tuple[Measurement, ...]) -> Decision:
        """Called when power limits, or a slice, were measured.

        The returned power limit holds from now on, or the returned slice is to be trained.
        """
        raise NotImplementedError

    @abstractmethod
    def reached(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Slice | None:
        """Called when an attempt reached its target, if `wants_slices`, and after each slice then.

        Args:
            attempt: The attempt.
            report: The slice that was measured; empty at first.

        Returns:
            A slice of another batch size to be trained before the attempt ends; None: it ends.
        """

    @abstractmethod
    def allows(self, attempt: Attempt, power_w: float) -> bool:
        """Whether a power cap allows an attempt to draw so much, W."""
        raise NotImplementedError

    @abstractmethod
    def ran(
        self, attempt: Attempt, time_s: float, energy_j: float, saved_s: float, limit_w: float
    ) -> None:
        """Called when an attempt of a job without a workload ends.

        Args:
            attempt: The attempt.
            time_s: Time of its work, s.
            energy_j: Energy of its work, J.
            saved_s: Time that its parent saved, s.
            limit_w: Power limit of each of its GPUs, W; NaN: none was chosen.
        """

    @abstractmethod
    def ended(self, attempt: Attempt, tuned: Tuned, totals: AttemptTotals) -> None:
        """Called when an attempt of a job with a workload ends."""

    @abstractmethod
    def lost(self, attempt: Attempt, decision: Decision, totals: AttemptTotals) -> None:
        """Called when an attempt failed for a reason other than its configuration.

        It is repeated on its GPUs with the same configuration, and no policy learns of it; but the
        last allowed attempt of a job ends without having reached its target.
        """
