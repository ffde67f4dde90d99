"""The offline optimum against HiGHS."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.hull import SpeedPoint, paused
from wattkeeper.policies.planning.optimum import fill, fill_until_done

point = st.builds(
    SpeedPoint,
    st.integers(1, 40).map(float),
    st.integers(50, 400).map(float),
    st.integers(100, 300).map(float),
)
points = st.lists(point, min_size=1, max_size=6).map(tuple)
menus = st.builds(
    lambda running, idle_w: running if idle_w is None else (*running, paused(idle_w)),
    points,
    st.sampled_from([None, 0.0, 30.0]),
)
slot = st.tuples(st.floats(-50, 700).map(lambda rate: round(rate, 1)), st.sampled_from([3.0, 9.0]))
slots = st.lists(slot, min_size=1, max_size=7)
share = st.floats(0, 1).map(lambda value: round(value, 3))
POINTS = tuple(
    SpeedPoint(v, p, w)
    for v, p, w in (
        (1.0, 115.0, 100.0),
        (1.8, 144.0, 150.0),
        (2.4, 160.0, 175.0),
        (2.9, 244.0, 300.0),
    )
)


def solve(
    may: Sequence[Sequence[SpeedPoint]], rates: Floats, lengths: Floats, work: float
) -> float | None:
    """HiGHS's optimum: the time of each slot at each of its points."""
    columns = [(slot, point) for slot, points in enumerate(may) for point in points]
    cost = [point.power_w * rates[slot] for slot, point in columns]
    speeds = [point.speed for _, point in columns]
    share = [[float(slot == at) for slot, _ in columns] for at in range(len(may))]
    matrix, right = np.vstack([*share, speeds]), np.append(lengths, work)
    solved = linprog(cost, A_eq=matrix, b_eq=right, method="highs")
    return float(solved.fun) if solved.success else None


@settings(max_examples=150, deadline=None)
@given(points=menus, slots=slots, share=share)
def test_fill_equals_highs(
    points: tuple[SpeedPoint, ...], slots: list[tuple[float, float]], share: float
) -> None:
    rates, lengths = (np.array(column) for column in zip(*slots, strict=True))
    slowest, fastest = (pick(point.speed for point in points) for pick in (min, max))
    work = float(lengths.sum()) * (slowest + share * (fastest - slowest))
    plan = fill(points, rates, lengths, work)
    best = solve([points] * len(rates), rates, lengths, work)
    assert plan is not None
    assert best is not None
    assert plan.cost == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert plan.speeds @ lengths == pytest.approx(work)
    assert plan.speeds.min() >= slowest - 1e-9
    assert plan.speeds.max() <= fastest + 1e-9


@settings(max_examples=80, deadline=None)
@given(points=menus, slots=slots, share=share)
def test_fill_until_done_equals_the_best_end_of_highs(
    points: tuple[SpeedPoint, ...], slots: list[tuple[float, float]], share: float
) -> None:
    rates, lengths = (np.array(column) for column in zip(*slots, strict=True))
    work = float(lengths.sum()) * share * max(point.speed for point in points)
    plan = fill_until_done(points, rates, lengths, work)
    ends = [
        solve([*[points] * end, (*points, paused(0.0))], rates[: end + 1], lengths[: end + 1], work)
        for end in range(len(rates))
    ]
    possible = [cost for cost in ends if cost is not None]
    assert (plan is not None) == bool(possible)
    if plan is not None:
        assert plan.cost == pytest.approx(min(possible), rel=1e-6, abs=1e-6)
        assert plan.speeds @ lengths == pytest.approx(work)
        assert not plan.speeds[plan.used :].any()


def test_what_cannot_be_done_has_no_plan() -> None:
    rates, lengths = np.array([1.0, 2.0]), np.array([10.0, 10.0])
    assert fill(POINTS, rates, lengths, 58.1) is None
    assert fill(POINTS, rates, lengths, 19.9) is None, "it is faster even at its lowest limit"
    assert fill_until_done(POINTS, rates, lengths, 58.1) is None
    exact = fill(POINTS, rates, lengths, 58.0)
    assert exact is not None
    assert exact.speeds.tolist() == [2.9, 2.9]
    assert exact.marginal == np.inf


def test_of_equal_slots_the_earlier_ones_work() -> None:
    rates, lengths = np.full(6, 300.0), np.full(6, 900.0)
    plan = fill((*POINTS, paused(0.0)), rates, lengths, 2.4 * 900 * 2.5)
    assert plan is not None
    assert plan.speeds == pytest.approx([2.4, 2.4, 1.2, 0, 0, 0])
    assert plan.marginal == pytest.approx(300 * 160 / 2.4)


def test_a_year_is_one_sort() -> None:
    """35,040 quarters of an hour in well under a second, against hours of a general solver."""
    rng = np.random.default_rng(0)
    rates, lengths = rng.uniform(50, 500, 35_040), np.full(35_040, 900.0)
    began = time.process_time()
    plan = fill((*POINTS, paused(0.0)), rates, lengths, 1.0 * lengths.sum())
    assert time.process_time() - began < 1
    assert plan is not None
    assert plan.speeds @ lengths == pytest.approx(lengths.sum())
    cheap, dear = rates < np.quantile(rates, 0.3), rates > np.quantile(rates, 0.7)
    assert plan.speeds[cheap].min() >= 2.4 - 1e-9
    assert plan.speeds[dear].max() == 0
