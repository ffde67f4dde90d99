"""What is believed of epochs: against dense formulas and integrals, and over time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning.epoch_belief import EpochBelief
from wattkeeper.policies.numerics.normal import hazard, mean_of_largest, normal_cdf, survival

SIZES = (8, 16, 32, 64, 128, 256)
DEFAULT = 64

Run = tuple[int, int, bool]
"""Batch size, epochs, and whether it reached the target."""

runs = st.tuples(st.sampled_from(SIZES), st.integers(0, 10**6), st.booleans())


def learn(results: Sequence[Run]) -> EpochBelief:
    belief = EpochBelief(DEFAULT)
    for result in results:
        belief.add(*result)
    return belief


def prior(sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Mean and covariance as the documentation of the prior gives them."""
    x = np.log2(np.array(sizes) / DEFAULT)
    apart = x[:, None] - x[None, :]
    covariance = 2.0**2 + 0.15**2 * np.outer(x, x) + 0.35**2 * np.exp(-(apart**2) / 2 / 2.0**2)
    return math.log(10) + 0.1 * x, covariance + 0.03**2 * np.eye(len(x))


REACHED: list[Run] = [
    (64, 20, True),
    (64, 23, True),
    (64, 19, True),
    (16, 12, True),
    (256, 60, True),
    (256, 66, True),
]


def test_runs_are_regressed_exactly() -> None:
    """One observation a run, all at once, gives what the means of batch sizes give."""
    found = learn(REACHED).posterior(SIZES)
    sizes = [*SIZES, *(size for size, _, _ in REACHED)]
    logs = np.array([math.log(epochs) for _, epochs, _ in REACHED])
    mean, covariance = prior(sizes)
    count = len(SIZES)
    same = np.array(sizes)[:, None] == np.array(sizes)[None, :]
    covariance += 0.03**2 * (same & ~np.eye(len(sizes), dtype=bool))  # f(b) is one value
    scatter, degrees = 4 * 0.1**2, 4.0
    by_size = {size: [e for b, e, _ in REACHED if b == size] for size in (16, 64, 256)}
    rounding = {}
    for size, epochs in by_size.items():
        values = np.log(epochs)
        scatter += float(((values - values.mean()) ** 2).sum())
        degrees += len(epochs) - 1
        rounding[size] = 1 / 12 / math.exp(values.mean()) ** 2
    noise = np.array([scatter / degrees + rounding[size] for size, _, _ in REACHED])
    inner = covariance[count:, count:] + np.diag(noise)
    gain = covariance[:count, count:] @ np.linalg.inv(inner)
    np.testing.assert_allclose(found.mean, mean[:count] + gain @ (logs - mean[count:]), rtol=1e-9)
    expected = covariance[:count, :count] - gain @ covariance[count:, :count]
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-6, atol=1e-12)
    assert found.noise[SIZES.index(64)] == pytest.approx(noise[0])


@pytest.mark.parametrize("epochs", [5, 21, 40, 90])
def test_a_stop_has_the_moments_of_the_integral(epochs: int) -> None:
    """On a grid of f at the stopped batch size: longer than the stop, or without hope."""
    before = learn(REACHED).posterior((*SIZES, 512))
    belief = learn([*REACHED, (512, epochs, False)])
    after = belief.posterior((*SIZES, 512))
    at = len(SIZES)
    mean, variance = float(before.mean[at]), float(before.covariance[at, at])
    f = mean + math.sqrt(variance) * np.linspace(-9, 9, 20001)
    weights = np.exp(-0.5 * (f - mean) ** 2 / variance)
    weights /= weights.sum()
    later = normal_cdf((f - math.log(epochs + 0.5)) / math.sqrt(before.noise[at]))
    hopeless = 0.1 / (0.1 + 0.9 * float((weights * later).sum()))
    assert after.misses[at] == pytest.approx(hopeless, rel=1e-6)
    weights *= later / (weights * later).sum()
    longer = float((weights * f).sum())
    spread = float((weights * (f - longer) ** 2).sum())
    expected = hopeless * mean + (1 - hopeless) * longer
    assert after.mean[at] == pytest.approx(expected, rel=1e-6)
    within = hopeless * variance + (1 - hopeless) * spread
    assert after.covariance[at, at] == pytest.approx(within, rel=1e-6)
    gain = before.covariance[:at, at] / variance
    np.testing.assert_allclose(
        after.mean[:at] - before.mean[:at], gain * (expected - mean), rtol=1e-6, atol=1e-12
    )


def test_stops_are_judged_by_the_noise_that_is_known_now() -> None:
    """After a lucky first run a short trial looks hopeless, until runs turn out to scatter."""
    lucky: list[Run] = [(64, 2, True), (128, 5, False)]
    assert learn(lucky).posterior((128,)).misses[0] > 0.5
    scattered = [(64, epochs, True) for epochs in (3, 12, 5, 2, 9, 4, 7, 3)]
    assert learn([*lucky, *scattered]).posterior((128,)).misses[0] < 0.3


