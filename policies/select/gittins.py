"""The Gittins index, learnt from completed jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from wattkeeper.policies.protocols import Context, Job
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._preempting import Levelled


class Gittins(Levelled):
    """See `GittinsConfig`.

    The state is the number of jobs that completed in each queue, and their GPU-seconds.
    """

    def __init__(self, config: GittinsConfig) -> None:
        super().__init__()
        self._limits = (*config.limits_gpu_s, math.inf)
        self._ended = [0] * len(self._limits)
        self._ended_gpu_s = [0.0] * len(self._limits)
        self._places = list(range(len(self._limits)))
        self._learnt = False

    def limit_gpu_s(self, level: int) -> float:
        """Upper limit of the queue."""
        return self._limits[level]

    def order_of(self, level: int) -> float:
        """Position of the queue by its index."""
        return self._places[level]

    def turning_level(self, level: int, orders: Sequence[float]) -> int | None:
        """The first queue that is not behind some waiting job while the next queue is."""
        for queue, (place, after) in enumerate(pairwise(self._places[level:]), start=level):
            if any(place <= order < after for order in orders):
                return queue
        return None

    def on_end(self, ctx: Context, job: Job) -> None:
        """Learn the job's service."""
        run = self._runs[job.number]
        super().on_end(ctx, job)
        gpu_s = run.attained_s * run.gpus
        level = next(level for level, limit in enumerate(self._limits) if gpu_s < limit)
        self._ended[level] += 1
        self._ended_gpu_s[level] += gpu_s
        self._learnt = True

    def advance(self, now_s: float) -> None:
        """Reorder the queues if jobs completed, and move jobs that passed a limit."""
        if self._learnt:
            self._learnt = False
            places = self._order()
            if places != self._places:
                self._places = places
                self._reorder()
        super().advance(now_s)

    def state_dict(self) -> dict[str, Any]:
        """Number of jobs that completed in each queue, and their GPU-seconds."""
        return {"ended": list(self._ended), "ended_gpu_s": list(self._ended_gpu_s)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned; the next `select` reorders the queues."""
        self._ended = list(state["ended"])
        self._ended_gpu_s = list(state["ended_gpu_s"])
        self._learnt = True

    def _order(self) -> list[int]:
        best = sorted(range(len(self._limits)), key=lambda level: (-self._index(level), level))
        places = [0] * len(best)
        for place, level in enumerate(best):
            places[level] = place
        return places

    def _index(self, level: int) -> float:
        """Gittins index of a queue, 1/GPU-seconds."""
        lower = self._limits[level - 1] if level else 0.0
        beyond = sum(self._ended[level:])
        index, ended, spent_gpu_s = 0.0, 0, 0.0
        for other in range(level, len(self._limits)):
            ended += self._ended[other]
            spent_gpu_s += self._ended_gpu_s[other] - lower * self._ended[other]
            cost_gpu_s = spent_gpu_s
            if ended < beyond:
                cost_gpu_s += (self._limits[other] - lower) * (beyond - ended)
            if ended:
                index = max(index, ended / cost_gpu_s if cost_gpu_s > 0 else math.inf)
            if ended == beyond:
                break
        return index


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

    point: ClassVar[Point] = "select"
    kind: Literal["gittins"] = "gittins"
    policy = Gittins
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
