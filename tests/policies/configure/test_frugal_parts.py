"""The parts of `frugal`: beliefs on epochs, costs of epochs, and the lookahead."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.configure._epoch_belief import EpochBelief, Stop, _stop
from wattkeeper.policies.configure._epoch_costs import EpochCosts
from wattkeeper.policies.configure._lookahead import Lookahead
from wattkeeper.policies.configure._normal import hazard, normal_cdf
from wattkeeper.policies.protocols import Measurement, Options

SIZES = (8, 16, 32, 64, 128)
LIMITS = (100.0, 150.0, 200.0, 250.0)


def options(max_epochs: int = 30) -> Options:
    limits = (LIMITS,) * len(SIZES)
    return Options("w@G", "G", 1, SIZES, limits, 32, 250.0, max_epochs, samples_per_epoch=50_000.0)


def measured(batch_size: int, limit_w: float, time_s: float, power_w: float) -> Measurement:
    return Measurement(limit_w, time_s, power_w, 0, batch_size, 3.0, 3.0 * power_w)


def test_the_normal_distribution() -> None:
    assert normal_cdf(np.array([[0.0, 1.96]])) == pytest.approx(np.array([[0.5, 0.9750021]]))
    for value in (-5.0, 0.0, 3.0, 20.0, 36.0, 40.0, 200.0):
        steps = np.linspace(0, 40 / max(1.0, value), 200_001)
        ratio = np.exp(-steps * value - steps**2 / 2)  # density beyond, over that at the value
        exceeds = float(((ratio[1:] + ratio[:-1]) / 2 * np.diff(steps)).sum())
        if value >= 0:
            assert hazard(value) == pytest.approx(1 / exceeds, rel=1e-3)
    assert hazard(-30.0) == pytest.approx(0.0)


def test_the_posterior_is_that_of_all_runs() -> None:
    """Regression on means by batch size equals that on single runs."""
    belief = EpochBelief(32)
    runs = [(32, 10), (32, 12), (64, 9), (16, 14), (16, 15), (16, 13)]
    for batch_size, epochs in runs:
        belief.add(batch_size, epochs, True)
    found = belief.posterior(SIZES)
    x = np.array([math.log2(size / 32) for size in SIZES])
    prior, covariance = belief._prior(x)
    own = [SIZES.index(batch_size) for batch_size, _ in runs]
    noise = np.diag(found.noise[own])
    gain = covariance[:, own] @ np.linalg.inv(covariance[np.ix_(own, own)] + noise)
    y = np.log([epochs for _, epochs in runs])
    assert found.mean == pytest.approx(prior + gain @ (y - prior[own]))
    assert found.covariance == pytest.approx(covariance - gain @ covariance[:, own].T)


@pytest.mark.parametrize("epochs", [3, 8, 30])
def test_a_stop_truncates_the_belief(epochs: int) -> None:
    """Moments of a normal variable whose noisy observation exceeds a bound, by quadrature."""
    mean, covariance = np.array([2.0, 2.3]), np.array([[0.20, 0.12], [0.12, 0.30]])
    noise, bound = 0.04, math.log(epochs + 0.5)
    f = np.linspace(mean[0] - 6, mean[0] + 6, 40_001)
    weight = np.exp(-0.5 * (f - mean[0]) ** 2 / covariance[0, 0])
    weight = weight * normal_cdf((f - bound) / math.sqrt(noise))
    weight /= weight.sum()
    own = float((weight * f).sum())
    spread = float((weight * (f - own) ** 2).sum())
    slope = covariance[0, 1] / covariance[0, 0]
    after, around = _stop(mean, covariance, noise, 0, Stop(epochs, 0.0))
    assert after == pytest.approx([own, mean[1] + slope * (own - mean[0])], rel=1e-6)
    assert around[0, 0] == pytest.approx(spread, rel=1e-6)
    assert around[0, 1] == pytest.approx(slope * spread, rel=1e-6)
    left = covariance[1, 1] - slope**2 * (covariance[0, 0] - spread)
    assert around[1, 1] == pytest.approx(left, rel=1e-6)
    certain, same = _stop(mean, covariance, noise, 0, Stop(epochs, 1.0))
    assert certain == pytest.approx(mean), "it never ends: nothing is learnt of its epochs"
    assert same == pytest.approx(covariance)


runs = st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 30), st.booleans()), max_size=40)


@given(runs)
def test_beliefs_stay_finite_and_survive_json(seen: list[tuple[int, int, bool]]) -> None:
    belief = EpochBelief(32)
    for run in seen:
        belief.add(*run)
    found = belief.posterior(SIZES)
    for values in (found.mean, found.covariance, found.noise):
        assert np.isfinite(values).all()
    assert (np.diag(found.covariance) > 0).all()
    assert ((found.misses >= 0) & (found.misses < 1)).all()
    state = json.loads(json.dumps(belief.state_dict()))
    again = EpochBelief.from_state(state).posterior(SIZES)
    assert again.mean.tolist() == found.mean.tolist()
    assert again.covariance.tolist() == found.covariance.tolist()


@given(runs, st.floats(1, 100), st.lists(st.floats(0.01, 1e3), min_size=5, max_size=5))
def test_lookahead_is_finite_and_teaches_nothing_bad(
    seen: list[tuple[int, int, bool]], horizon: float, costs: list[float]
) -> None:
    belief = EpochBelief(32)
    belief.add(32, 7, True)
    for run in seen:
        belief.add(*run)
    ahead = Lookahead(belief.posterior(SIZES), np.log(costs), np.full(5, 0.01), 30)
    assert ahead.incumbent is not None
    best = ahead.exploit(horizon)
    assert best.score <= 0
    for index in ahead.candidates():
        trial = ahead.explore(index, horizon)
        assert 1 <= trial.epochs <= 30
        assert math.isfinite(trial.excess)
        assert trial.score <= trial.excess, "a result is worth nothing or more"


def test_epochs_that_change_are_noticed() -> None:
    belief = EpochBelief(32)
    for _ in range(20):
        belief.add(32, 10, True)
    for _ in range(8):
        belief.add(32, 20, True)
    assert math.exp(belief.posterior((32,)).mean[0]) == pytest.approx(20, rel=0.1)


def test_limits_are_measured_downwards_and_again() -> None:
    costs = EpochCosts(250.0)
    known = {250.0: (10.0, 200.0), 200.0: (10.5, 170.0), 150.0: (14.0, 140.0), 100.0: (20.0, 95.0)}
    done: list[float] = []
    while (limit_w := costs.next_own(32, LIMITS, done, 0.5)) is not None:
        costs.add(measured(32, limit_w, *known[limit_w]))
        done.append(limit_w)
    assert done == [250.0, 200.0, 150.0, 100.0], "one limit alone may be worse by chance"
    costs.times[32] = 1
    assert costs.cheapest_limit(32, 0.5) == 200.0
    assert costs.next_own(32, LIMITS, [], 0.5) == 200.0
    assert costs.next_own(32, LIMITS, [200.0], 0.5) == 250.0
    assert costs.next_own(32, LIMITS, [200.0, 250.0], 0.5) is None
    costs.times[32] = 3
    assert costs.next_own(32, LIMITS, [], 0.5) is None


def test_other_batch_sizes_are_measured_outwards_within_a_budget() -> None:
    costs = EpochCosts(250.0)
    for limit_w in LIMITS:
        costs.add(measured(32, limit_w, 40.0, 0.8 * limit_w))
    costs.times[32] = 1
    assert costs.next_other(options(), 32, 0.0, 0.5) is None
    sizes = []
    while (piece := costs.next_other(options(), 32, 1e9, 0.5)) is not None:
        assert piece.batch_size is not None
        assert piece.power_limit_w == 150.0, "nearest to 0.7 of the highest; of equals the lower"
        sizes.append(piece.batch_size)
        slow = 8.0 if piece.batch_size == 16 else 1.0
        costs.add(measured(piece.batch_size, piece.power_limit_w, 40.0 * slow, 120.0))
    assert sizes == [64, 16, 128], "beyond one that costs three times as much nothing is measured"


def test_costs_come_from_another_type_or_the_nearest_batch_size() -> None:
    own, other = EpochCosts(250.0), EpochCosts(300.0)
    for costs, factor in ((own, 1.0), (other, 2.0)):
        costs.add(measured(32, 250.0, 10.0 * factor, 200.0))
        costs.times[32] = 1
    other.add(measured(64, 250.0, 16.0, 200.0))
    other.times[64] = 1
    log_costs, variances = own.expect(options(), (), 1.0)
    index = SIZES.index(64)
    assert log_costs[index] == pytest.approx(math.log(2000.0) - 0.15)
    assert variances[index] == pytest.approx(0.25**2)
    log_costs, variances = own.expect(options(), (other,), 1.0)
    assert log_costs[index] == pytest.approx(math.log(1600.0)), "half of the other type's"
    assert variances[index] == pytest.approx(0.15**2)
    assert log_costs[SIZES.index(16)] == pytest.approx(math.log(2000.0) + 0.35)
    state = json.loads(json.dumps(own.state_dict()))
    assert EpochCosts.from_state(state).expect(options(), (), 1.0)[0].tolist() == (
        own.expect(options(), (), 1.0)[0].tolist()
    )
