"""The base of all policies, and what they may ask of a run.

Nothing in a `Context` tells a policy whether the run is simulated or live.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Outcome, Start

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.policies.signals import SignalView
    from wattkeeper.policies.zoo_views import ChildModel, TrainedModel


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
