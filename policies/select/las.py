"""Least attained service."""

from typing import Literal

from pydantic import Field

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.las import Las


class LasConfig(PolicyConfig):
    """Least attained GPU-service first, with preemption.

    Least attained service (Nuyens and Wierman, Performance Evaluation 65, 2008) in two dimensions
    as in Tiresias (Gu et al., NSDI '19), section 3.2: run time times GPUs, without the queues of
    `dlas-gpu`. Jobs of equal service would preempt each other without end; hence service is
    compared in whole quanta, and jobs with the same number of quanta do not preempt each other.
    Waiting jobs are tried in order of their quanta, ties by submission; jobs that cannot start are
    skipped. For a job that does not fit, running jobs with more quanta are preempted, those with
    the most first, until it fits, but none that is not necessary.
    """

    kind: Literal["las"] = "las"
    policy = Las
    plain = "the least served job first"
    quantum_gpu_s: float = Field(3600.0, ge=0.001)
    """Smallest difference in GPU-seconds that leads to a preemption: a smaller quantum is fairer,
    with more preemptions."""

    def build(self) -> Las:
        """Build the policy."""
        return Las(self.quantum_gpu_s)
