"""Shares of pipeline-parallel jobs in a power cap."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines import recorded_profile, repeat_stages
from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.share import (
    DrawCurve,
    DrawPoint,
    clock_draw,
    convex_draw,
    pipeline_draw,
    share_by_gain,
    share_in_proportion,
)

POINTS = st.lists(
    st.builds(DrawPoint, st.integers(1, 20).map(lambda s: s / 20), st.integers(50, 300).map(float)),
    min_size=2,
    max_size=6,
)
JOBS = st.lists(
    st.builds(DrawCurve, st.integers(1, 8).map(float), POINTS.map(convex_draw)),
    min_size=2,
    max_size=3,
)


def weighted_speed(jobs: list[DrawCurve], powers_w: tuple[float, ...]) -> float:
    return sum(j.weight * j.speed_at(w + 1e-9) for j, w in zip(jobs, powers_w, strict=True))


@given(jobs=JOBS, share=st.floats(0, 1))
def test_no_other_division_is_better(jobs: list[DrawCurve], share: float) -> None:
    least = sum(job.points[0].power_w for job in jobs)
    most = sum(job.points[-1].power_w for job in jobs)
    cap_w = least + share * (most - least)
    powers_w = share_by_gain(jobs, cap_w)
    assert powers_w is not None
    assert sum(powers_w) == pytest.approx(cap_w)
    best = weighted_speed(jobs, powers_w)
    for parts in product(range(11), repeat=len(jobs)):
        draws = [
            job.points[0].power_w + part / 10 * (job.points[-1].power_w - job.points[0].power_w)
            for job, part in zip(jobs, parts, strict=True)
        ]
        if sum(draws) <= cap_w:
            assert weighted_speed(jobs, tuple(draws)) <= best + 1e-6
    assert share_by_gain(jobs, least - 1) is None


def test_dominated_points_are_left_out() -> None:
    points = [(0.5, 120.0), (0.5, 100.0), (0.2, 110.0), (0.75, 190.0), (1.0, 200.0)]
    hull = convex_draw([DrawPoint(*point) for point in points])
    assert hull == (DrawPoint(0.5, 100.0), DrawPoint(1.0, 200.0))
    curve = DrawCurve(1.0, hull)
    assert [curve.speed_at(w) for w in (99.0, 100.0, 150.0, 500.0)] == [0, 0.5, 0.75, 1]


FIGURES = [(0.9, 1.0, 0.996, 0.949), (0.85, 0.995, 0.983, 0.926), (0.8, 0.95, 0.943, 0.903)]
"""Share of the cap, and mean speeds by gain, in proportion, with one clock: shared/reference."""


def test_five_recorded_jobs(shared: Path) -> None:
    recorded = recorded_profile(shared)
    jobs, pipelines = [], []
    for stages, microbatches in ((4, 2), (4, 8), (4, 32), (8, 8), (8, 32)):
        profile = repeat_stages(recorded, stages)
        graph = schedule_graph(PipelineSchedule("1f1b", stages, microbatches))
        jobs.append(DrawCurve(float(stages), pipeline_draw(exact_frontier(profile, graph))))
        pipelines.append((profile, graph))
    full = [clock_draw(profile, graph, 1740) for profile, graph in pipelines]
    draws_w = [point.power_w for point in full]
    weights = sum(job.weight for job in jobs)
    clocks = [
        [clock_draw(profile, graph, clock_mhz) for profile, graph in pipelines]
        for clock_mhz in range(900, 1741, 15)
    ]
    for share, gain, proportion, common in FIGURES:
        cap_w = share * sum(draws_w)
        powers_w = share_by_gain(jobs, cap_w)
        assert powers_w is not None
        by_gain = weighted_speed(jobs, powers_w) / weights
        proportional = weighted_speed(jobs, share_in_proportion(draws_w, cap_w)) / weights
        one_clock = max(
            sum(j.weight * p.speed / most.speed for j, p, most in zip(jobs, row, full, strict=True))
            for row in clocks
            if sum(point.power_w for point in row) <= cap_w
        )
        assert by_gain >= max(gain - 5e-4, proportional)
        assert proportional >= proportion - 5e-4
        assert one_clock / weights == pytest.approx(common, abs=6e-4)