def test_a_batch_size_that_reaches_its_target_no_more_is_given_up() -> None:
    """Its cost counts as at least that of one that takes 40 % more epochs."""
    belief = learn([(64, 4, True)] * 30)
    for _ in range(5):
        belief.add(64, 6, False)
    found = belief.posterior((64,))
    cost = math.exp(found.mean[0] + found.covariance[0, 0] / 2) / (1 - found.misses[0])
    assert cost > 1.4 * 4


@pytest.mark.parametrize("reached", [0, 1])
def test_the_belief_does_not_jump_once_stops_are_not_kept_one_by_one(reached: int) -> None:
    before: list[Run] = [(64, 20, True), *[(128, 22, True)] * reached]
    costs, misses = [], []
    for stops in range(40):
        found = learn([*before, *[(128, 30, False)] * stops]).posterior((128,))
        costs.append(math.exp(found.mean[0]) / (1 - found.misses[0]))
        misses.append(found.misses[0])
    assert (np.diff(misses) >= 0).all()
    assert (np.abs(np.diff(np.log(costs[15:]))) < 0.15).all()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_change_is_noticed_and_steady_runs_are_not(factor: float) -> None:
    rng = np.random.default_rng(5)
    epochs = [round(math.exp(3.4 + 0.1 * z)) for z in rng.standard_normal(200)]
    steady = learn([(64, each, True) for each in epochs])
    found = steady.posterior((64, 128))
    assert math.exp(found.mean[0]) == pytest.approx(math.exp(3.4), rel=0.05)
    for _ in range(6):
        steady.add(64, round(30 * factor), True)
    changed = steady.posterior((64, 128))
    assert math.exp(changed.mean[0]) == pytest.approx(30 * factor, rel=0.2)
    assert changed.covariance[1, 1] > found.covariance[1, 1]


def test_what_was_known_before_a_change_shifts_with_it() -> None:
    """Halved epochs at one batch size are expected at the others, too, with less certainty."""
    known: list[Run] = [(size, epochs, True) for size, epochs in ((32, 20), (64, 24), (128, 32))]
    before = learn(known * 5).posterior((32, 64, 128))
    after = learn([*known * 5, *[(64, 12, True)] * 6]).posterior((32, 64, 128))
    change = after.mean - before.mean
    assert change == pytest.approx(math.log(0.5), abs=0.15)
    variances = np.diag(after.covariance)
    assert variances[0] > 4 * variances[1]
    assert variances[2] > 4 * variances[1]
    assert (variances[[0, 2]] > np.diag(before.covariance)[[0, 2]]).all()


def test_a_change_of_one_batch_size_leaves_the_others() -> None:
    """As soon as one of them shows that it takes as many epochs as before."""
    known: list[Run] = [(size, epochs, True) for size, epochs in ((32, 20), (64, 24), (128, 32))]
    changed: list[Run] = [*known * 5, *[(64, 48, True)] * 6]
    found = learn([*changed, (128, 32, True)]).posterior((32, 64, 128))
    np.testing.assert_allclose(np.exp(found.mean), [20, 48, 32], rtol=0.1)
    common = learn([*changed, (128, 64, True)]).posterior((32, 64, 128))
    np.testing.assert_allclose(np.exp(common.mean), [40, 48, 64], rtol=0.1)


def test_runs_after_a_change_are_none_of_those_before() -> None:
    """A change is noticed with its second run; the first belongs to it, too."""
    belief = learn([(64, 24, True)] * 12 + [(64, 48, True)] * 2)
    ((_, arm),) = belief.state_dict()["arms"]
    runs, total, *_, before, _ = arm
    assert (runs, total) == (2, pytest.approx(2 * math.log(48)))
    assert before == pytest.approx(math.log(24))


def test_a_batch_size_beyond_one_that_never_reaches_is_as_hopeless() -> None:
    """Also after a change; one on the other side is not."""
    failed: list[Run] = [(64, 20, True)] * 4 + [(128, 90, False)] * 3
    for results in (failed, [*failed, *[(64, 40, True)] * 4]):
        misses = learn(results).posterior((32, 64, 128, 256)).misses
        assert misses[2] > 0.9
        assert misses[3] >= misses[2]
        assert misses[0] == pytest.approx(0.1)


