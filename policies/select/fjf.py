"""The first job that fits."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.protocols import Context, Job
from wattkeeper.policies.queueing import FirstThatFits
from wattkeeper.policies.registry import Point, PolicyConfig


class FjfConfig(PolicyConfig):
    """The first job that fits, in the order of submission; those that do not fit are passed over.

    The Alibaba PAI simulator (Weng et al., NSDI '22) calls this FIFO; Tiresias (Gu et al., NSDI
    '19) has it as `fjf`, first job that fits.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["fjf"] = "fjf"

    def build(self) -> Fjf:
        """A new policy."""
        return Fjf()


class Fjf(FirstThatFits):
    """See `FjfConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """By time of submission."""
        return job.submit_time_s
