"""Specification of synthetic profiles: GPU types, workloads, a seed."""

import math
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from wattkeeper.policies.described import Described

Name = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(ge=1, lt=2**31)]


class Spec(Described):
    """Base of the specifications: frozen, no unknown fields, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GpuSpec(Spec):
    """A GPU type."""

    name: Name
    """Its name."""
    idle_power_w: PositiveFloat
    """Power in W at rest; below every limit."""
    peak_power_w: PositiveFloat
    """Power in W at full utilisation without a cap."""
    min_limit_w: PositiveFloat
    """Smallest power limit in W."""
    max_limit_w: PositiveFloat
    """Largest power limit in W; always one of the limits."""
    limit_step_w: PositiveFloat = 25.0
    """Distance in W between limits."""
    relative_speed: PositiveFloat = 1.0
    """Throughput over that of the workload's own numbers."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.idle_power_w < self.min_limit_w <= self.max_limit_w:
            raise ValueError("idle_power_w < min_limit_w <= max_limit_w is needed")
        if not self.idle_power_w < self.peak_power_w:
            raise ValueError("idle_power_w < peak_power_w is needed")
        if (self.max_limit_w - self.min_limit_w) / self.limit_step_w > 1000:
            raise ValueError("more than 1000 power limits; choose a larger limit_step_w")
        return self

    @property
    def limits_w(self) -> tuple[float, ...]:
        """The power limits in W, ascending."""
        steps = math.ceil((self.max_limit_w - self.min_limit_w) / self.limit_step_w)
        below = (round(self.min_limit_w + i * self.limit_step_w, 6) for i in range(steps))
        return (*(limit for limit in below if limit < self.max_limit_w), self.max_limit_w)


class WorkloadSpec(Spec):
    """A workload."""

    name: Name
    """Its name."""
    samples_per_epoch: PositiveInt
    """Samples in the data set."""
    peak_samples_per_s: PositiveFloat
    """Throughput of an endless batch at `relative_speed` 1."""
    half_batch: PositiveFloat
    """Batch size with half of that throughput."""
    best_batch_size: Whole
    """Batch size with the fewest epochs."""
    best_epochs: PositiveFloat
    """Mean epochs at that batch size."""
    curvature: Annotated[float, Field(ge=0)] = 0.06
    """How fast epochs rise when the batch size is doubled away from it."""
    spread: Annotated[float, Field(ge=0, le=2)] = 0.08
    """Standard deviation of the logarithm of a run's epochs."""
    compute_share: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of time, at full clock, that grows when the clock falls; 0 to 1."""
    max_epochs: Whole
    """A run is given up after so many."""
    default_batch_size: Whole
    """Used where no policy chooses; one of `batch_sizes`."""
    batch_sizes: Annotated[tuple[Whole, ...], Field(min_length=1)]
    """The batch sizes to generate."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise ValueError("batch_sizes must differ from each other")
        if self.default_batch_size not in self.batch_sizes:
            raise ValueError("default_batch_size must be one of batch_sizes")
        return self


DEFAULT_GPUS: Final = (
    GpuSpec.model_construct(
        name="SYN-250W", idle_power_w=40.0, peak_power_w=250.0, min_limit_w=100.0, max_limit_w=250.0
    ),
    GpuSpec.model_construct(
        name="SYN-400W",
        idle_power_w=60.0,
        peak_power_w=400.0,
        min_limit_w=150.0,
        max_limit_w=400.0,
        limit_step_w=50.0,
        relative_speed=2.2,
    ),
)
"""Not validated here, which would build what validates them at each start of a program."""

DEFAULT_WORKLOADS: Final = (
    WorkloadSpec.model_construct(
        name="image",
        samples_per_epoch=50_000,
        peak_samples_per_s=3_000.0,
        half_batch=60.0,
        best_batch_size=64,
        best_epochs=20.0,
        max_epochs=120,
        default_batch_size=512,
        batch_sizes=(16, 32, 64, 128, 256, 512, 1024, 2048),
    ),
    WorkloadSpec.model_construct(
        name="language",
        samples_per_epoch=100_000,
        peak_samples_per_s=120.0,
        half_batch=12.0,
        best_batch_size=16,
        best_epochs=3.0,
        curvature=0.08,
        spread=0.12,
        compute_share=0.95,
        max_epochs=10,
        default_batch_size=32,
        batch_sizes=(4, 8, 16, 32, 64, 128),
    ),
    WorkloadSpec.model_construct(
        name="recommendation",
        samples_per_epoch=5_000_000,
        peak_samples_per_s=2_000_000.0,
        half_batch=4_000.0,
        best_batch_size=4_096,
        best_epochs=4.0,
        curvature=0.05,
        spread=0.15,
        compute_share=0.5,
        max_epochs=30,
        default_batch_size=1_024,
        batch_sizes=(256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768),
    ),
)


class SyntheticProfiles(Spec):
    """Specification of a synthetic trace; by default two GPU types and three workloads."""

    gpus: Annotated[tuple[GpuSpec, ...], Field(min_length=1)] = DEFAULT_GPUS
    """GPU types."""
    workloads: Annotated[tuple[WorkloadSpec, ...], Field(min_length=1)] = DEFAULT_WORKLOADS
    """Workloads."""
    runs: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Training runs of each workload at each batch size."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of the scatter between runs."""

    @model_validator(mode="after")
    def _check_unique_names(self) -> Self:
        for kind, specs in (("gpus", self.gpus), ("workloads", self.workloads)):
            _check_names(kind, [spec.name for spec in specs])
        return self


def _check_names(kind: str, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"names of {kind} must differ: {', '.join(repeated)}")
