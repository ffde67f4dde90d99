"""Chase's rule, and Zeus's, in a replay of the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.carbon import read_curve, read_hist, read_rows
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import KnownSignal
from wattkeeper.policies.forecasts.chase_svr import ChaseSvrConfig
from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.profile import Curve
from wattkeeper.policies.tune.chase import PUBLISHED_ETA, PUBLISHED_RATE, cheapest_limit

START, EPOCHS, SLOT_S = 60, 16, 1800.0
KWH_PER_JOULE = 2.77778e-7
"""As the original rounds it."""


class Slot(NamedTuple):
    step: int
    limit_w: float
    dt_s: float
    energy_j: float
    carbon_g: float


def replay(curve: Curve, series: Floats, choose: Callable[[int], float]) -> list[Slot]:
    """The slots of a job whose limit is chosen at the start of each slot."""
    slots, left = [], float(EPOCHS)
    for step in range(START, len(series)):
        limit = choose(step)
        time_s, energy_j = curve.epoch(limit)
        dt = min(SLOT_S, left * time_s)
        energy = energy_j / time_s * dt
        slots.append(Slot(step, limit, dt, energy, energy * series[step] * KWH_PER_JOULE))
        left -= dt / time_s
        if left <= 1e-12:
            break
    return slots


@pytest.fixture
def series(shared: Path) -> Floats:
    return read_hist(shared)


@pytest.fixture
def curve(shared: Path) -> Curve:
    return interpolate_limits(read_curve(shared), 5)


def rule(curve: Curve, forecast: Callable[[int], float]) -> Callable[[int], float]:
    return lambda step: cheapest_limit(curve, PUBLISHED_ETA, 300.0, forecast(step), PUBLISHED_RATE)


def svr(series: Floats) -> Callable[[int], float]:
    forecast = ChaseSvrConfig().build()

    def predict(step: int) -> float:
        known = KnownSignal(series[: step + 1], SLOT_S, step - START)
        return float(forecast.predict(known, 1)[0])

    return predict


def test_every_slot_equals_the_reference(shared: Path, series: Floats, curve: Curve) -> None:
    log = read_rows(shared / "reference/chase/log_chase_bs128_eta0.24_5W-pchip.csv")
    ours = replay(curve, series, rule(curve, svr(series)))
    assert [slot.step for slot in ours] == [int(row["step"]) for row in log]
    assert [slot.limit_w for slot in ours] == [float(row["power_limit_W"]) for row in log]
    for slot, row in zip(ours, log, strict=True):
        assert slot.dt_s == pytest.approx(float(row["dt_s"]), abs=0.1)
        assert slot.energy_j == pytest.approx(float(row["energy_J"]), abs=0.1)
        assert series[slot.step] == pytest.approx(float(row["ci_actual"]), abs=1e-3)


def test_every_mode_equals_the_reference(shared: Path, series: Floats, curve: Curve) -> None:
    zeus = cheapest_limit(curve, PUBLISHED_ETA, 300.0)
    modes = {
        "chase": rule(curve, svr(series)),
        "oracle": rule(curve, lambda step: series[step]),
        "zeus": lambda step: zeus,
        "max": lambda step: 300.0,
    }
    highest = replay(curve, series, modes["max"])
    rows = read_rows(shared / "reference/chase/summary.csv")
    assert {row["mode"] for row in rows} == set(modes)
    for row in rows:
        ours = replay(curve, series, modes[row["mode"]])
        time_s, energy_j, carbon_g = (sum(slot[i] for slot in ours) for i in (2, 3, 4))
        assert time_s == pytest.approx(float(row["time_s"]), abs=0.1)
        assert energy_j == pytest.approx(float(row["energy_J"]), abs=0.1)
        assert carbon_g == pytest.approx(float(row["carbon_g"]), abs=1e-3)
        saved = 100 * (1 - carbon_g / sum(slot.carbon_g for slot in highest))
        slower = 100 * (time_s / sum(slot.dt_s for slot in highest) - 1)
        assert saved == pytest.approx(float(row["carbon_reduction_pct"]), abs=0.01)
        assert slower == pytest.approx(float(row["slowdown_pct"]), abs=0.01)
        assert {slot.limit_w for slot in ours} == set(map(float, row["pls_used"].split()))


def test_on_recorded_limits_it_uses_one(shared: Path, series: Floats) -> None:
    """As the reference says of the grid of 25 W."""
    curve = read_curve(shared)
    assert len({slot.limit_w for slot in replay(curve, series, rule(curve, svr(series)))}) == 1


def test_of_equal_limits_the_lowest_is_taken() -> None:
    curve = Curve(8, (100.0, 150.0, 200.0), (4.0, 2.0, 2.0), (50.0, 100.0, 100.0), (3.0,))
    assert cheapest_limit(curve, 1.0, 200.0) == 100
    assert cheapest_limit(curve, 0.0, 200.0) == 150
    assert cheapest_limit(curve, 0.5, 200.0, rate=0.0) == 150
