"""Causes slow running jobs down: work is conserved, and energy is that of the power drawn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.engine.test_energy import idle_w, planned, slices_trained
from tests.sim.engine.test_pipelines import FASTEST, ITERATIONS, KNOWN, ROOM, TASK, pipeline
from tests.sim.engine.test_slow_nodes import slow_s
from tests.support.examples import examples
from tests.support.slowed import Change, SlowedBackend
from tests.support.worlds import (
    AttemptRow,
    Setting,
    attempts,
    by_job,
    chosen,
    decided,
    run_world,
    settings_of_worlds,
    steady,
    stub,
)
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.scenarios.contract.scripted import job, profile
from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.kinds.simulation import build_world, build_zoo, source_of, streams_of
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.attempts.pace import (
    FULL_PACE,
    NODE,
    STRAGGLER,
    Pace,
    own_pace,
    peers_pace,
    with_cause,
)
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.replay.backend import Replay

HALF = Pace(2.0)
QUICKSTART = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"

slow_paces = st.builds(Pace, st.sampled_from([1.0, 1.25, 2.0, 3.0]), st.sampled_from([1.0, 0.5]))
names = st.sampled_from([NODE, STRAGGLER, "cap", "neighbour"])
changes = st.lists(st.builds(Change, st.floats(0.0, 100.0), names, slow_paces), max_size=6)


def quickstart(**causes: Pace) -> list[World]:
    """The runs of the first seed of the quickstart, by variant."""
    loaded = load(str(QUICKSTART), ["seeds=1"])
    inputs = read_inputs(loaded).any_run
    worlds = []
    for spec in loaded.runs:
        env, streams = SimulationEnvironment(), streams_of(spec, inputs)
        power = unprofiled_power(inputs, spec.variant.boundness)
        replay = Replay(env, inputs.profiles, streams, spec.variant.rules.objective, power)
        backend = SlowedBackend(env, replay, causes)
        zoo = build_zoo(spec, inputs, streams)
        world = build_world(spec, inputs, env, streams, backend, source_of(inputs), zoo)
        replay.listener = world
        world.run()
        worlds.append(world)
    return worlds


def test_each_job_of_the_quickstart_takes_twice_as_long_at_half_the_pace() -> None:
    """The first variant decides alike at any pace, so that its attempts can be compared."""
    before, after = quickstart(), quickstart(neighbour=HALF)
    for full, half in zip(attempts(before[0]), attempts(after[0]), strict=True):
        assert half.job_id == full.job_id
        span_s = full.finish_time_s - full.start_time_s
        assert half.finish_time_s - half.start_time_s == pytest.approx(2 * span_s)
        assert half.energy_j == pytest.approx(2 * full.energy_j)
        assert (half.time_s, half.cost) == pytest.approx((full.time_s, full.cost))
    for world in after:
        for row in attempts(world):
            assert row.finish_time_s - row.start_time_s == pytest.approx(2 * row.time_s)


@settings(max_examples=examples(100))
@given(setting=settings_of_worlds())
def test_all_kinds_of_work_are_conserved(setting: Setting) -> None:
    """Two causes: all training takes three times as long, at three quarters of the power."""
    causes = {"neighbour": Pace(1.5), "cap": Pace(2.0, 0.75)}
    world = setting.run(causes=causes)
    for (row, time_s, energy_j), added_s in zip(
        planned(setting, world), slow_s(world), strict=True
    ):
        assert row.time_s == pytest.approx(time_s, rel=1e-9)
        waits_j = idle_w(setting, row) * (row.overhead_s - added_s)
        assert row.energy_j == pytest.approx(2.25 * energy_j + waits_j, rel=1e-9)
        if setting.occupancy == "simulated":
            assert added_s == pytest.approx(2 * time_s, rel=1e-9)


def spent(row: AttemptRow, paces: Sequence[Change], power_w: float) -> tuple[float, float]:
    """Work (s at full pace) and energy (J) of an attempt, second by second of its paces."""
    causes: dict[str, Pace] = {}
    now_s, work_s, energy_j = row.start_time_s, 0.0, 0.0
    for change in [*paces, None]:
        until_s = row.finish_time_s if change is None else min(change.time_s, row.finish_time_s)
        span_s = max(0.0, until_s - now_s)
        slow = {name: pace for name, pace in causes.items() if pace != FULL_PACE}
        peers = max([slow.pop(name) for name in (NODE, STRAGGLER) if name in slow] or [FULL_PACE])
        paces_now = [peers, *slow.values()]
        work_s += span_s / math.prod([pace.slowdown for pace in paces_now])
        energy_j += span_s * power_w * math.prod([pace.power for pace in paces_now])
        now_s = max(now_s, until_s)
        if change is not None:
            causes[change.cause] = change.pace
    return work_s, energy_j


@pytest.mark.parametrize("kind", ["recorded", "adjustable", "planned", "counted"])
@settings(max_examples=examples(50))
@given(paces=changes)
def test_work_is_conserved_whatever_causes_come_and_go(kind: str, paces: list[Change]) -> None:
    """100 s of work at 250 W, or of training at 180 W."""
    paces = sorted(paces, key=lambda change: change.time_s)
    retunes = kind in ("adjustable", "counted")
    tune = stub(
        "tune",
        tune=lambda *_: Knobs(250.0),
        moments=(*START_MOMENTS, "wake") if retunes else START_MOMENTS,
        limits_unprofiled=retunes,
    )
    one = job("a", duration_s=100.0)
    trains = kind in ("planned", "counted")
    jobs = [one if trains else one.replace(workload=None)]
    known = by_job(steady(50.0, 2.0, max_epochs=100))
    world = run_world(jobs, known, policy_set=chosen(tune=tune), paces=paces)
    (row,) = attempts(world)
    work_s, energy_j = spent(row, paces, 180.0 if trains else 250.0)
    assert work_s == pytest.approx(100.0)
    assert row.energy_j == pytest.approx(energy_j)
    assert row.time_s == pytest.approx(100.0)


def test_a_pipeline_waits_for_peers_and_is_slowed_by_all_else() -> None:
    """GPUs wait for a peer at blocking power, and all of that takes twice as long."""
    causes = {STRAGGLER: Pace(1.5), NODE: Pace(1.2), "neighbour": HALF}
    (row,) = attempts(run_world([pipeline()], KNOWN, ROOM, causes=causes))
    least_s = 1.5 * FASTEST.time_s * ITERATIONS
    assert row.time_s == pytest.approx(least_s)
    assert row.finish_time_s == pytest.approx(2 * least_s)
    iteration_j = FASTEST.energy_j + 0.5 * FASTEST.time_s * TASK.waiting_w
    assert row.energy_j == pytest.approx(2 * ITERATIONS * iteration_j)


def test_a_knob_that_changes_and_a_cause_multiply() -> None:
    """At 100 W the speed is sqrt(100 / 250); the cause holds from 20 to 40 s."""

    def tune(ctx: Context, running: Running) -> Knobs:
        return Knobs(250.0, wake_s=10.0) if running.moment == "start" else Knobs(100.0)

    config = stub("tune", limits_unprofiled=True, moments=(*START_MOMENTS, "wake"), tune=tune)
    paces = [Change(20.0, "neighbour", Pace(4.0, 0.5)), Change(40.0, "neighbour", FULL_PACE)]
    plain = job("a", duration_s=60.0).replace(workload=None)
    world = run_world([plain], policy_set=chosen(tune=config), paces=paces)
    (row,) = attempts(world)
    speed = math.sqrt(100 / 250)
    left_s = (60 - 10 - 10 * speed - 20 / 4 * speed) / speed
    assert row.finish_time_s == pytest.approx(40 + left_s)
    assert row.energy_j == pytest.approx(250 * 10 + 100 * 10 + 50 * 20 + 100 * left_s)


def test_of_peers_the_slowest_holds_and_other_causes_multiply() -> None:
    causes: Any = ()
    for cause, pace in ((NODE, Pace(2.0)), (STRAGGLER, Pace(3.0, 0.5)), ("a", Pace(1.5, 0.5))):
        causes = with_cause(causes, cause, pace)
    causes = with_cause(causes, "b", HALF)
    assert peers_pace(causes) == Pace(3.0, 0.5)
    assert own_pace(causes) == Pace(3.0, 0.5)
    assert with_cause(with_cause((), "b", HALF), "b", FULL_PACE) == ()


@given(imposed=st.dictionaries(names | st.text(max_size=2), slow_paces, max_size=4))
def test_causes_commute(imposed: dict[str, Pace]) -> None:
    found = set()
    for order in itertools.permutations(imposed.items()):
        causes: Any = ()
        for cause, pace in order:
            causes = with_cause(causes, cause, pace)
        found.add((causes, peers_pace(causes), own_pace(causes)))
    assert len(found) == 1


def test_a_slice_of_another_batch_size_goes_on_at_another_pace() -> None:
    """From a second after its start on, a second passes at half the pace."""
    known = by_job(profile("cnn", runs={32: (5.0,), 64: (4.0,), 128: (6.0,)}, epoch_s=100.0))
    jobs = [job("a"), job("b", 1000.0)]
    frugal = chosen(configure="frugal", tune="max-power")
    before = run_world(jobs, known, policy_set=frugal)
    time_s, job_id = next(
        (time_s, job_id)
        for time_s, job_id, chose in decided(before, "tune")
        if "slice_batch_size" in chose
    )
    paces = [Change(time_s + 1.0, "neighbour", HALF), Change(time_s + 2.0, "neighbour", FULL_PACE)]
    after = run_world(jobs, known, policy_set=frugal, paces=paces)
    assert slices_trained(after) == slices_trained(before)
    for early, late in zip(attempts(before), attempts(after), strict=True):
        added_s = 0.5 * (late.job_id == job_id)
        assert late.finish_time_s == pytest.approx(early.finish_time_s + added_s)
        assert late.time_s == pytest.approx(early.time_s)


def test_an_attempt_that_is_lost_names_the_limit_that_it_trained_at() -> None:
    """It is chosen after the first epoch, which takes some 12 s."""
    changes = [NodeChange(20.0, "down", 0), NodeChange(21.0, "up", 0)]
    policies = chosen(tune="zeus-jit")
    world = run_world([job("a")], losses=RunLosses(LossRules(), iter(changes)), policy_set=policies)
    lost, done = attempts(world)
    assert lost.power_limit_w == done.power_limit_w is not None
