"""Notices stages that have become slower than they were profiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

from wattkeeper.live.pipeline.reports import RankReport
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import ClockPlan, ClockPoint, PipelineProfile, StageClocks

TOLERANCE: Final = 0.05
"""A stage is slower, or so no more, if its time changes by more than this, relative to before."""
LAST: Final = 3
"""The median of so many iterations counts: one that is late by chance changes nothing."""


class SlowStages:
    """Measured times of all stages over those of the profile.

    Attributes:
        factors: By stage, what is in force; 1 as profiled.
    """

    def __init__(self, profile: PipelineProfile, graph: PipelineGraph) -> None:
        self.factors = (1.0,) * graph.stages
        self._graph = graph
        self._time_s = [
            {point.frequency_mhz: point.time_s for point in profile.points(operation)}
            for operation in range(2 * graph.stages)
        ]
        self._seen = [deque[float](maxlen=LAST) for _ in range(graph.stages)]

    def update(self, reports: Sequence[RankReport], plan: ClockPlan) -> tuple[float, ...]:
        """Count an iteration at a plan; the factors measured in it, by stage."""
        graph = self._graph
        expected_s, measured_s = [0.0] * graph.stages, [0.0] * graph.stages
        for positions, clocks in zip(graph.positions, plan, strict=True):
            for index, clock_mhz in zip(positions, clocks, strict=True):
                operation = graph.operations[index]
                expected_s[operation // 2] += self._time_s[operation][clock_mhz]
        for report in reports:
            for operation, totals in report.operations.items():
                measured_s[operation // 2] += totals.time_s
        now = tuple(m / e for m, e in zip(measured_s, expected_s, strict=True))
        for seen, factor in zip(self._seen, now, strict=True):
            seen.append(factor)
        self.factors = tuple(map(_settle, self.factors, self._seen))
        return now


def _settle(before: float, seen: deque[float]) -> float:
    """The factor in force from now on."""
    now = median(seen)
    if len(seen) < LAST or abs(now - before) <= TOLERANCE * before:
        return before
    return 1.0 if abs(now - 1) <= TOLERANCE else round(now, 4)


def scale_profile(profile: PipelineProfile, factors: Sequence[float]) -> PipelineProfile:
    """A profile whose stages take longer by factors, at the same power."""
    if all(factor == 1 for factor in factors):
        return profile
    stages = zip(profile.stages, factors, strict=True)
    return profile._replace(stages=tuple(_scale(stage, factor) for stage, factor in stages))


def _scale(stage: StageClocks, factor: float) -> StageClocks:
    forward, backward = (
        tuple(
            ClockPoint(point.frequency_mhz, point.time_s * factor, point.energy_j * factor)
            for point in points
        )
        for points in (stage.forward, stage.backward)
    )
    return stage._replace(forward=forward, backward=backward)
