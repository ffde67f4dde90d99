"""What carries decisions out: the seam between the world and its clock's reality."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from mypy_extensions import mypyc_attr

from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import Job, Measurement, Options, Start, ZooView
from wattkeeper.policies.retaining import Retention
from wattkeeper.sim.attempts.attempt import (
    Attempt,
    AttemptTotals,
    Decision,
    Execution,
    Inheritance,
    Tuned,
    Untuned,
)
from wattkeeper.sim.engine.event_loop import Driven
from wattkeeper.sim.engine.zoo import FinishedModel


@mypyc_attr(allow_interpreted_subclasses=True)
class Backend:
    """Carries attempts out, and reports to the `Listener` what becomes of them.

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
    def run(self, attempt: Attempt, inheritance: Inheritance) -> Execution:
        """Prepare an attempt of a job without a workload; `Execution.go_on` begins it."""
        raise NotImplementedError

    @abstractmethod
    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Prepare an attempt of a job with a workload; `Execution.go_on` begins it."""
        raise NotImplementedError


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

    def offer(self, job: Job, now_s: float, parent: str | None, saved_s: float) -> Retention:
        """Offer the model that a job trained to the `Retain` policy, and apply its decision."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Listener(Driven):
    """The world, as a backend tells it what happens.

    The environment drives it: a compiled class has one base.
    """

    @abstractmethod
    def holds(self, attempt: Attempt) -> None:
        """The attempt holds its GPUs without training from now on."""

    @abstractmethod
    def draws(self, attempt: Attempt, power_w: float, since_s: float, settled: bool) -> None:
        """The attempt trains and draws so much, W, since a time (s).

        Args:
            attempt: The attempt.
            power_w: What all its GPUs draw, W.
            since_s: Since when, s: now or before.
            settled: Whether its power limit is chosen, so that a power cap counts this power.
        """

    @abstractmethod
    def measured(self, untuned: Untuned, report: tuple[Measurement, ...]) -> Tuned:
        """Profiling found this; the answer holds from now on."""
        raise NotImplementedError

    @abstractmethod
    def ran(self, attempt: Attempt, time_s: float, energy_j: float, saved_s: float) -> None:
        """An attempt of a job without a workload is over, after so much time and energy.

        Args:
            attempt: The attempt.
            time_s: Seconds that it worked.
            energy_j: Energy of that, J.
            saved_s: Seconds that its parent saved it.
        """

    @abstractmethod
    def ended(self, attempt: Attempt, tuned: Tuned, totals: AttemptTotals) -> None:
        """An attempt of a job with a workload is over, after so much training."""

    @abstractmethod
    def lost(self, attempt: Attempt, decision: Decision, totals: AttemptTotals) -> None:
        """The attempt died of something else than what was chosen, after so much training.

        It is tried again on its GPUs as it was, and no policy learns of it; but the last attempt
        that a job is allowed ends, without having reached its target.
        """
