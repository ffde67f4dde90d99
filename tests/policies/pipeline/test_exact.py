"""The exact frontier against linear programs, and plans that are rounded from it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

from tests.support.pipelines import made_up_profile, recorded_profile, repeat_stages
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.exact import ExactFrontier, exact_frontier
from wattkeeper.policies.pipeline.execution import (
    execute_plan,
    execute_points,
    fastest_points,
    waiting_power_w,
)
from wattkeeper.policies.pipeline.graph import PipelineGraph, schedule_graph
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile, StageClocks
from wattkeeper.policies.pipeline.published import published_frontier
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.tune.pipeline_exact import smooth_profile

SCHEDULES = [
    PipelineSchedule("1f1b", 1, 3),
    PipelineSchedule("1f1b", 3, 5),
    PipelineSchedule("gpipe", 3, 4),
    PipelineSchedule("gpipe", 3, 4, backwards="first-first"),
    PipelineSchedule("interleaved", 2, 4, 2),
]


def least_energy_j(profile: PipelineProfile, graph: PipelineGraph, time_s: float) -> float:
    """The linear program: starts, durations and costs of all instructions, in this order."""
    count = len(graph.operations)
    rows: list[tuple[dict[int, float], float]] = []
    lower = []
    for index, operation in enumerate(graph.operations):
        power_w = profile.blocking_power_w(operation)
        points = sorted((t, e - power_w * t) for _, t, e in profile.points(operation))
        lower.append(points[0][0])
        least = min(cost for _, cost in points)
        rows.append(({2 * count + index: -1.0}, -least))
        for t, c in points:
            for t2, c2 in points:
                if t2 > t and c2 < c:
                    slope = (c2 - c) / (t2 - t)
                    if all(c3 >= c + slope * (t3 - t) - 1e-9 for t3, c3 in points):
                        rows.append(
                            ({count + index: slope, 2 * count + index: -1.0}, slope * t - c)
                        )
        rows.append(({index: 1.0, count + index: 1.0}, time_s))
        for other in graph.before[index]:
            rows.append(({other: 1.0, count + other: 1.0, index: -1.0}, 0.0))
    matrix = lil_matrix((len(rows), 3 * count))
    for row, (entries, _) in enumerate(rows):
        for column, value in entries.items():
            matrix[row, column] = value
    bounds = [(0, None)] * count + [(low, None) for low in lower] + [(None, None)] * count
    goal = np.repeat([0.0, 0.0, 1.0], count)
    limits = [limit for _, limit in rows]
    solved = linprog(goal, A_ub=matrix.tocsr(), b_ub=limits, bounds=bounds)
    assert solved.status == 0, solved.message
    return float(solved.fun) + waiting_power_w(profile, graph) * time_s


def check_against_programs(profile: PipelineProfile, graph: PipelineGraph, times: int) -> None:
    frontier = exact_frontier(profile, graph)
    slowest_s = frontier.vertices[0].time_s
    for time_s in np.linspace(frontier.fastest_s + 1e-6, 1.02 * slowest_s, times).tolist():
        expected = least_energy_j(profile, graph, time_s)
        assert frontier.bound_j(time_s) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_frontiers_are_those_of_linear_programs(schedule: PipelineSchedule) -> None:
    profile = made_up_profile(schedule.stages, seed=schedule.microbatches, gpus=2)
    check_against_programs(profile, schedule_graph(schedule), 7)


def test_recorded_frontiers_are_those_of_linear_programs(shared: Path) -> None:
    graph = schedule_graph(PipelineSchedule("1f1b", 4, 4))
    check_against_programs(recorded_profile(shared), graph, 12)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_frontiers_are_convex_and_plans_are_near_to_them(schedule: PipelineSchedule) -> None:
    profile = made_up_profile(schedule.stages, seed=3)
    graph = schedule_graph(schedule)
    frontier = exact_frontier(profile, graph)
    fastest = execute_points(profile, graph, fastest_points(profile, graph))
    assert frontier.fastest_s == pytest.approx(fastest.time_s, rel=0.01)
    slopes = []
    for slow, fast in pairwise(frontier.vertices):
        assert fast.time_ns < slow.time_ns
        slopes.append((fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s))
    assert all(later >= earlier - 1e-3 for earlier, later in pairwise(slopes))
    assert frontier.cheapest.energy_j == min(vertex.energy_j for vertex in frontier.vertices)
    assert frontier.bound_j(0.999 * frontier.fastest_s) == float("inf")
    gaps = measure_gaps(frontier, 40)
    assert min(gaps) >= -1e-9
    assert max(gaps) < 0.01


def measure_gaps(frontier: ExactFrontier, times: int) -> list[float]:
    """How far plans lie above the bound, as a share, at times across the frontier."""
    times_s = np.linspace(frontier.fastest_s, frontier.vertices[0].time_s, times).tolist()
    return [gap_of(frontier, time_s) for time_s in times_s]


def gap_of(frontier: ExactFrontier, time_s: float) -> float:
    """How far a plan lies above the bound, as a share; its time must be kept."""
    result = execute_plan(frontier.profile, frontier.graph, frontier.plan(time_s))
    assert result.time_s <= time_s + 1e-6
    return result.held(time_s, frontier.waiting_w) / frontier.bound_j(time_s) - 1


SLOW = [pytest.param(size, marks=pytest.mark.slow) for size in (8, 16)]


@pytest.mark.parametrize("microbatches", [4, *SLOW])
def test_recorded_plans_are_nearer_than_the_published_ones(shared: Path, microbatches: int) -> None:
    profile = recorded_profile(shared)
    graph = schedule_graph(PipelineSchedule("1f1b", 4, microbatches))
    frontier = exact_frontier(profile, graph)
    gaps = measure_gaps(frontier, 60)
    assert np.mean(gaps) <= 0.001
    assert max(gaps) <= 0.0025
    published = published_frontier(profile, graph, 0.005)
    for step in published.steps:
        # A plan of the same time, or a faster one that waits.
        assert step.energy_j >= frontier.bound_j(step.time_s) - 1e-4
        plan = frontier.plan(step.time_s)
        result = execute_plan(profile, graph, plan)
        assert result.held(step.time_s, frontier.waiting_w) <= step.energy_j + 1e-4


def parallel_pipelines(count: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Stages of the recorded profile, with several alike, and microbatches."""
    rng = random.Random(44)
    for number in range(count):
        stages = rng.choice([4, 6, 8])
        if number % 2:
            pair = rng.sample(range(4), 2)
            yield tuple(pair[stage % 2] for stage in range(stages)), rng.choice([6, 8, 12])
        else:
            yield tuple(rng.choices(range(4), k=stages)), rng.choice([6, 8, 12])


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_plans_where_equal_stages_lie_in_parallel(shared: Path, count: int) -> None:
    """Near the bound, and hardly ever above the published plan of the same time."""
    recorded = recorded_profile(shared)
    rng = random.Random(45)
    gaps = []
    for stages, microbatches in parallel_pipelines(count):
        profile = recorded._replace(stages=tuple(recorded.stages[stage] for stage in stages))
        graph = schedule_graph(PipelineSchedule("1f1b", len(stages), microbatches))
        frontier = exact_frontier(profile, graph)
        slowest_s = frontier.vertices[0].time_s
        times_s = [rng.uniform(frontier.fastest_s, slowest_s) for _ in range(4)]
        gaps += [gap_of(frontier, time_s) for time_s in times_s]
        if count > 4:
            steps = published_frontier(profile, graph, 0.01).steps
            for step in rng.sample(steps, 4):
                plan = execute_plan(profile, graph, frontier.plan(step.time_s))
                assert plan.held(step.time_s, frontier.waiting_w) <= 1.0003 * step.energy_j
    assert np.mean(gaps) <= 0.001
    assert max(gaps) <= 0.005


