"""The frontier of the published Perseus, against the outputs of its solver."""

from __future__ import annotations

import json
import sys
from csv import DictReader
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import Final

import pytest

from tests.support.messages import assert_states
from tests.support.pipelines import made_up_profile, recorded_profile
from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.policies.pipeline.execution import execute_plan
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile, StageClocks
from wattkeeper.policies.pipeline.published import PublishedFrontier, published_frontier
from wattkeeper.policies.pipeline.published_costs import cost_models, duration_options
from wattkeeper.policies.pipeline.schedules import PipelineSchedule

OF_COST: Final = 1e-6
OF_CHANGE: Final = 4e-5
"""The published fits end where a step improves them by less than 1.5e-8 (scipy's `curve_fit`).
Where that is depends on the last bit of the exponential, which in numpy differs between processors:
costs of plans then differ by 5e-7 of themselves, and what a step changes by 2e-5."""


def rows_of(shared: Path, name: str) -> list[dict[str, str]]:
    path = shared / "reference/perseus" / name
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(DictReader(file))
    assert rows
    return rows


def frontier_of(shared: Path, microbatches: int, unit_s: float) -> PublishedFrontier:
    graph = schedule_graph(PipelineSchedule("1f1b", 4, microbatches))
    return published_frontier(recorded_profile(shared), graph, unit_s)


@pytest.mark.parametrize("microbatches", [4, 8])
def test_published_frontiers(shared: Path, microbatches: int) -> None:
    frontier = frontier_of(shared, microbatches, 0.005)
    rows = rows_of(shared, f"frontier_m{microbatches}_u5ms.csv")
    for row, step in zip(rows, frontier.steps, strict=True):
        assert step.duration == int(row["quant_time"])
        assert step.cost_change_j == pytest.approx(float(row["cost_change"]), rel=OF_CHANGE)
        assert step.cost_j == pytest.approx(float(row["eff_cost_J"]), rel=OF_COST)
        planned_j = step.cost_j + frontier.waiting_w * step.duration * 0.005
        assert planned_j == pytest.approx(float(row["planned_total_J"]), rel=OF_COST)
        assert step.time_s == pytest.approx(float(row["exec_time_s"]), abs=1e-6)
        assert step.energy_j == pytest.approx(float(row["exec_energy_J"]), abs=1e-4)
    text = (shared / f"reference/perseus/plans_m{microbatches}_u5ms.json").read_text("utf-8")
    for number, clocks in json.loads(text)["plans"].items():
        assert frontier.plan(int(number)) == tuple(map(tuple, clocks))
    (row,) = (r for r in rows_of(shared, "summary.csv") if r["microbatches"] == str(microbatches))
    saving = 100 * (1 - frontier.steps[-1].energy_j / frontier.fastest.energy_j)
    assert saving == pytest.approx(float(row["intrinsic_saving_pct"]), abs=0.005)


def test_published_cost_models(shared: Path) -> None:
    models = cost_models(recorded_profile(shared), 0.005)
    for row in rows_of(shared, "cost_models_m4_u5ms.csv"):
        model = models[2 * int(row["stage"]) + (row["inst"] == "Backward")]
        assert len(model.options) == int(row["n_options"])
        assert (model.shortest, model.longest) == (int(row["min_q"]), int(row["max_q"]))
        for duration in range(model.shortest, model.longest + 1):
            cost_j = float(row["a"]) * exp(float(row["b"]) * duration) + float(row["c"])
            assert model.cost_j(duration) == pytest.approx(cost_j, abs=1e-3)


def test_published_frontier_with_several_instructions_in_a_cut(shared: Path) -> None:
    recorded = recorded_profile(shared)
    profile = recorded._replace(stages=tuple(recorded.stages[index] for index in (2, 1, 2, 1)))
    frontier = published_frontier(profile, schedule_graph(PipelineSchedule("1f1b", 4, 6)), 0.01)
    rows = rows_of(shared, "frontier_parallel_s4_m6_u10ms.csv")
    for row, step in zip(rows, frontier.steps, strict=True):
        assert step.duration == int(row["quant_time"])
        assert step.cost_change_j == pytest.approx(float(row["cost_change"]), rel=OF_CHANGE)
        assert step.cost_j == pytest.approx(float(row["eff_cost_J"]), rel=OF_COST)
    assert max(len(change.shortened) for change in frontier.walk) == 5
    assert sum(bool(change.lengthened) for change in frontier.walk) == 6


