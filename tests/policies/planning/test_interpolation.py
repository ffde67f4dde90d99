"""Interpolation between recorded power limits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from tests.support.carbon import read_curve
from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.planning.interpolation import interpolate_limits, monotone_cubic
from wattkeeper.policies.profile import Curve

CURVE = Curve(8, (100.0, 125.0, 160.0), (10.0, 6.0, 5.0), (90.0, 110.0, 150.0), (4.0, math.inf))
values = st.floats(-1e3, 1e3).map(lambda value: round(value, 2))


@given(
    table=st.lists(
        st.tuples(st.integers(0, 500), values),
        min_size=2,
        max_size=12,
        unique_by=lambda point: point[0],
    ),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_it_equals_scipy(table: list[tuple[int, float]], shares: list[float]) -> None:
    x, y = np.array(sorted(table), dtype=np.float64).T
    points = np.append(x, x[0] + np.array(shares) * (x[-1] - x[0]))
    ours = monotone_cubic(x, y, points)
    assert ours == pytest.approx(PchipInterpolator(x, y)(points), abs=1e-9)
    assert ours[: len(x)] == pytest.approx(y, abs=1e-9)


def test_recorded_limits_stay_and_others_are_marked() -> None:
    finer = interpolate_limits(CURVE, 10)
    assert list(finer.limits_w) == [100, 110, 120, 125, 130, 140, 150, 160]
    assert finer.interpolated
    assert (finer.batch_size, finer.epochs) == (CURVE.batch_size, CURVE.epochs)
    for limit in CURVE.limits_w:
        assert finer.epoch(limit) == CURVE.epoch(limit)
    speed = PchipInterpolator(CURVE.limits_w, 1 / np.array(CURVE.time_per_epoch_s))
    power = PchipInterpolator(CURVE.limits_w, CURVE.average_power_w)
    for limit, time_s, power_w in zip(
        finer.limits_w, finer.time_per_epoch_s, finer.average_power_w, strict=True
    ):
        assert 1 / time_s == pytest.approx(float(speed(limit)))
        assert power_w == pytest.approx(float(power(limit)))
    assert all(type(value) is float for value in finer.limits_w + finer.time_per_epoch_s)


def test_what_gets_no_further_limit_is_not_marked() -> None:
    assert interpolate_limits(CURVE, 100) == CURVE
    one = CURVE._replace(limits_w=(1.0,), time_per_epoch_s=(5.0,), average_power_w=(0.0,))
    assert interpolate_limits(one, 5) is one
    with pytest.raises(ValueError, match="a step of 0 W"):
        interpolate_limits(CURVE, 0)


def test_two_limits_give_straight_lines() -> None:
    two = Curve(8, (100.0, 120.0), (10.0, 5.0), (90.0, 110.0), (4.0,))
    finer = interpolate_limits(two, 10)
    assert finer.average_power_w == pytest.approx((90, 100, 110))
    assert finer.time_per_epoch_s == pytest.approx((10, 1 / 0.15, 5))


def test_the_grid_of_the_chase_reference(shared: Path) -> None:
    finer = interpolate_limits(read_curve(shared), 5)
    assert list(finer.limits_w) == list(range(100, 301, 5))
    _, energy_j = finer.epoch(245)
    time_s = finer.time_per_epoch_s[finer.limits_w.index(245)]
    assert energy_j / time_s * 1800 == pytest.approx(383227.597, abs=1e-3)


def test_millions_of_limits_are_refused() -> None:
    """Limits in mW, say, which no run could measure."""
    wide = Curve(8, (100_000.0, 500_000.0), (10.0, 5.0), (90.0, 110.0), (4.0,))
    with pytest.raises(InputError) as caught:
        interpolate_limits(wide, 0.1)
    assert_states(str(caught.value), "4,000,001 power limits", "100000 to 500000 W", "10,000")
