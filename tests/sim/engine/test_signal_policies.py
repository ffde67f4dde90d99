"""`tune: chase` and `tune: deadline` in a world, on recorded series of carbon intensity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.carbon import read_curve, read_hist, read_rows, read_year
from tests.support.deadlines import replay_static
from tests.support.examples import examples
from tests.support.worlds import attempts, by_job, chosen, decisions, run_world, spec, timeline_of
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import ForecastConfig
from wattkeeper.policies.forecasts.chase_svr import ChaseSvrConfig
from wattkeeper.policies.forecasts.day_before import DayBeforeConfig
from wattkeeper.policies.forecasts.history import HistoryConfig
from wattkeeper.policies.forecasts.perfect import PerfectConfig
from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.policies.planning.deadline import Menu, best_static
from wattkeeper.policies.planning.hull import fastest, speed_points
from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.planning.optimum import fill, fill_until_done
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.profile import Curve, Profile
from wattkeeper.policies.tune.chase import ChaseConfig
from wattkeeper.policies.tune.deadline import DeadlineConfig
from wattkeeper.scenarios.contract.scripted import LIMITS_W, curve, job, profile
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams


def signal(
    values: Floats, slot_s: float, forecast: ForecastConfig, first: int = 0
) -> dict[str, Signal]:
    """Carbon intensities; second 0 begins the slot with the index `first`."""
    starts = (np.arange(len(values)) - np.float64(first)) * slot_s
    series = SignalSeries("carbon", starts, values, float(starts[-1] + slot_s), "g/kWh")
    return {"carbon": Signal(series, forecast, NamedStreams(1))}


def one_profile(curve: Curve) -> Profile:
    """A workload of one batch size that always takes the same number of epochs."""
    return replace_curve(profile(runs={curve.batch_size: (16.0,)}, max_epochs=16), curve)


def replace_curve(plain: Profile, curve: Curve) -> Profile:
    return plain._replace(
        curves={curve.batch_size: curve}, max_power_w=300.0, default_batch_size=curve.batch_size
    )


def replace_workload(plain: Job) -> Job:
    """The same job without a workload."""
    return plain.replace(workload=None)


def limits(world: World) -> list[tuple[float, float | None]]:
    """Time and power limit of all decisions of `Tune`; None: nothing changes."""
    found = []
    for row in decisions(world):
        if row.point == "tune":
            words = dict(word.split("=", 1) for word in row.chose.split() if "=" in word)
            limit = words.get("power_limit_w")
            found.append((row.time_s, None if limit is None else float(limit)))
    return found


def test_chase_equals_the_reference(shared: Path) -> None:
    log = read_rows(shared / "reference/chase/log_chase_bs128_eta0.24_5W-pchip.csv")
    rows = read_rows(shared / "reference/chase/summary.csv")
    (wanted,) = (row for row in rows if row["mode"] == "chase")
    known = by_job(one_profile(interpolate_limits(read_curve(shared), 5)))
    signals = signal(read_hist(shared), 1800.0, ChaseSvrConfig(), first=60)
    world = run_world([job()], known, policy_set=chosen(tune=ChaseConfig()), signals=signals)
    (row,) = attempts(world)
    assert row.time_s == pytest.approx(float(wanted["time_s"]), abs=0.1)
    assert row.energy_j == pytest.approx(float(wanted["energy_J"]), abs=0.1)
    assert row.finish_time_s == pytest.approx(float(wanted["time_s"]), abs=0.1)
    chosen_w = None
    for (time_s, limit_w), slot in zip(limits(world), log, strict=True):
        assert time_s == (int(slot["step"]) - 60) * 1800.0
        chosen_w = limit_w or chosen_w
        assert chosen_w == float(slot["power_limit_W"])


def test_chase_measures_where_it_knows_no_profile(shared: Path) -> None:
    """All limits once for a group; then as with a known profile."""
    known = by_job(one_profile(read_curve(shared)))
    signals = signal(np.full(200, 600.0), 1800.0, PersistenceConfig())
    policy = ChaseConfig(profile="measured", eta=0.9)
    jobs = [job("a", group="g"), job("b", 90_000.0, group="g")]
    world = run_world(jobs, known, policy_set=chosen(tune=policy), signals=signals)
    first, second = attempts(world)
    assert (first.profiled, second.profiled) == (True, False)
    foreseen = run_world(jobs, known, policy_set=chosen(tune=ChaseConfig(eta=0.9)), signals=signals)
    assert attempts(foreseen)[1].energy_j == pytest.approx(second.energy_j)


@pytest.mark.parametrize("holds", [False, True])
def test_a_deadline_is_met_with_less_carbon(shared: Path, holds: bool) -> None:
    """A day's work in two days, in Germany in 2022: between bound and static limit."""
    finer = interpolate_limits(read_curve(shared), 5)
    points = speed_points(finer)
    work, first, idle_w = 86_400 * fastest(points).speed, 15_000, 30.0 if holds else 0.0
    series = read_year(shared, "de")
    hardware = replace(spec(idle_power_w=idle_w), checkpoint_s=60.0, restore_s=240.0)
    world = run_world(
        [job(scale=work / 16).replace(deadline_s=172_800.0)],
        by_job(one_profile(finer)),
        hardware,
        chosen(tune=DeadlineConfig(paused_w=idle_w, restart_s=300.0)),
        holds_pauses=holds,
        signals=signal(series, 900.0, HistoryConfig(), first),
    )
    (row,) = attempts(world)
    assert row.reached_target
    assert row.finish_time_s <= 172_800.0
    told = [each.chose for each in decisions(world) if each.point == "tune"]
    assert any("run=pause" in each for each in told)
    rates = series[first : first + 192]
    line, starts = timeline_of(world), np.arange(192) * 900.0
    times = np.union1d(line.time_s, starts)
    times = times[times <= row.finish_time_s]
    power_w = line.power_w[np.searchsorted(line.time_s, times[:-1], side="right") - 1]
    rate = rates[np.searchsorted(starts, times[:-1], side="right") - 1]
    cost = float((power_w * rate) @ np.diff(times))
    menu = Menu(points, idle_w)
    bound = (fill_until_done if holds else fill)(menu.points, rates, np.full(192, 900.0), work)
    static = replay_static(best_static(points, work, 172_800.0), rates, 900.0, work)
    assert bound is not None
    assert bound.cost < cost < 0.95 * static


