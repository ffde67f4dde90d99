"""What rank 0 of a pipeline decides by: measured points, slow stages, policies, arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.live_pipelines import made_up_table
from tests.support.messages import assert_states
from wattkeeper.live.pipeline.arguments import PipelineArguments, RankFacts
from wattkeeper.live.pipeline.clock_sweep import ClockSweep, write_profile
from wattkeeper.live.pipeline.plan_chooser import PlanChooser
from wattkeeper.live.pipeline.reports import OperationTotals, RankReport
from wattkeeper.live.pipeline.slow_stages import SlowStages, scale_profile
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.pipeline.profile import ClockPlan
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.points.moments import NO_PROGRESS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.traces.pipelines import read_pipeline

TASK = PipelineTask(made_up_table(2), PipelineSchedule("1f1b", 2, 2))
HIGHEST = TASK.plan_at(1410)


def reports_at(clock_mhz: int, factors: tuple[float, float] = (1, 1)) -> list[RankReport]:
    """What two stages report of an iteration at one clock."""
    reports = []
    for stage, factor in enumerate(factors):
        operations = {}
        for operation in (2 * stage, 2 * stage + 1):
            points = {point[0]: point for point in TASK.profile.points(operation)}
            _, time_s, energy_j = points[clock_mhz]
            operations[operation] = OperationTotals(2, 2 * factor * time_s, 2 * factor * energy_j)
        busy_s = sum(each.time_s for each in operations.values())
        busy_j = sum(each.energy_j for each in operations.values())
        reports.append(RankReport(busy_s + 0.5, busy_s + 0.5, busy_j + 0.5 * 75, operations))
    return reports


def test_a_sweep_measures_all_clocks_but_not_the_iterations_that_warm_up(tmp_path: Path) -> None:
    sweep = ClockSweep([810, 1410], 2, (1, 1))
    clocks = []
    for number in range(6):
        clock_mhz = sweep.clock_mhz
        assert clock_mhz is not None
        clocks.append(clock_mhz)
        sweep.add(reports_at(clock_mhz, (9, 9) if number % 3 == 0 else (1, 1)))
    assert sweep.clock_mhz is None
    assert clocks == [1410] * 3 + [810] * 3
    profile = sweep.profile(TASK.graph, None)
    assert profile.blocking_w == pytest.approx(75)
    for stage, table in zip(profile.stages, TASK.profile.stages, strict=True):
        for points, expected in zip(stage[:2], table[:2], strict=True):
            assert points[0] == pytest.approx(expected[0])
            assert points[1] == pytest.approx(expected[-1])
    write_profile(profile, tmp_path / "profile.csv")
    assert read_pipeline(tmp_path / "profile.csv").stages == profile.stages


def test_one_late_iteration_makes_no_stage_slow() -> None:
    slow = SlowStages(TASK.profile, TASK.graph)
    for factor in (1.0, 1.0, 3.0, 1.0, 1.02):
        slow.update(reports_at(1410, (factor, 1)), HIGHEST)
        assert slow.factors == (1, 1)


def test_a_stage_is_slow_until_it_is_as_profiled() -> None:
    slow = SlowStages(TASK.profile, TASK.graph)
    factors = []
    for factor in (1, 1.4, 1.4, 1.4, 1.41, 1, 1, 1):
        slow.update(reports_at(1110, (1, factor)), TASK.plan_at(1110))
        factors.append(slow.factors[1])
    assert factors == [1, 1, 1.4, 1.4, 1.4, 1.4, 1, 1]
    profile = scale_profile(TASK.profile, (1, 1.4))
    assert profile.stages[0] == TASK.profile.stages[0]
    assert profile.stages[1].forward[0].time_s == pytest.approx(
        1.4 * TASK.profile.stages[1].forward[0].time_s
    )


def chooser(tune: str | PolicyConfig, **settings: Any) -> PlanChooser:
    return PlanChooser("mine", "gpu", 100, find_config("tune", tune, settings), lambda: 7.0)


@pytest.mark.parametrize(
    ("tune", "settings", "plan"),
    [
        ("max-power", {}, HIGHEST),
        ("fixed-clock", {"clock_mhz": 1110}, TASK.plan_at(1110)),
        ("fixed-clock", {"clock_mhz": "lowest"}, TASK.plan_at(810)),
    ],
)
def test_policies_without_plans_set_clocks_too(
    tune: str, settings: dict[str, Any], plan: ClockPlan
) -> None:
    asked = chooser(tune, **settings)
    assert asked.start(TASK) == plan
    assert asked.change_pace(TASK, 1.3, NO_PROGRESS) == plan, "it is not asked at stragglers"
    assert [each.point for each in asked.decisions] == ["configure", "tune"]


def test_a_straggler_elsewhere_moves_the_plan() -> None:
    asked = chooser("pipeline-exact")
    first = asked.start(TASK)
    slower = asked.change_pace(TASK, 1.2, NO_PROGRESS)
    assert TASK.execute(first).time_s <= TASK.fastest.time_s
    assert TASK.fastest.time_s < TASK.execute(slower).time_s <= 1.2 * TASK.fastest.time_s
    assert asked.change_pace(TASK, 1.2, NO_PROGRESS) == slower
    assert asked.change_pace(TASK, 1.0, NO_PROGRESS) == first
    chose = [each.chose.partition("=")[0] for each in asked.decisions[2:]]
    assert chose == ["straggler: plan", "straggler: nothing", "straggler: plan"]


class Pausing(Tune):
    """Pauses at each straggler."""

    def __init__(self, config: PolicyConfig) -> None:
        self._plan = HIGHEST

    def tune(self, ctx: Context, running: Running) -> Knobs:
        if running.moment == "start":
            return Knobs(running.start.options.limits(running.configuration.batch_size)[-1])
        return Knobs(run="pause")


def test_what_a_session_cannot_carry_out_is_refused() -> None:
    with pytest.raises(PolicyError) as refused:
        chooser("chase")
    assert_states(str(refused.value), "chase", "signal")
    from wattkeeper.policies.tune.pipeline_exact import PipelineExactConfig

    config = PipelineExactConfig()
    asked = chooser(config)
    asked.start(TASK)
    asked._maker._tune = Pausing(config)
    with pytest.raises(PolicyError) as refused:
        asked.change_pace(TASK, 1.2, NO_PROGRESS)
    assert_states(str(refused.value), "pause")


ARGUMENTS = PipelineArguments("mine", 4, 100, "perseus", "1f1b", 1, 1, None, None, 3, None, None, 2)


def test_wrong_arguments_are_all_named_at_once() -> None:
    wrong = ARGUMENTS._replace(
        job=" ",
        schedule="2f2b",  # type: ignore[arg-type]
        iterations=0,
        replicas=3,
        clocks_mhz=(),
        profile="x.csv",
        profile_iterations=0,
    )
    with pytest.raises(InputError) as refused:
        wrong.check()
    assert_states(
        str(refused.value),
        "job",
        "2f2b",
        "1f1b, gpipe",
        "iterations=0",
        "replicas=3",
        "2 processes",
        "clocks_mhz=()",
        "blocking_power_w",
        "profile_iterations=0",
    )
    ARGUMENTS.check()


def test_clocks_are_those_that_all_devices_have() -> None:
    facts = [RankFacts(1, "A", tuple(range(600, 1500, 15))), RankFacts(1, "A", (630, 900, 1410))]
    leader = ARGUMENTS.make_leader(facts, lambda: 0.0, 0, None)
    assert leader.order.measures
    assert leader.order.plan == ((1410,) * 8,) * 2
    with pytest.raises(InputError) as refused:
        ARGUMENTS._replace(clocks_mhz=(600,)).make_leader(facts, lambda: 0.0, 0, None)
    assert_states(str(refused.value), "600 MHz", "630, 900, 1410")
    with pytest.raises(InputError) as refused:
        ARGUMENTS.make_leader([facts[0], facts[1]._replace(gpu_type="B")], lambda: 0.0, 0, None)
    assert_states(str(refused.value), "A, B")
