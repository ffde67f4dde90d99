"""Least attained service."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._preempting import Levelled


class LasConfig(PolicyConfig):
    """The job with the least attained GPU-service first; those with more are preempted for it.

    Least attained service (Nuyens and Wierman, Performance Evaluation 65, 2008) in two dimensions
    as in Tiresias (Gu et al., NSDI '19), section 3.2: run time times GPUs, without the queues of
    `dlas-gpu`. Jobs with equal service would take turns without end; hence service is compared in
    whole quanta, and jobs of the same number of quanta do not preempt each other. Waiting jobs are
    tried in order of their quanta, ties by submission; one that cannot start is passed over. For
    one that does not fit, running jobs with more quanta are preempted, those with the most first,
    until it does, but none that it does not need.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["las"] = "las"
    quantum_gpu_s: float = Field(3600.0, gt=0)
    """GPU-seconds by which a job must be ahead at least to be preempted: finer is fairer, with more
    preemptions."""

    def build(self) -> Las:
        """A new policy."""
        return Las(self)


class Las(Levelled):
    """See `LasConfig`."""

    def __init__(self, config: LasConfig) -> None:
        super().__init__()
        self._quantum_gpu_s = config.quantum_gpu_s

    def limit_gpu_s(self, level: int) -> float:
        """The next whole quantum, GPU-seconds."""
        return (level + 1) * self._quantum_gpu_s

    def order_of(self, level: int) -> float:
        """By whole quanta."""
        return level

    def turning_level(self, level: int, orders: Sequence[float]) -> int | None:
        """As many quanta as the next waiting job has: one more puts it behind."""
        index = bisect_left(orders, level)
        return int(orders[index]) if index < len(orders) else None
