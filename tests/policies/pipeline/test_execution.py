"""Time and energy of executed plans."""

from __future__ import annotations

import json
from csv import DictReader
from math import inf, nan
from pathlib import Path

import pytest

from tests.support.messages import assert_states
from tests.support.pipelines import made_up_profile, recorded_profile
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.pipeline.execution import (
    execute_plan,
    execute_points,
    fastest_points,
    plan_of_points,
)
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import (
    ClockPoint,
    PipelineProfile,
    StageClocks,
    check_profile,
)
from wattkeeper.policies.pipeline.schedules import PipelineSchedule

FORWARD = (ClockPoint(1000, 1.0, 200.0), ClockPoint(500, 1.5, 150.0))
BACKWARD = (ClockPoint(1000, 2.0, 400.0), ClockPoint(500, 3.0, 300.0))
TWO_STAGES = PipelineProfile((StageClocks(FORWARD, BACKWARD),) * 2, 50.0)
SCHEDULE = PipelineSchedule("1f1b", 2, 2)


def test_time_and_energy_by_hand() -> None:
    graph = schedule_graph(SCHEDULE)
    # F0 F1 B0 B1 over F0 B0 F1 B1: ends at 1 + 1 + 2 + 1 + 2 + 2 s.
    result = execute_plan(TWO_STAGES, graph, ((1000,) * 4, (1000,) * 4))
    assert result.time_s == 9
    assert result.energy_j == 4 * 600 + 50 * (2 * 9 - 4 * 3)
    # F1 of the first stage ends at 2.5 s, before B0 of the second one ends at 4 s.
    result = execute_plan(TWO_STAGES, graph, ((1000, 500, 1000, 1000), (1000,) * 4))
    assert result.time_s == 9
    assert result.energy_j == 4 * 600 - 50 + 50 * (2 * 9 - 4 * 3 - 0.5)
    assert result.held(10, 100) == result.energy_j + 100


def test_all_gpus_of_a_stage_wait() -> None:
    wide = PipelineProfile((StageClocks(FORWARD, BACKWARD, 4),) * 2, 50.0)
    graph = schedule_graph(SCHEDULE)
    result = execute_points(wide, graph, fastest_points(wide, graph))
    assert (result.time_s, result.energy_j) == (9, 4 * 600 + 200 * (2 * 9 - 4 * 3))


def test_a_rank_of_several_chunks_waits_once() -> None:
    profile = PipelineProfile((StageClocks(FORWARD, BACKWARD),) * 2, 50.0)
    graph = schedule_graph(PipelineSchedule("interleaved", 1, 2, 2))
    result = execute_points(profile, graph, fastest_points(profile, graph))
    assert (result.time_s, result.energy_j) == (12, 4 * 600)


@pytest.mark.parametrize("microbatches", [4, 8])
def test_published_plans(shared: Path, microbatches: int) -> None:
    folder = shared / "reference/perseus"
    profile = recorded_profile(shared)
    graph = schedule_graph(PipelineSchedule("1f1b", 4, microbatches))
    text = (folder / f"plans_m{microbatches}_u5ms.json").read_text(encoding="utf-8")
    with (folder / f"frontier_m{microbatches}_u5ms.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["iter"]: row for row in DictReader(file)}
    plans = json.loads(text)["plans"]
    assert plans
    for step, clocks in plans.items():
        plan = tuple(map(tuple, clocks))
        result = execute_plan(profile, graph, plan)
        assert result.time_s == pytest.approx(float(rows[step]["exec_time_s"]), abs=1e-6)
        assert result.energy_j == pytest.approx(float(rows[step]["exec_energy_J"]), abs=1e-4)
    with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        (row,) = (r for r in DictReader(file) if r["microbatches"] == str(microbatches))
    fastest = execute_points(profile, graph, fastest_points(profile, graph))
    assert fastest.time_s == pytest.approx(float(row["maxfreq_time"]), abs=5e-5)
    assert fastest.energy_j == pytest.approx(float(row["maxfreq_J"]), abs=5e-3)


def test_plans_and_points_are_the_same() -> None:
    profile = made_up_profile(3, seed=1)
    graph = schedule_graph(PipelineSchedule("1f1b", 3, 4))
    points = [index % 12 for index in range(24)]
    plan = plan_of_points(profile, graph, points)
    assert execute_plan(profile, graph, plan) == execute_points(profile, graph, points)


def test_bad_plans() -> None:
    graph = schedule_graph(SCHEDULE)
    with pytest.raises(PolicyError) as raised:
        execute_plan(TWO_STAGES, graph, ((1000,) * 4, (1000, 900, 500, 500)))
    assert_states(str(raised.value), "900 MHz", "instruction 1", "rank 1", "500, 1000 MHz")
    with pytest.raises(PolicyError) as raised:
        execute_plan(TWO_STAGES, graph, ((1000,) * 4, (1000,) * 3))
    assert_states(str(raised.value), "[4, 3]", "[4, 4]")
    with pytest.raises(PolicyError) as raised:
        execute_plan(TWO_STAGES, schedule_graph(PipelineSchedule("1f1b", 3, 2)), ())
    assert_states(str(raised.value), "2 stages", "3")
    uneven = (StageClocks(FORWARD, BACKWARD, 1), StageClocks(FORWARD, BACKWARD, 2))
    chunks = schedule_graph(PipelineSchedule("interleaved", 1, 2, 2))
    with pytest.raises(PolicyError) as raised:
        execute_plan(PipelineProfile(uneven, 50.0), chunks, ())
    assert_states(str(raised.value), "rank 0", "[1, 2] GPUs")


@pytest.mark.parametrize(
    ("profile", "facts"),
    [
        (PipelineProfile((), 50.0), ["at least one stage"]),
        (TWO_STAGES._replace(blocking_w=-1.0), ["-1.0 W", "0 or more"]),
        (TWO_STAGES._replace(blocking_w=nan), ["nan W"]),
        (PipelineProfile((StageClocks(FORWARD, BACKWARD, 0),), 0.0), ["stage 0", "0 GPUs"]),
        (PipelineProfile((StageClocks(FORWARD, ()),), 0.0), ["backward of stage 0", "no measured"]),
        (
            PipelineProfile((StageClocks(FORWARD * 2, BACKWARD),), 0.0),
            ["forward of stage 0", "500 MHz", "more than once"],
        ),
        (
            PipelineProfile((StageClocks(FORWARD, (ClockPoint(0, 1.0, 1.0),)),), 0.0),
            ["0 MHz", "1 or more"],
        ),
        (
            PipelineProfile((StageClocks(FORWARD, (ClockPoint(900, 0.0, 1.0),)),), 0.0),
            ["900 MHz", "time is 0.0 s", "above 0"],
        ),
        (
            PipelineProfile((StageClocks(FORWARD, (ClockPoint(900, 1.0, inf),)),), 0.0),
            ["900 MHz", "energy is inf J"],
        ),
    ],
)
def test_bad_profiles(profile: PipelineProfile, facts: list[str]) -> None:
    check_profile(TWO_STAGES)
    with pytest.raises(InputError) as raised:
        check_profile(profile)
    assert_states(str(raised.value), *facts)
