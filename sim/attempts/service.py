"""What runs jobs of a kind of its own, in place of the backend."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.sim.attempts.attempt import Attempt, Execution


class JobService(Protocol):
    """Places and runs jobs that gain and lose nodes while they run."""

    @abstractmethod
    def place(self, job: Job, cluster: ClusterView) -> Placement:
        """The GPUs that a job starts on; empty: too few are free."""

    @abstractmethod
    def start(self, attempt: Attempt) -> Execution:
        """The training of a job that got its first GPUs."""

    @abstractmethod
    def lose(self, execution: Execution, node: int) -> tuple[float, float]:
        """Let a job that lost a node continue without it, or end.

        Returns:
            GPU time (s) and energy (J) of the steps that are lost.
        """

    @abstractmethod
    def preempt(self, execution: Execution) -> None:
        """Take all GPUs from a job, whose finished steps are kept."""
