"""Profiling takes an epoch, and bounds of the cost end attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.support.world_views import bounded, epochs_of
from tests.support.worlds import (
    Setting,
    attempts,
    by_job,
    chosen,
    decided,
    integral,
    run_world,
    settings_of_worlds,
    spec,
    steady,
    timeline_of,
)
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig
from wattkeeper.scenarios.contract.scripted import LIMITS_W, NEVER, job, profile


@given(setting=settings_of_worlds(["simulated"], ["measured"]))
def test_measured_an_attempt_that_profiles_runs_an_epoch(setting: Setting) -> None:
    policy_set = replace(setting.policy_set, configure=chosen(configure="zeus").configure)
    policy_set = replace(policy_set, tune=chosen(tune="zeus-jit").tune)
    rows = attempts(setting._replace(policy_set=policy_set).run())
    assert any(row.profiled for row in rows) == any(row.workload for row in rows)
    assert all(epochs_of(row) >= 1 for row in rows if row.profiled)


def test_measured_the_first_epoch_draws_the_mean_power() -> None:
    known = profile(runs={32: (4.0,)})
    curve = known.curves[32]
    cluster = spec(idle_power_w=0.0)
    world = run_world([job(scale=2.0)], by_job(known), cluster, chosen(tune="zeus-jit"))
    line = timeline_of(world)
    (row,) = attempts(world)
    points = [curve.epoch(limit) for limit in LIMITS_W]
    time_s, energy_j = (sum(values) / len(points) for values in zip(*points, strict=True))
    assert line.time_s.tolist() == pytest.approx([0.0, 2 * time_s, row.finish_time_s])
    kept_w = curve.average_power_w[curve.limits_w.index(row.power_limit_w)]
    assert line.power_w.tolist() == pytest.approx([energy_j / time_s, kept_w, 0.0], abs=1e-8)
    asked, told = decided(world, "tune")
    assert asked[0] == 0.0
    assert told[0] == pytest.approx(2 * time_s)
    assert row.profiled


def test_measured_the_profiling_epoch_is_run_even_without_room() -> None:
    known = profile(runs={32: (4.0,)})
    policy_set = chosen(configure=bounded(1e-6), tune="zeus-jit")
    world = run_world([job()], by_job(known), None, policy_set, max_attempts=2)
    first, second = attempts(world)
    assert (first.epochs, first.profiled, first.early_stopped) == (1, True, True)
    assert first.time_s == pytest.approx(np.mean(known.curves[32].time_per_epoch_s))
    assert (second.epochs, second.profiled, second.time_s) == (0, False, 0.0)


@pytest.mark.parametrize("tune", ["zeus-jit", "max-power"])
def test_foreknown_without_room_nothing_runs(tune: str) -> None:
    known = by_job(profile(runs={32: (4.0,)}))
    policy_set = chosen(configure=bounded(1e-6), tune=tune)
    jobs = [job(), job("b", 1.0)]
    world = run_world(jobs, known, None, policy_set, profiling="foreknown", max_attempts=3)
    rows = attempts(world)
    assert [(row.job_id, row.attempt) for row in rows] == [(x, n) for x in "ab" for n in (1, 2, 3)]
    for row in rows:
        assert (row.epochs, row.time_s, row.energy_j, row.cost) == (0, 0.0, 0.0, 0.0)
        assert row.start_time_s == row.finish_time_s == row.submit_time_s
        assert row.early_stopped
        assert not row.reached_target
    line = timeline_of(world)
    assert integral(line, line.power_w) == pytest.approx(20.0)


@pytest.mark.parametrize("profiling", ["measured", "foreknown"])
def test_recorded_a_profile_is_known_before_it_is_measured(profiling: str) -> None:
    settings: dict[str, Any] = {"occupancy": "recorded", "profiling": profiling}
    policy_set = chosen(tune="zeus-jit")
    jobs = [job(duration_s=30.0, scale=1.5)]
    world = run_world(jobs, by_job(profile()), None, policy_set, **settings)
    (row,) = attempts(world)
    assert row.profiled
    assert (row.start_time_s, row.finish_time_s) == (0.0, 30.0)
    assert [time_s for time_s, _, _ in decided(world, "tune")] == [0.0, 0.0]
    assert timeline_of(world).power_w[0] == pytest.approx(row.energy_j / 30.0)


def test_recorded_what_never_ran_holds_its_gpus_and_draws_nothing() -> None:
    policy_set = chosen(configure=bounded(1e-6))
    cluster = spec(idle_power_w=0.0)
    known = by_job(steady())
    world = run_world([job()], known, cluster, policy_set, occupancy="recorded", max_attempts=2)
    rows = attempts(world)
    assert [(row.start_time_s, row.finish_time_s) for row in rows] == [(0.0, 10.0), (10.0, 20.0)]
    line = timeline_of(world)
    assert integral(line, line.power_w) == 0.0


@pytest.mark.parametrize("room", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("limit_w", [100.0, 250.0])
def test_an_attempt_stops_before_the_epoch_that_would_cross_its_bound(
    room: int, limit_w: float
) -> None:
    """Time is weighed by the highest limit of the batch size, whatever it runs at."""
    known = steady(epochs=5.0)._replace(max_power_w=400.0)
    time_s, energy_j = known.curves[32].epoch(limit_w)
    epoch_cost = 0.5 * energy_j + 0.5 * 250.0 * time_s
    policy_set = chosen(
        configure=bounded((room + 0.1) * epoch_cost), tune=FixedPowerConfig(power_limit_w=limit_w)
    )
    (row,) = attempts(run_world([job()], by_job(known), None, policy_set, max_attempts=1))
    assert row.epochs == min(room, 5)
    assert row.reached_target == (room >= 5)
    assert row.early_stopped == (room < 5)


def test_a_run_that_never_reaches_is_given_up_after_its_last_epoch() -> None:
    known = profile(runs={32: (NEVER, 11.0)}, max_epochs=10)
    rows = attempts(run_world([job()], by_job(known), max_attempts=3))
    assert [row.epochs for row in rows] == [10, 10, 10]
    assert not any(row.reached_target or row.early_stopped for row in rows)
