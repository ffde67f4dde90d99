"""Discretised two-dimensional least attained service (Tiresias)."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.discretised import DlasGpu


class DlasGpuConfig(PolicyConfig):
    """Discretised two-dimensional least attained service, with preemption.

    Tiresias (Gu et al., NSDI '19), section 3.3, as implemented in its simulator under the name
    `dlas-gpu`. There are several queues; a job enters the first one when it is submitted. At every
    scheduling pass, each running job whose executed whole seconds times its GPUs reach the limit of
    its queue moves to the end of the next queue: one queue at a time, several jobs in order of
    submission. Then the queues are walked in order, and every job that fits into the remaining GPUs
    is granted them; a running job that is granted none is preempted. Within each queue, running
    jobs then precede waiting ones, their order kept. The policy wakes at the earliest
    `now + (limit - executed seconds) // GPUs` of the jobs that run in a queue with a limit. (The
    simulator subtracts seconds where GPU-seconds were meant, so that jobs of several GPUs are
    demoted late; for a job with a fraction of a GPU the policy wakes on time.)

    The walk counts GPUs. A job that is granted enough of them and cannot be placed, because of
    nodes or GPU types, waits at the front of its queue, and the jobs after it are granted the
    remaining GPUs.
    """

    kind: Literal["dlas-gpu"] = "dlas-gpu"
    policy = DlasGpu
    plain = "the least served jobs first, in classes"
    limits_gpu_s: tuple[int, ...] = Field((3250, 7200), min_length=1)
    """Attained GPU-seconds at which a job leaves each queue but the last; ascending, positive."""

    @field_validator("limits_gpu_s")
    @classmethod
    def _ascend(cls, limits: tuple[int, ...]) -> tuple[int, ...]:
        if any(upper <= lower for lower, upper in pairwise((0, *limits))):
            raise ValueError("the limits must be positive and ascend")
        return limits

    def build(self) -> DlasGpu:
        """Build the policy."""
        return DlasGpu(self.limits_gpu_s)
