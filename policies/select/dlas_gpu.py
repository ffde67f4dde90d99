"""Discretised two-dimensional least attained service, as Tiresias has it."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._discretised import DlasGpu


class DlasGpuConfig(PolicyConfig):
    """Discretised two-dimensional least attained service; what loses its place is preempted.

    Tiresias (Gu et al., NSDI '19), section 3.3, as its simulator has it under the name `dlas-gpu`.
    Jobs stand in queues, in the first one when they are submitted. Whenever anything happens, each
    running job whose executed whole seconds times its GPUs reach the limit of its queue goes to the
    end of the next queue: one queue at a time, several at once in order of submission. Then the
    queues are walked in order and every job that fits among what is left of the cluster's GPUs is
    granted them; a running job that is granted nothing is preempted. Within each queue those that
    run then stand before those that wait, their order kept. It is woken at the earliest
    `now + (limit - executed seconds) // GPUs` of the jobs that run in a queue with a limit. (The
    simulator subtracts seconds where GPU-seconds were meant, so that jobs of several GPUs are
    demoted late; a job with a part of a GPU is woken for on time.)

    The walk counts GPUs. A job that is granted enough of them and cannot be placed, because of
    nodes or GPU types, waits on first of its queue, and those after it are granted what it leaves.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["dlas-gpu"] = "dlas-gpu"
    limits_gpu_s: tuple[int, ...] = Field((3250, 7200), min_length=1)
    """Attained GPU-seconds at which a job leaves each queue but the last; ascending, positive."""

    @field_validator("limits_gpu_s")
    @classmethod
    def _ascend(cls, limits: tuple[int, ...]) -> tuple[int, ...]:
        if any(upper <= lower for lower, upper in pairwise((0, *limits))):
            raise ValueError("the limits must be positive and ascend")
        return limits

    def build(self) -> DlasGpu:
        """A new policy."""
        return DlasGpu(self.limits_gpu_s)
