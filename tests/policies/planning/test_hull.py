"""Hulls of operating points, and mixes of neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.policies.planning.test_optimum import POINTS, points, share
from wattkeeper.policies.planning.hull import (
    SpeedPoint,
    fastest,
    lower_hull,
    mix,
    speed_points,
    upper_hull,
)
from wattkeeper.policies.profile import Curve


def test_points_of_a_curve() -> None:
    curve = Curve(8, (100.0, 150.0), (4.0, 2.0), (90.0, 140.0), (3.0,))
    assert speed_points(curve) == (SpeedPoint(0.25, 90, 100), SpeedPoint(0.5, 140, 150))


@given(points=points)
def test_hulls_bound_all_points(points: tuple[SpeedPoint, ...]) -> None:
    for hull, sign in ((lower_hull(points), 1), (upper_hull(points), -1)):
        assert set(hull) <= set(points)
        speeds, power = (
            np.array([getattr(p, name) for p in hull]) for name in ("speed", "power_w")
        )
        assert (np.diff(speeds) > 0).all()
        assert (np.diff(sign * np.diff(power) / np.diff(speeds)) > 0).all()
        for each in points:
            on_hull = np.interp(each.speed, speeds, power)
            assert sign * each.power_w >= sign * on_hull - 1e-9
        assert {hull[0].speed, hull[-1].speed} == {
            pick(each.speed for each in points) for pick in (min, max)
        }


@given(points=points, share=share)
def test_a_mix_has_the_speed_asked_for(points: tuple[SpeedPoint, ...], share: float) -> None:
    hull = lower_hull(points)
    speed = hull[0].speed + share * (hull[-1].speed - hull[0].speed)
    mixed = mix(hull, speed)
    assert sum(part for _, part in mixed) == pytest.approx(1)
    assert sum(part * point.speed for point, part in mixed) == pytest.approx(speed)
    assert all(part > 0 for _, part in mixed)
    assert [point.speed for point, _ in mixed] == sorted((p.speed for p, _ in mixed), reverse=True)


def test_the_fastest_point_draws_least_of_equals() -> None:
    equal = SpeedPoint(2.9, 230.0, 275.0)
    assert fastest((*POINTS, equal)) == equal
    assert lower_hull((*POINTS, equal))[-1] == equal
