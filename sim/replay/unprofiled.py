"""Power of jobs without a profile, modelled or measured, and what a power limit changes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Options
from wattkeeper.policies.profile import Curve, Profile


@mypyc_attr(allow_interpreted_subclasses=True)
class LimitModel:
    """How a power limit changes power and speed of a job on a GPU type.

    Attributes:
        limits_w: The limits that the GPU type allows, W, ascending.
    """

    limits_w: tuple[float, ...]

    @abstractmethod
    def under_limit(self, limit_w: float, busy_w: float) -> tuple[float, float]:
        """Power (W) and relative speed of a GPU under a limit (W), given its power without one."""
        raise NotImplementedError


class UnprofiledPower:
    """Power of jobs without a profile.

    Args:
        busy_w: Power of a GPU that such a job holds, by type, W; None: not stated.
        limits: Effect of power limits, by GPU type.
        measured_w: Measured power of all GPUs of a job, W, by `Job.number`; NaN: not measured.
            Empty: no job was measured.
    """

    def __init__(
        self,
        busy_w: Mapping[str, float | None],
        limits: Mapping[str, LimitModel] | None = None,
        measured_w: Sequence[float] = (),
    ) -> None:
        self._busy_w = busy_w
        self._limits = limits or {}
        self._measured_w = list(measured_w)
        self._is_measured = bool(measured_w)

    def power_w(self, job: Job, gpu_type: str) -> float:
        """Power of the GPUs of a job without a limit, W.

        A part of a GPU draws that part of the power of the whole one.

        Raises:
            InputError: If it was not measured, and the cluster does not state it.
        """
        if self._is_measured:
            measured_w = self._measured_w[job.number]
            if not math.isnan(measured_w):
                return measured_w
        each_w = self._busy_w[gpu_type]
        if each_w is None:
            raise InputError(
                f"job {job.job_id} has no workload, so its power comes from a model: say what a "
                f"busy {gpu_type} draws (busy_power_w)"
            )
        return each_w * job.gpus_held

    def is_limited(self, gpu_type: str) -> bool:
        """Whether there is a model of power limits of a GPU type."""
        return gpu_type in self._limits

    def options(self, job: Job, gpu_type: str) -> Options:
        """The power limits that may be chosen for a job.

        Raises:
            InputError: If there is no model of the GPU type.
        """
        model = self._limits.get(gpu_type)
        if model is None:
            raise InputError(f"nothing models what a power limit changes on {gpu_type}")
        return limit_options(gpu_type, job.gpus, model.limits_w)

    def under_limit(self, job: Job, gpu_type: str, limit_w: float) -> tuple[float, float]:
        """Power of the GPUs of a job (W), and its speed relative to that without a limit.

        `limit_w`: of each GPU, W; NaN: none.
        """
        power_w = self.power_w(job, gpu_type)
        if math.isnan(limit_w):
            return power_w, 1.0
        each_w, speed = self._limits[gpu_type].under_limit(limit_w, power_w / job.gpus_held)
        return each_w * job.gpus_held, speed

    def profile(self, job: Job, gpu_type: str) -> Profile:
        """What the model says of a job as a profile: one epoch is a second without a limit.

        Raises:
            InputError: If there is no model of the GPU type.
        """
        options = self.options(job, gpu_type)
        return Profile(
            options.key,
            gpu_type,
            job.gpus,
            math.nan,
            options.max_epochs,
            UNKNOWN_BATCH,
            options.max_power_w,
            {UNKNOWN_BATCH: self.curve(job, gpu_type)},
        )

    def curve(self, job: Job, gpu_type: str) -> Curve:
        """Power and time of a job by limit; an epoch is a second without a limit.

        Raises:
            InputError: If there is no model of the GPU type.
        """
        limits_w = self.options(job, gpu_type).limits_w[0]
        points = [self.under_limit(job, gpu_type, limit_w) for limit_w in limits_w]
        power_w = tuple([power_w for power_w, _ in points])
        time_s = tuple([1 / speed for _, speed in points])
        return Curve(UNKNOWN_BATCH, limits_w, time_s, power_w, (math.inf,))


UNKNOWN_BATCH = 1
"""Batch size in the options of a job without a profile."""


def limit_options(gpu_type: str, gpus: int, limits_w: tuple[float, ...]) -> Options:
    """The power limits of a GPU type as options; the batch size is unknown, and called 1."""
    return Options(
        gpu_type, gpu_type, gpus, (UNKNOWN_BATCH,), (limits_w,), UNKNOWN_BATCH, limits_w[-1], 1
    )
