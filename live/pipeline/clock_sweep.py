"""Measures time and energy of the instructions of a pipeline at each clock."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wattkeeper.live.pipeline.reports import OperationTotals, RankReport
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import KINDS, ClockPoint, PipelineProfile, StageClocks
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.pipelines import POINTS

WARM: Final = 1
"""Iterations at each clock that warm up: they are done, not measured."""


class ClockSweep:
    """Iterations at one clock after the other, from the highest to the lowest.

    Args:
        clocks_mhz: The clocks, MHz.
        iterations: Measured ones at each clock.
        gpus: Devices of each rank.
    """

    def __init__(self, clocks_mhz: Sequence[int], iterations: int, gpus: Sequence[int]) -> None:
        self._left = sorted(set(clocks_mhz), reverse=True)
        self._iterations, self._gpus = iterations, gpus
        self._done = 0
        self._totals: dict[tuple[int, int], OperationTotals] = {}
        self._waiting_s: dict[int, float] = defaultdict(float)
        self._waiting_j: dict[int, float] = defaultdict(float)

    @property
    def iterations_left(self) -> int:
        """Iterations until all clocks are measured, with those that warm up."""
        return len(self._left) * (WARM + self._iterations) - self._done

    @property
    def clock_mhz(self) -> int | None:
        """The clock of the next iteration, MHz; None once all are measured."""
        return self._left[0] if self._left else None

    def add(self, reports: Sequence[RankReport]) -> None:
        """Count an iteration of all ranks at the clock."""
        clock_mhz = self._left[0]
        self._done += 1
        if self._done <= WARM:
            return
        for rank, report in enumerate(reports):
            self._waiting_s[rank] += report.time_s - sum(
                t.time_s for t in report.operations.values()
            )
            self._waiting_j[rank] += report.energy_j - sum(
                t.energy_j for t in report.operations.values()
            )
            for operation, totals in report.operations.items():
                before = self._totals.get((operation, clock_mhz), OperationTotals())
                self._totals[operation, clock_mhz] = before.plus(totals)
        if self._done == WARM + self._iterations:
            self._left, self._done = self._left[1:], 0

    def blocking_power_w(self) -> float:
        """Mean power of a device whose rank waited, W.

        Raises:
            InputError: If no rank waited.
        """
        time_s = sum(n * self._waiting_s[rank] for rank, n in enumerate(self._gpus))
        if time_s <= 0:
            raise InputError("no rank waited for another one; give blocking_power_w")
        return _round(max(0.0, sum(self._waiting_j.values()) / time_s))

    def profile(self, graph: PipelineGraph, blocking_w: float | None) -> PipelineProfile:
        """The measured points; `blocking_w`: power of a GPU that waits, W; None: as measured."""
        points: dict[int, list[ClockPoint]] = defaultdict(list)
        for (operation, clock_mhz), (number, time_s, energy_j) in self._totals.items():
            point = ClockPoint(clock_mhz, _round(time_s / number), _round(energy_j / number))
            points[operation].append(point)
        rank_of = {
            graph.operations[index] // 2: rank
            for rank, positions in enumerate(graph.positions)
            for index in positions
        }
        stages = tuple(
            StageClocks(
                tuple(points[2 * stage]), tuple(points[2 * stage + 1]), self._gpus[rank_of[stage]]
            )
            for stage in range(graph.stages)
        )
        return PipelineProfile(
            stages, self.blocking_power_w() if blocking_w is None else blocking_w
        )


def write_profile(profile: PipelineProfile, path: Path) -> None:
    """Write a profile as CSV, as scenarios and sessions read it."""
    with replace_file(path) as new, new.open("w", newline="", encoding="ascii") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(POINTS.names)
        for number, stage in enumerate(profile.stages):
            for kind, points in zip(KINDS, stage[:2], strict=True):
                rows.writerows((number, kind, *point) for point in points)


def _round(value: float) -> float:
    """Nine digits: what is equal stays so after sums in another order."""
    return float(f"{value:.9g}")
