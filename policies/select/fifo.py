"""First in, first out."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.protocols import Context, Job
from wattkeeper.policies.queueing import InOrder
from wattkeeper.policies.registry import Point, PolicyConfig


class FifoConfig(PolicyConfig):
    """Jobs start in the order of their submission; only the head of the queue may start."""

    point: ClassVar[Point] = "select"
    kind: Literal["fifo"] = "fifo"

    def build(self) -> Fifo:
        """A new policy."""
        return Fifo()


class Fifo(InOrder):
    """See `FifoConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """By time of submission."""
        return job.submit_time_s