def test_a_change_is_common_to_all_or_that_of_one() -> None:
    """Both are regressed with the change as a variable of its own, and weighed by densities."""
    steady: list[Run] = [(64, 20, True)] * 12 + [(128, 22, True)] * 12
    found = learn([*steady, *[(64, 30, True)] * 3]).posterior((64, 128))
    noise = 4 * 0.1**2 / (4 + 20)
    rounding = {20: 1 / 12 / 20**2, 22: 1 / 12 / 22**2, 30: 1 / 12 / 30**2}
    mean, covariance = prior((64, 128))
    x = np.array([0.0, 1.0])
    common = 1.0 + 0.3**2 * np.outer(x, x) + 0.1**2 * np.eye(2)
    seen = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]])  # of f before and of the change
    now = np.hstack([np.eye(2), np.eye(2)])
    errors = np.diag([(noise + rounding[20]) / 12, (noise + rounding[22]) / 12, found.noise[0] / 3])
    values = np.log([20.0, 22.0, 30.0])
    moments = []
    for share, change in ((0.8, common), (0.2, np.diag([1.0, 0.0]))):
        joint = np.block([[covariance, np.zeros((2, 2))], [np.zeros((2, 2)), change]])
        inner = seen @ joint @ seen.T + errors
        left = values - seen[:, :2] @ mean
        gain = now @ joint @ seen.T @ np.linalg.inv(inner)
        density = math.exp(-0.5 * left @ np.linalg.inv(inner) @ left) / math.sqrt(
            np.linalg.det(inner)
        )
        spread = now @ joint @ now.T - gain @ seen @ joint @ now.T
        moments.append((share * density, mean + gain @ left, spread))
    weights = np.array([weight for weight, _, _ in moments])
    weights /= weights.sum()
    expected = weights[0] * moments[0][1] + weights[1] * moments[1][1]
    assert found.noise[0] == pytest.approx(noise + rounding[30], rel=0.1)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-6)
    spread = sum(
        weight * (each + np.outer(at - expected, at - expected))
        for weight, (_, at, each) in zip(weights, moments, strict=True)
    )
    np.testing.assert_allclose(found.covariance, spread, rtol=1e-5, atol=1e-9)


def test_a_batch_size_that_often_misses_is_no_change() -> None:
    results: list[Run] = [(64, 10, True), (64, 11, True), (64, 10, True), (64, 16, False)]
    found = learn(results * 20).posterior((64,))
    assert found.misses[0] == pytest.approx(0.25, abs=0.05)
    assert math.exp(found.mean[0]) == pytest.approx(10.3, rel=0.05)


def test_a_run_under_way_lowers_the_variance_and_keeps_the_mean() -> None:
    before = learn(REACHED).posterior(SIZES)
    expected = before.expect(1)
    np.testing.assert_array_equal(expected.mean, before.mean)
    assert (np.diag(expected.covariance) <= np.diag(before.covariance)).all()
    known = before.covariance[1, 1] * before.noise[1] / (before.covariance[1, 1] + before.noise[1])
    assert expected.covariance[1, 1] == pytest.approx(known)


@given(st.lists(runs, max_size=60))
def test_any_runs_give_finite_beliefs(results: list[Run]) -> None:
    found = learn(results).posterior(SIZES)
    for values in found[:5]:
        assert np.isfinite(values).all()
    assert (found.noise > 0).all()
    assert ((found.misses >= 0) & (found.misses < 1)).all()
    np.testing.assert_allclose(found.covariance, found.covariance.T, atol=1e-9)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-9


@given(st.lists(runs, max_size=60), st.lists(runs, max_size=5))
def test_the_state_restores_what_was_learnt(results: list[Run], later: list[Run]) -> None:
    belief = learn(results)
    restored = EpochBelief.from_state(json.loads(json.dumps(belief.state_dict())))
    for each in (belief, restored):
        for result in later:
            each.add(*result)
    assert restored.state_dict() == belief.state_dict()
    for mine, theirs in zip(belief.posterior(SIZES), restored.posterior(SIZES), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_normal_distribution_keeps_shapes() -> None:
    assert normal_cdf(np.array([[0.0, 1.96]])) == pytest.approx(np.array([[0.5, 0.9750021]]))


@pytest.mark.parametrize("share", [0.5, 0.1, 1e-3, 1e-6])
def test_the_largest_deviations_have_the_mean_of_the_integral(share: float) -> None:
    values = np.linspace(-12, 12, 2_000_001)
    density = np.exp(-0.5 * values**2) / math.sqrt(2 * math.pi) * (values[1] - values[0])
    least = float(values[np.searchsorted(-density[::-1].cumsum()[::-1], -share)])
    among = values >= least
    expected = float((values * density)[among].sum() / density[among].sum())
    assert mean_of_largest(share) == pytest.approx(expected, rel=1e-4)
    assert survival(least) == pytest.approx(share, rel=1e-4)


def test_far_tails_stay_finite() -> None:
    assert hazard(40.0) == pytest.approx(40.025, rel=1e-5)
    assert hazard(1e6) == pytest.approx(1e6)
    assert hazard(-40.0) == 0
    assert mean_of_largest(0.0) == pytest.approx(6.16, abs=0.01)


def test_no_batch_size_is_thought_to_take_less_than_an_epoch() -> None:
    """Far beyond a steep slope, whole epochs add no more to the noise than those of one epoch."""
    belief = EpochBelief(64)
    for _ in range(5):
        belief.add(64, 40_000, True)
        belief.add(128, 50, True)
    posterior = belief.posterior([64 * 2**octaves for octaves in range(13)])
    assert posterior.mean.min() < 0
    assert posterior.noise.max() < 0.1 + 1 / 12