def test_published_stragglers(shared: Path) -> None:
    frontier = frontier_of(shared, 8, 0.001)
    assert len(frontier.steps) == 3264
    fastest_s = round(frontier.fastest.time_s, 4)
    for row in rows_of(shared, "straggler_m8_u1ms.csv"):
        time_s = float(row["straggler_slowdown"]) * fastest_s
        number = frontier.step_for(time_s)
        assert number == int(row["frontier_iter"])
        step = frontier.steps[number]
        assert step.time_s == pytest.approx(float(row["plan_exec_time_s"]), abs=1e-4)
        energy_j = step.energy_j + frontier.waiting_w * (time_s - step.time_s)
        assert energy_j == pytest.approx(float(row["perseus_J"]), abs=0.02)
        baseline_j = frontier.fastest.energy_j + frontier.waiting_w * (time_s - fastest_s)
        assert baseline_j == pytest.approx(float(row["maxfreq_J"]), abs=0.02)
    assert frontier.step_for(fastest_s / 2) == len(frontier.steps) - 1


SCHEDULES = [
    pytest.param(PipelineSchedule("1f1b", 4, 16), marks=pytest.mark.slow),
    PipelineSchedule("1f1b", 3, 2),
    PipelineSchedule("gpipe", 4, 6),
    PipelineSchedule("gpipe", 4, 6, backwards="first-first"),
    PipelineSchedule("interleaved", 2, 6, 2),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_each_step_is_one_unit_shorter_and_costs_more(schedule: PipelineSchedule) -> None:
    profile = made_up_profile(schedule.stages, seed=2, gpus=2)
    graph = schedule_graph(schedule)
    frontier = published_frontier(profile, graph, 0.002)
    steps = frontier.steps
    assert len(steps) > 20
    for step, following in pairwise(steps):
        assert following.duration == step.duration - 1
        # What a unit costs rises from step to step, but for the rounding to whole uJ.
        assert following.cost_change_j >= step.cost_change_j - 1e-4
    for number in range(0, len(steps), 7):
        executed = execute_plan(profile, graph, frontier.plan(number))
        assert executed.time_s == pytest.approx(steps[number].time_s, abs=1e-9)
        assert executed.energy_j == pytest.approx(steps[number].energy_j, abs=1e-6)
        # Each instruction is at most two units longer than planned: its own rounding.
        longest = 2 * schedule.microbatches * schedule.chunks + 2 * schedule.stages
        assert executed.time_s <= (steps[number].duration + longest) * 0.002
    shortest = [model.shortest for model in frontier.models]
    ends: list[int] = []
    for operation, others in zip(graph.operations, graph.before, strict=True):
        ends.append(max((ends[other] for other in others), default=0) + shortest[operation])
    assert steps[-1].duration == max(ends)


def test_few_points_are_thinned_again() -> None:
    rows = ((1000, 1.0, 100.0), (900, 1.125, 90.0), (800, 1.25, 85.0), (700, 1.375, 86.0))
    points = tuple(ClockPoint(*row) for row in rows)
    profile = PipelineProfile((StageClocks(points, points),), 0.0)
    # Another one beats the last point, but not by 5 %.
    options = duration_options(profile, 0, 0.125)
    assert [(option.duration, option.point) for option in options] == [
        (11, 3),
        (10, 2),
        (9, 1),
        (8, 0),
    ]
    rounded = duration_options(profile, 0, 0.5)
    assert [(option.duration, option.cost_j) for option in rounded] == [(2, 100.0)]


def test_too_few_points_for_a_fit(shared: Path) -> None:
    graph = schedule_graph(PipelineSchedule("1f1b", 4, 2))
    with pytest.raises(InputError) as raised:
        published_frontier(recorded_profile(shared), graph, 0.5)
    assert_states(str(raised.value), "forward of stage 0", "0.5 s", "4 or more", "shorter unit")
    with pytest.raises(InputError) as raised:
        published_frontier(recorded_profile(shared), graph, 0.0)
    assert_states(str(raised.value), "0.0 s", "above 0")
    with pytest.raises(PolicyError) as wrong:
        published_frontier(made_up_profile(3, seed=1), graph)
    assert_states(str(wrong.value), "3 stages", "4")


def test_the_fit_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(EnvironmentLacks) as raised:
        cost_models(made_up_profile(2, seed=1), 0.001)
    assert raised.value.exit_code == 3
    assert_states(str(raised.value), "scipy", "pip install 'wattkeeper[pipeline]'")
