"""Plans of one slot ahead: deadlines, pauses, restarts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.planning.test_optimum import POINTS, points
from tests.support.carbon import read_curve, read_year
from tests.support.deadlines import Predict, replay_plan, replay_static
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import ForecastConfig, KnownSignal
from wattkeeper.policies.forecasts.history import HistoryConfig
from wattkeeper.policies.forecasts.noisy import NoisyConfig
from wattkeeper.policies.planning.deadline import (
    SHORTEST_S,
    Menu,
    Step,
    add_surcharge,
    best_static,
    plan_step,
    split_time,
)
from wattkeeper.policies.planning.hull import SpeedPoint, fastest, paused, speed_points
from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.planning.optimum import fill

SLOT_S = 900.0


def test_slots_end_at_the_deadline() -> None:
    assert split_time(100.0, 900.0, 900.0, 3000.0).tolist() == [800, 900, 900, 300]
    assert split_time(100.0, 900.0, 900.0, 2700.0).tolist() == [800, 900, 900]
    assert split_time(100.0, 900.0, 900.0, 500.0).tolist() == [400]
    assert split_time(100.0, math.inf, math.nan, 500.0).tolist() == [400], "a constant signal"


def test_a_surcharge_is_on_the_future_alone() -> None:
    assert add_surcharge(np.array([10.0, 20.0, -20.0]), 0.1).tolist() == [10, 22, -18]


def test_it_waits_for_a_clean_slot_and_not_for_a_dirty_one() -> None:
    menu, lengths = Menu(POINTS), np.full(4, SLOT_S)
    work = 2.4 * SLOT_S
    clean = np.array([300.0, 300.0, 100.0, 300.0])
    assert plan_step(menu, clean, lengths, work) == Step(paused(0.0))
    assert plan_step(menu, clean[::-1].copy(), lengths, work) == Step(paused(0.0))
    now = np.array([100.0, 300.0, 300.0, 300.0])
    assert plan_step(menu, now, lengths, work) == Step(POINTS[2])
    assert plan_step(menu, now, lengths, 2.9 * SLOT_S * 4) == Step(POINTS[3])
    assert plan_step(menu, now, lengths, 3.0 * SLOT_S * 4) == Step(POINTS[3]), "too late"
    never = menu._replace(idle_w=None)
    assert plan_step(never, clean, lengths, work).point.speed > 0


def test_a_slot_is_split_between_neighbours() -> None:
    lengths, rates = np.full(1, SLOT_S), np.ones(1)
    for speed, for_s in ((2.65, SLOT_S / 2), (2.401, SHORTEST_S), (2.899, 898.2)):
        step = plan_step(Menu(POINTS), rates, lengths, speed * SLOT_S)
        assert step.point == POINTS[3]
        assert step.for_s == pytest.approx(for_s)


def test_a_price_below_zero_pays_for_power() -> None:
    """Of the mixes with the speed that is left to do, the one that draws most is taken."""
    wasteful = SpeedPoint(2.4, 230.0, 200.0)
    rates, lengths, work = np.array([-50.0, 900.0]), np.full(2, SLOT_S), 2.4 * SLOT_S
    menu = Menu((*POINTS, wasteful))
    assert plan_step(menu, rates, lengths, work).point == wasteful
    assert plan_step(menu, -rates[::-1], lengths, work).point == wasteful
    assert plan_step(menu, rates + 60, lengths, work).point == POINTS[2]


def test_a_restart_is_paid_for() -> None:
    """A pause of one slot that saves less than its restart costs is left out, and so is a run."""
    lengths = np.full(8, SLOT_S)
    rates = np.array([301.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0])
    work = 2.4 * SLOT_S * 6
    dear = Menu(POINTS, restart_s=300.0)
    assert plan_step(dear._replace(restart_s=0.0), rates, lengths, work).point == paused(0.0)
    assert plan_step(dear, rates, lengths, work).point == POINTS[2]
    assert plan_step(dear, rates, lengths, work, is_paused=True).point == paused(0.0)
    rates = np.array([250.0, 300.0, 299.0, 200.0, 300.0, 300.0, 300.0, 300.0])
    work = 2.4 * SLOT_S * 2
    assert plan_step(dear, rates, lengths, work).point == POINTS[2]
    assert plan_step(dear, rates, lengths, work, is_paused=True).point == paused(0.0)
    rates[0] = 100.0
    assert plan_step(dear, rates, lengths, work, is_paused=True).point == POINTS[2]
    rates = np.array([299.0, *[300.0] * 7])
    assert plan_step(dear, rates, lengths, work, is_paused=True).point == POINTS[2], "the only run"


rates_by_slot = st.lists(st.floats(-100, 700), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    points=points,
    rates=rates_by_slot,
    wrong=st.lists(st.floats(-100, 700), min_size=8, max_size=8),
    haste=st.floats(0.05, 1.3),
    restart_s=st.sampled_from([0.0, 70.0, 1200.0]),
    idle_w=st.sampled_from([None, 0.0, 30.0]),
    slots=st.floats(0.3, 8),
)
def test_a_deadline_that_full_speed_meets_is_never_missed(
    points: tuple[SpeedPoint, ...],
    rates: list[float],
    wrong: list[float],
    haste: float,
    restart_s: float,
    idle_w: float | None,
    slots: float,
) -> None:
    """Whatever the forecast says; without haste beyond full speed, the job ends at full speed."""
    menu = Menu(points, idle_w, restart_s)
    deadline_s = slots * SLOT_S
    work = haste * fastest(points).speed * deadline_s
    true, forecast = np.resize(rates, 40), np.resize(wrong, 40)
    done = replay_plan(menu, true, SLOT_S, work, deadline_s, lambda slot, n: forecast[slot:][:n])
    least_s = work / fastest(points).speed
    assert done.end_s <= max(deadline_s, least_s) + 1e-6


def predictor(config: ForecastConfig, series: Floats, start: int) -> Predict:
    forecast = config.build()

    def predict(slot: int, slots: int) -> Floats:
        here = start + slot
        known = KnownSignal(
            series[: here + 1],
            SLOT_S,
            slot,
            series[here : here + slots],
            lambda: np.random.default_rng([1, here]),
        )
        predicted: Floats = forecast.predict(known, slots)
        return predicted

    return predict


@pytest.mark.slow
@pytest.mark.parametrize("slack", [0.25, 1.0])
@pytest.mark.parametrize("forecast", ["history", "day-ahead"])
def test_it_saves_more_than_the_best_static_limit(
    shared: Path, slack: float, forecast: str
) -> None:
    """Carbon in per cent of that at 300 W: mean over 40 starts in a year of two countries."""
    points = speed_points(interpolate_limits(read_curve(shared), 5))
    top, goals = (
        fastest(points),
        {
            ("history", 0.25): 0.7,
            ("day-ahead", 0.25): 1.5,
            ("history", 1.0): 4.0,
            ("day-ahead", 1.0): 6.0,
        },
    )
    config = HistoryConfig(fade_s=86_400) if forecast == "history" else NoisyConfig()
    time_s = 86_400.0
    work, deadline_s = top.speed * time_s, time_s * (1 + slack)
    static = best_static(points, work, deadline_s)
    slots = round(deadline_s / SLOT_S)
    for country in ("de", "nl"):
        series = read_year(shared, country)
        gains, short = [], []
        for start in np.linspace(7 * 96, len(series) - slots - 1, 40).astype(int):
            rates = series[start:]
            full = replay_static(top, rates, SLOT_S, work)
            best = replay_static(static, rates, SLOT_S, work)
            done = replay_plan(
                Menu(points),
                rates,
                SLOT_S,
                work,
                deadline_s,
                predictor(config, series, start),
                0.05,
            )
            bound = fill((*points, paused(0.0)), rates[:slots], np.full(slots, SLOT_S), work)
            assert bound is not None
            assert done.cost >= bound.cost * (1 - 1e-9)
            assert done.end_s <= deadline_s + 1e-6
            gains.append(100 * (best - done.cost) / full)
            short.append(100 * (done.cost - bound.cost) / full)
        assert np.mean(gains) >= goals[forecast, slack], country
        assert np.min(gains) > -10