@settings(max_examples=examples(60), deadline=None)
@given(
    rates=st.lists(st.floats(0, 500), min_size=3, max_size=30),
    slack=st.floats(0, 2),
    restart=st.sampled_from([(0.0, 0.0), (3.0, 0.0), (3.0, 8.0)]),
    holds=st.booleans(),
    pauses=st.booleans(),
    scale=st.sampled_from([1.0, 7.3]),
    known=st.booleans(),
)
def test_no_deadline_that_full_speed_meets_is_missed(
    rates: list[float],
    slack: float,
    restart: tuple[float, float],
    holds: bool,
    pauses: bool,
    scale: float,
    known: bool,
) -> None:
    """Whatever the series is, and whatever a restart costs, if the policy is told."""
    curve_16 = curve(16, (9.0,))
    plain = profile(runs={16: (9.0,)}, max_epochs=9)._replace(
        curves={16: curve_16}, default_batch_size=16
    )
    least_s = 9 * curve_16.epoch(max(LIMITS_W))[0] * scale
    # Profiling takes an epoch at the mean speed of all limits.
    profiling_s = 0.0 if known else scale * 2 * max(curve_16.time_per_epoch_s)
    deadline_s = 5.0 + profiling_s + least_s * (1 + slack)
    checkpoint_s, restore_s = restart
    policy = DeadlineConfig(
        pauses=pauses,
        restart_s=sum(restart),
        paused_w=20.0 if holds else 0.0,
        profile="known" if known else "measured",
    )
    world = run_world(
        [job("a", 5.0, scale=scale).replace(deadline_s=deadline_s)],
        by_job(plain),
        replace(spec(), checkpoint_s=checkpoint_s, restore_s=restore_s),
        chosen(tune=policy),
        holds_pauses=holds,
        signals=signal(np.resize(rates, 200), 60.0, PersistenceConfig()),
    )
    (row,) = attempts(world)
    assert row.reached_target
    assert row.epochs == 9
    assert row.finish_time_s <= deadline_s + 1e-6


@pytest.mark.parametrize("holds", [False, True])
def test_a_job_without_a_profile_meets_its_deadline_by_the_model(holds: bool) -> None:
    """It pauses while the series is high, and ends in time with less energy."""
    plain = replace_workload(job("a", 0.0, duration_s=600.0))
    rates = np.array([500.0] * 8 + [100.0] * 8 + [500.0] * 24)
    world = run_world(
        [plain.replace(deadline_s=1500.0)],
        policy_set=chosen(tune=DeadlineConfig(paused_w=20.0 if holds else 0.0)),
        signals=signal(rates, 60.0, PerfectConfig()),
        holds_pauses=holds,
    )
    (row,) = attempts(world)
    assert row.finish_time_s <= 1500.0 + 1e-6
    assert row.time_s > 600.0
    assert row.energy_j < 600.0 * 250.0
    told = [each.chose for each in decisions(world) if each.point == "tune"]
    assert any("run=pause" in each for each in told)


def test_chase_limits_jobs_without_a_profile() -> None:
    plain = replace_workload(job("a", 0.0, duration_s=600.0))
    for policy, is_slower in (
        (ChaseConfig(eta=1.0), True),
        (ChaseConfig(eta=0.0), False),
        (ChaseConfig(profile="measured", eta=1.0), False),
    ):
        signals = signal(np.full(60, 300.0), 60.0, PersistenceConfig())
        (row,) = attempts(run_world([plain], policy_set=chosen(tune=policy), signals=signals))
        assert (row.finish_time_s > 600.0) == is_slower


def test_without_a_deadline_a_job_runs_at_full_speed() -> None:
    signals = signal(np.full(200, 300.0), 60.0, DayBeforeConfig())
    world = run_world([job()], policy_set=chosen(tune=DeadlineConfig()), signals=signals)
    full = run_world([job()])
    assert attempts(world)[0].finish_time_s == pytest.approx(attempts(full)[0].finish_time_s)


def test_energy_alone_needs_no_signal() -> None:
    plain = job()
    full = attempts(run_world([plain]))[0]
    late = 2 * full.finish_time_s
    policy = DeadlineConfig(signal=None)
    (row,) = attempts(run_world([plain.replace(deadline_s=late)], policy_set=chosen(tune=policy)))
    assert row.reached_target
    assert row.finish_time_s <= late
    assert row.energy_j < full.energy_j
