"""Costs of epochs from slices: what is measured next, and what is believed of the rest."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.learning.epoch_costs import EpochCosts
from wattkeeper.policies.points.views import Measurement, Options

SIZES = (16, 32, 64, 128, 256)
LIMITS = (100.0, 150.0, 200.0, 250.0)
OPTIONS = Options("w@Gx1", "G", 1, SIZES, (LIMITS,) * 5, 64, 250.0, 50, samples_per_epoch=50_000.0)
ETA = 0.5


def slice_of(size: int, limit_w: float, epoch_s: float, power_w: float = 100.0) -> Measurement:
    return Measurement(limit_w, epoch_s, power_w, 0, size, 2.0, 2.0 * power_w)


def measure(
    costs: EpochCosts, size: int, times_s: dict[float, float], epochs: float = 1e6
) -> list[float]:
    """A run's slices of its own batch size, given the time of an epoch by limit."""
    done: list[Measurement] = []
    while (limit_w := costs.next_own(size, LIMITS, done, epochs, ETA)) is not None:
        done.append(slice_of(size, limit_w, times_s[limit_w]))
        costs.add(done[-1])
    if done:
        costs.end_own(size, LIMITS, ETA)
    return [each.power_limit_w for each in done]


def test_limits_are_measured_downwards_until_two_in_a_row_cost_much_more() -> None:
    costs = EpochCosts(250.0)
    times_s = {250.0: 100.0, 200.0: 120.0, 150.0: 130.0, 100.0: 90.0}
    assert measure(costs, 64, times_s) == [250.0, 200.0, 150.0], "100 W is never tried"
    assert costs.cheapest_limit(64, ETA) == 250.0


def test_close_limits_are_measured_again_twice() -> None:
    costs = EpochCosts(250.0)
    times_s = {250.0: 102.0, 200.0: 100.0, 150.0: 101.0, 100.0: 110.0}
    again = [measure(costs, 64, times_s) for _ in range(4)]
    assert again == [[250.0, 200.0, 150.0, 100.0], *[[200.0, 150.0, 250.0]] * 2, []]
    assert costs.points[64][200.0].slices == 3
    assert costs.points[64][100.0].slices == 1


def test_short_runs_share_the_slices_of_limits() -> None:
    """Limits that cost less than all before are measured whatever they took; others wait."""
    costs = EpochCosts(250.0)
    times_s = {250.0: 20.0, 200.0: 10.0, 150.0: 10.2, 100.0: 10.8}
    runs = [measure(costs, 64, times_s, epochs=8.0) for _ in range(3)]
    assert runs[:2] == [[250.0, 200.0, 150.0], [100.0]]
    assert runs[2] == [200.0, 150.0], (
        "known by now: those within 3 % of the cheapest are measured again"
    )
    assert costs.times == {64: 2}


def test_the_cost_counts_power_by_eta() -> None:
    costs = EpochCosts(250.0)
    costs.add(slice_of(64, 250.0, 100.0, 240.0))
    costs.add(slice_of(64, 150.0, 120.0, 140.0))
    assert costs.cheapest_limit(64, 0.0) == 250.0
    assert costs.cheapest_limit(64, 1.0) == 150.0
    expected = {250.0: 100.0 * (0.5 * 240 + 0.5 * 250), 150.0: 120.0 * (0.5 * 140 + 0.5 * 250)}
    found = {limit_w: math.exp(cost) for limit_w, cost in costs.log_costs(64, 0.5).items()}
    assert found == pytest.approx(expected)


def test_other_batch_sizes_are_measured_outwards_within_the_budget() -> None:
    costs = EpochCosts(250.0)
    measure(costs, 64, dict.fromkeys(LIMITS, 100.0))
    assert costs.next_other(OPTIONS, 64, 1.0, ETA) is None, "nothing is so cheap"
    order = []
    while (probe := costs.next_other(OPTIONS, 64, 1e9, ETA)) is not None:
        assert probe.batch_size is not None
        assert probe.power_limit_w == 150.0 or probe.power_limit_w == 200.0
        order.append(probe.batch_size)
        epoch_s = {32: 150.0, 128: 80.0, 256: 70.0, 16: 500.0}[probe.batch_size]
        costs.add(slice_of(probe.batch_size, probe.power_limit_w, epoch_s))
    assert order == [128, 32, 256, 16]


def test_a_side_ends_where_epochs_cost_three_times_the_cheapest() -> None:
    costs = EpochCosts(250.0)
    measure(costs, 64, dict.fromkeys(LIMITS, 100.0))
    order = []
    while (probe := costs.next_other(OPTIONS, 64, 1e9, ETA)) is not None:
        assert probe.batch_size is not None
        order.append(probe.batch_size)
        costs.add(slice_of(probe.batch_size, probe.power_limit_w, 400.0))
    assert order == [128, 32]


def test_what_one_limit_says_is_corrected_by_what_the_best_one_saves_elsewhere() -> None:
    costs = EpochCosts(250.0)
    measure(costs, 64, {250.0: 100.0, 200.0: 80.0, 150.0: 88.0, 100.0: 100.0})
    costs.add(slice_of(128, 150.0, 44.0))
    logs, variances = costs.expect(OPTIONS, (), ETA)
    watts = 0.5 * 100 + 0.5 * 250
    assert math.exp(logs[SIZES.index(64)]) == pytest.approx(80 * watts)
    assert math.exp(logs[SIZES.index(128)]) == pytest.approx(40 * watts)
    assert variances[SIZES.index(64)] == 0
    assert variances[SIZES.index(128)] == pytest.approx(0.05**2)
    np.testing.assert_allclose(logs[SIZES.index(256)] - logs[SIZES.index(128)], -0.15)
    np.testing.assert_allclose(logs[SIZES.index(32)] - logs[SIZES.index(64)], 0.35)
    assert variances[SIZES.index(16)] == pytest.approx((0.25 * 2) ** 2)


def test_another_gpu_type_says_what_is_not_measured_here() -> None:
    here, there = EpochCosts(250.0), EpochCosts(300.0)
    for size, epoch_s in zip(SIZES, (800.0, 400.0, 200.0, 100.0, 50.0), strict=True):
        there.add(slice_of(size, 200.0, epoch_s))
    here.add(slice_of(64, 200.0, 20.0))
    logs, variances = here.expect(OPTIONS, (there,), ETA)
    np.testing.assert_allclose(np.diff(logs), -math.log(2))
    assert variances[0] == pytest.approx(0.05**2 + 0.15**2)


slices = st.tuples(
    st.sampled_from(SIZES), st.sampled_from(LIMITS), st.floats(1e-6, 1e9), st.floats(0, 1e5)
)


@given(st.lists(slices, max_size=30), st.lists(slices, max_size=10), st.floats(0, 1))
def test_any_slices_give_finite_costs(
    mine: list[tuple[int, float, float, float]],
    theirs: list[tuple[int, float, float, float]],
    eta: float,
) -> None:
    here, there = EpochCosts(250.0), EpochCosts(300.0)
    for costs, measured in ((here, mine), (there, theirs)):
        for each in measured:
            costs.add(slice_of(*each))
    logs, variances = here.expect(OPTIONS, (there,), eta)
    assert np.isfinite(logs).all()
    assert (np.isfinite(variances) & (variances >= 0)).all()
    restored = EpochCosts.from_state(json.loads(json.dumps(here.state_dict())))
    assert restored.state_dict() == here.state_dict()
    for again, before in zip(
        restored.expect(OPTIONS, (there,), eta), (logs, variances), strict=True
    ):
        np.testing.assert_array_equal(again, before)
