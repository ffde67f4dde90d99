"""The Gittins index, learnt from completed jobs."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.gittins import Gittins


class GittinsConfig(PolicyConfig):
    """The job with the largest two-dimensional Gittins index first, with preemption.

    Gittins index as in Tiresias (Gu et al., NSDI '19), section 3.2: for a job with attained service
    of a GPU-seconds, it is the largest P(S - a <= d | S > a) / E[min(S - a, d) | S > a] over all d,
    where S is the GPU-service of a job: the probability that it completes within d, over the
    expected service until then. The distribution of S is that of the jobs completed so far. It is
    discretised into queues of attained service: a is the queue's lower limit, and a + d one of the
    limits above it or infinite. Queues are ordered by their index, queues of equal index (at first:
    all) by attained service, the least first; a queue that no completed job is known to have left
    has index 0. Jobs of one queue are in order of submission and do not preempt each other. Waiting
    jobs are tried in this order; jobs that cannot start are skipped. For a job that does not fit,
    running jobs of worse queues are preempted, the worst first, until it fits, but none that is not
    necessary.
    """

    kind: Literal["gittins"] = "gittins"
    policy = Gittins
    plain = "by the chance to end soon (Gittins index)"
    limits_gpu_s: tuple[float, ...] = Field(
        tuple(900.0 * 2**doubling for doubling in range(13)), min_length=1
    )
    """Upper limits of the queues but the last one, GPU-seconds; ascending, positive."""

    @field_validator("limits_gpu_s")
    @classmethod
    def _ascend(cls, limits: tuple[float, ...]) -> tuple[float, ...]:
        if any(upper <= lower for lower, upper in pairwise((0.0, *limits))):
            raise ValueError("the limits must be positive and ascend")
        return limits

    def build(self) -> Gittins:
        """Build the policy."""
        return Gittins(self.limits_gpu_s)
