"""Synthetic points of a pipeline, from a small analytical model of a GPU.

The model is an assumption, chosen for its shape and fitted to nothing: of an instruction's time,
the share `compute_share` grows with the clock's inverse and the rest does not depend on the clock;
power is `idle + (peak - idle) * share ** 2.6`, where `share` is the clock over the highest one. A
backward pass takes `backward_ratio` times as long as a forward pass.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

import pyarrow as pa
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from wattkeeper.traces.generate.synthetic_specs import Spec
from wattkeeper.traces.pipelines import MOST_STAGES, POINTS, PipelinePoints, stages_of

EXPONENT: Final = 2.6
DIGITS: Final = 9
"""Decimals of seconds and joules, so that all machines have the same table."""


class SyntheticPipeline(Spec):
    """A pipeline whose points a model gives."""

    forward_s: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=MOST_STAGES)] = (
        0.050,
        0.054,
        0.052,
        0.061,
    )
    """Time of a forward pass at the highest clock by stage, s; as many as there are stages."""
    backward_ratio: PositiveFloat = 2.0
    """Time of a backward pass over that of a forward pass."""
    compute_share: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Share of the time that grows with the inverse of the clock."""
    highest_mhz: PositiveInt = 1410
    """Highest clock, MHz."""
    lowest_mhz: PositiveInt = 810
    """Lowest clock, MHz."""
    step_mhz: PositiveInt = 60
    """From clock to clock, MHz."""
    idle_power_w: PositiveFloat = 80.0
    """Power of a GPU that does not compute, at the lowest clock or above, W."""
    peak_power_w: PositiveFloat = 300.0
    """Power of a GPU at the highest clock, W."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.lowest_mhz < self.highest_mhz:
            raise ValueError("lowest_mhz < highest_mhz is needed")
        if not self.idle_power_w < self.peak_power_w:
            raise ValueError("idle_power_w < peak_power_w is needed")
        if (self.highest_mhz - self.lowest_mhz) // self.step_mhz > 1000:
            raise ValueError("more than 1000 clocks; choose a larger step_mhz")
        return self


def generate_pipeline(spec: SyntheticPipeline, gpus: int = 1) -> PipelinePoints:
    """The points of a pipeline by the model, with a number of GPUs in each stage."""
    rows = []
    for stage, forward_s in enumerate(spec.forward_s):
        for kind, full_s in (("forward", forward_s), ("backward", forward_s * spec.backward_ratio)):
            for clock_mhz in range(spec.highest_mhz, spec.lowest_mhz - 1, -spec.step_mhz):
                share = clock_mhz / spec.highest_mhz
                time_s = full_s * (1 - spec.compute_share + spec.compute_share / share)
                dynamic_w = (spec.peak_power_w - spec.idle_power_w) * share**EXPONENT
                energy_j = gpus * time_s * (spec.idle_power_w + dynamic_w)
                rows.append(
                    (stage, kind, clock_mhz, round(time_s, DIGITS), round(energy_j, DIGITS))
                )
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(column) for column in columns], POINTS.names).cast(POINTS)
    stages = stages_of(table, "synthetic", gpus)
    return PipelinePoints(
        "synthetic", table, stages, "synthetic", parameters=spec.model_dump(mode="json")
    )
