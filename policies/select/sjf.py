"""Shortest job first."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.protocols import Context, Job
from wattkeeper.policies.queueing import FirstThatFits
from wattkeeper.policies.registry import Point, PolicyConfig


class SjfConfig(PolicyConfig):
    """The shortest job that fits, by recorded run time; nobody is preempted.

    SJF as in the Alibaba PAI simulator (Weng et al., NSDI '22): the run time is known exactly.
    """

    point: ClassVar[Point] = "select"
    needs_durations: ClassVar[bool] = True
    kind: Literal["sjf"] = "sjf"

    def build(self) -> Sjf:
        """A new policy."""
        return Sjf()


class Sjf(FirstThatFits):
    """See `SjfConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """By recorded run time."""
        return job.duration_s