def test_a_plan_where_every_other_stage_is_equal(shared: Path) -> None:
    recorded = recorded_profile(shared)
    profile = recorded._replace(stages=tuple(recorded.stages[index] for index in (2, 1, 2, 1)))
    frontier = exact_frontier(profile, schedule_graph(PipelineSchedule("1f1b", 4, 6)))
    assert frontier.bound_j(13.704) == pytest.approx(7780.5, abs=0.1)
    assert gap_of(frontier, 13.704) <= 0.0025


@pytest.mark.slow
def test_a_long_pipeline(shared: Path) -> None:
    profile = repeat_stages(recorded_profile(shared), 8)
    frontier = exact_frontier(profile, schedule_graph(PipelineSchedule("1f1b", 8, 64)))
    assert max(measure_gaps(frontier, 5)) < 0.001


def test_times_out_of_range() -> None:
    profile = made_up_profile(2, seed=5)
    graph = schedule_graph(PipelineSchedule("1f1b", 2, 3))
    frontier = exact_frontier(profile, graph)
    slow = frontier.vertices[0]
    assert frontier.plan(0.0) == frontier.plan(frontier.fastest_s)
    assert frontier.plan(3 * slow.time_s) == frontier.plan(slow.time_s)
    longer = frontier.bound_j(slow.time_s + 2) - slow.energy_j
    assert longer == pytest.approx(2 * frontier.waiting_w)
    middle_s = (frontier.fastest_s + slow.time_s) / 2
    kept = execute_plan(profile, graph, frontier.plan(middle_s, margin=0.03))
    assert kept.time_s <= middle_s / 1.03 + 1e-6


def test_one_clock_leaves_one_plan() -> None:
    point = (ClockPoint(1000, 0.1, 20.0),)
    profile = PipelineProfile((StageClocks(point, point),) * 2, 50.0)
    graph = schedule_graph(PipelineSchedule("1f1b", 2, 2))
    frontier = exact_frontier(profile, graph)
    assert [vertex.time_s for vertex in frontier.vertices] == [pytest.approx(0.6)]
    assert frontier.plan(0.6) == frontier.plan(5.0) == ((1000,) * 4,) * 2
    with pytest.raises(InputError):
        exact_frontier(profile._replace(blocking_w=-1.0), graph)


def test_smoothing_takes_noise_away() -> None:
    true = made_up_profile(3, seed=6, clocks=20, noise=0)
    measured = made_up_profile(3, seed=6, clocks=20, noise=0.02)
    smooth = smooth_profile(measured)

    def error(profile: PipelineProfile) -> float:
        """Root mean square of the relative errors of energy."""
        return float(
            np.sqrt(
                np.mean(
                    [
                        (point.energy_j / expected.energy_j - 1) ** 2
                        for operation in range(6)
                        for point, expected in zip(
                            profile.points(operation), true.points(operation), strict=True
                        )
                    ]
                )
            )
        )

    assert error(smooth) < 0.7 * error(measured)
    assert [p.frequency_mhz for p in smooth.points(0)] == [p.frequency_mhz for p in true.points(0)]
    few = made_up_profile(2, seed=6, clocks=7)
    assert smooth_profile(few) == few
