"""The interface of the elastic jobs of a world, which gain and lose nodes while they run."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.sim.attempts.attempt import Attempt, Execution


class Elasticity(Protocol):
    """The elastic jobs of a world."""

    @abstractmethod
    def begin(self) -> None:
        """Called when the run begins."""

    @abstractmethod
    def has(self, job: Job) -> bool:
        """Whether a job is elastic."""

    @abstractmethod
    def place(self, job: Job, cluster: ClusterView) -> Placement:
        """The whole nodes that a job starts on; empty: too few are free."""

    @abstractmethod
    def start(self, attempt: Attempt) -> Execution:
        """The training of a job that got its first GPUs."""

    @abstractmethod
    def notice(self, node: int, now_s: float) -> None:
        """Called when a node announces that it will go down."""

    @abstractmethod
    def down(self, node: int, was_free: bool) -> None:
        """Called when a node is down; `was_free`: no job was on it, and jobs could start there."""

    @abstractmethod
    def lose(self, execution: Execution, node: int) -> tuple[float, float]:
        """Called when a node of an elastic job goes down.

        Returns:
            GPU time (s) and energy (J) of the steps that are lost.
        """

    @abstractmethod
    def preempt(self, execution: Execution) -> None:
        """Take all GPUs from an elastic job, whose finished steps are kept."""

    @abstractmethod
    def end_stopped(self) -> None:
        """Called when nothing is left to happen: end jobs whose nodes are too few to train."""

    @abstractmethod
    def make_room(self) -> None:
        """Called before `Select` is asked: let elastic jobs give nodes to those that wait."""

    @abstractmethod
    def settle(self) -> None:
        """Called after `Select` was asked: let elastic jobs take free nodes and choose shapes."""
