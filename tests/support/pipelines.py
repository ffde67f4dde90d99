"""Profiles of pipeline-parallel jobs for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile, StageClocks
from wattkeeper.traces.pipelines import read_pipeline


def recorded_profile(shared: Path, blocking_w: float = 75.5) -> PipelineProfile:
    """BERT on four A40 (Perseus, SOSP '24)."""
    path = shared / "data/perseus/bert_a40_pp4_inst_profile.csv"
    return PipelineProfile(read_pipeline(path).stages, blocking_w)


def repeat_stages(profile: PipelineProfile, stages: int) -> PipelineProfile:
    """A longer pipeline, whose stages repeat those of a profile."""
    chosen = (profile.stages[stage % len(profile.stages)] for stage in range(stages))
    return profile._replace(stages=tuple(chosen))


def made_up_profile(
    stages: int, seed: int, clocks: int = 12, gpus: int = 1, noise: float = 0.003
) -> PipelineProfile:
    """Stages of unequal size, with times and energies like those of a GPU, and a little noise."""
    rng = np.random.default_rng(seed)

    def operation(size: float) -> tuple[ClockPoint, ...]:
        frequency = np.linspace(1740, 720, clocks).round().astype(int)
        relative = frequency / 1740
        time_s = size * (0.3 + 0.7 / relative) * rng.normal(1, noise / 3, clocks)
        power_w = gpus * (80 + 190 * relative**2.6) * rng.normal(1, noise, clocks)
        rows = zip(frequency.tolist(), time_s.tolist(), (time_s * power_w).tolist(), strict=True)
        return tuple(ClockPoint(*row) for row in rows)

    sizes = rng.uniform(0.1, 0.16, stages)
    return PipelineProfile(
        tuple(StageClocks(operation(size), operation(2.3 * size), gpus) for size in sizes), 70.0
    )
