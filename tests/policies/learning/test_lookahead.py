"""Costs and gains of trials: against runs that are drawn, and against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning import lookahead
from wattkeeper.policies.learning.epoch_belief import EpochBelief, Posterior
from wattkeeper.policies.learning.lookahead import Lookahead

SIZES = (16, 32, 64, 128)
MOST_EPOCHS = 60


def belief() -> Posterior:
    known = EpochBelief(64)
    for epochs in (20, 22, 19, 23):
        known.add(64, epochs, True)
    known.add(128, 30, True)
    known.add(32, 15, False)
    return known.posterior(SIZES)


@pytest.fixture
def ahead() -> Lookahead:
    log_costs = np.log([260.0, 120.0, 100.0, 80.0])
    return Lookahead(belief(), log_costs, np.array([0.1, 0.02, 0.0, 0.0]), MOST_EPOCHS)


def test_costs_are_means_of_lognormal_runs(ahead: Lookahead) -> None:
    """Epochs of a run scatter, too, and runs that never reach the target are repeated."""
    found, rng = belief(), np.random.default_rng(3)
    spread = np.array([0.1, 0.02, 0.0, 0.0]) + np.diag(found.covariance) + found.noise
    draws = np.exp(found.mean + np.sqrt(spread) * rng.standard_normal((400_000, len(SIZES))))
    expected = np.array([260.0, 120.0, 100.0, 80.0]) * draws.mean(axis=0) / (1 - found.misses)
    np.testing.assert_allclose(ahead.costs, expected, rtol=0.02)
    assert ahead.incumbent == 2


@pytest.mark.parametrize("index", [0, 1, 3])
def test_the_excess_is_that_of_runs_that_are_drawn(ahead: Lookahead, index: int) -> None:
    """A run is stopped, its work is lost, and the incumbent does the job."""
    found, rng = belief(), np.random.default_rng(4)
    trial = ahead.explore(index, horizon=40.0)
    variances = (0.1, 0.02, 0.0, 0.0)
    s = math.sqrt(variances[index] + found.covariance[index, index] + found.noise[index])
    epochs = np.maximum(1, np.round(np.exp(found.mean[index] + s * rng.standard_normal(400_000))))
    epochs[rng.random(len(epochs)) < found.misses[index]] = math.inf
    spare = float(ahead.costs[2])
    stopped = epochs > trial.epochs
    paid = np.where(stopped, trial.epochs, epochs) * float(ahead.epoch_costs[index])
    excess = paid + stopped * spare - spare
    error = 5 * float(excess.std()) / 600 + 1e-3
    assert ahead.excess(trial) == pytest.approx(float(excess.mean()), abs=error)


def gain(found: Posterior, variances: Floats, logs: Floats, index: int, most: int) -> float:
    """What knowing the result of a run of up to so many epochs saves; one epoch after another."""
    joint = found.covariance + np.diag(variances)
    noise = float(found.noise[index]) / 4
    s = math.sqrt(joint[index, index] + noise)
    never = found.misses
    now = np.exp(logs + found.mean + (np.diag(joint) + found.noise) / 2) / (1 - never)
    best, total, before = int(now.argmin()), 0.0, 0.0
    for epochs in range(1, most + 1):
        z = (math.log(epochs + 0.5) - found.mean[index]) / s
        reached = (1 - never[index]) * 0.5 * math.erfc(-z / math.sqrt(2))
        costs = []
        for c in range(len(logs)):
            share = joint[c, index] / (joint[index, index] + noise)
            mean = found.mean[c] + share * (math.log(epochs) - found.mean[index])
            variance = joint[c, c] - share * joint[c, index] + found.noise[c]
            cost = math.exp(logs[c] + mean + variance / 2)
            teaches = c == index and not found.reached[c]
            costs.append(cost if teaches else cost / (1 - never[c]))
        total += (reached - before) * (costs[best] - min(costs))
        before = reached
    return total


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_trial_has_the_best_bound(ahead: Lookahead, index: int) -> None:
    """No other number of epochs has a better score."""
    found, logs = belief(), np.log([260.0, 120.0, 100.0, 80.0])
    variances = np.array([0.1, 0.02, 0.0, 0.0])
    trial = ahead.explore(index, horizon=40.0)
    worth = 40 * gain(found, variances, logs, index, trial.epochs)
    assert trial.score == pytest.approx(ahead.excess(trial) - worth, rel=1e-9)
    s = math.sqrt(variances[index] + found.covariance[index, index] + found.noise[index])
    spare, epoch_cost = float(ahead.costs[2]), float(ahead.epoch_costs[index])
    best = math.inf
    for most in range(1, MOST_EPOCHS + 1):
        z = (np.log(np.arange(1, most + 1) + 0.5) - found.mean[index]) / s
        reached = [0.5 * math.erfc(-each / math.sqrt(2)) for each in z]
        within = np.diff([0.0, *reached]) * (1 - found.misses[index])
        left = 1 - float(within.sum())
        epochs = float((within * np.arange(1, most + 1)).sum()) + most * left
        excess = epoch_cost * epochs + left * spare - spare
        best = min(best, excess - 40 * gain(found, variances, logs, index, most))
    assert trial.score == pytest.approx(best, rel=1e-9)


def test_only_neighbours_of_what_reached_are_tried() -> None:
    known = EpochBelief(64)
    known.add(64, 20, True)
    sizes = (8, 16, 32, 64, 128, 256)
    ahead = Lookahead(known.posterior(sizes), np.zeros(6), np.zeros(6), 50)
    assert ahead.candidates() == [2, 4]
    assert ahead.incumbent == 3


def test_a_farther_one_that_is_expected_to_cost_less_is_tried() -> None:
    """Otherwise it would be the one whose cost others have to beat, and never run."""
    known = EpochBelief(64)
    known.add(64, 20, True)
    log_costs = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -3.0])
    ahead = Lookahead(known.posterior((8, 16, 32, 64, 128, 256)), log_costs, np.zeros(6), 50)
    assert ahead.costs.argmin() == 5
    assert ahead.candidates() == [2, 4, 5]
    assert ahead.explore(5, horizon=40.0).score < ahead.exploit(40.0).score


@given(
    results=st.lists(
        st.tuples(st.sampled_from(SIZES), st.integers(1, 10**4), st.booleans()), max_size=20
    ),
    logs=st.lists(st.floats(-20, 30), min_size=4, max_size=4),
    spreads=st.lists(st.floats(0, 4), min_size=4, max_size=4),
    horizon=st.floats(1, 1e4),
    most=st.integers(1, 100),
)
def test_any_belief_gives_finite_trials(
    results: list[tuple[int, int, bool]],
    logs: list[float],
    spreads: list[float],
    horizon: float,
    most: int,
) -> None:
    known = EpochBelief(64)
    known.add(64, 20, True)
    for result in results:
        known.add(*result)
    ahead = Lookahead(known.posterior(SIZES), np.array(logs), np.array(spreads), most)
    assert (np.isfinite(ahead.costs) & (ahead.costs > 0)).all()
    trials = [ahead.explore(index, horizon) for index in ahead.candidates()]
    for trial in (ahead.exploit(horizon), *trials):
        assert 1 <= trial.epochs <= most
        assert math.isfinite(trial.score)
    for trial in trials:
        excess = ahead.excess(trial)
        assert math.isfinite(excess)
        assert trial.score <= excess + 1e-6 * abs(excess), "knowing costs nothing"


@pytest.mark.parametrize("index", [0, 1, 3])
def test_stops_of_long_trainings_are_close_to_the_best(
    monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """Where epochs are many, stops are thought of in steps of 2 %."""
    found, most = belief(), 20_000
    found = found._replace(mean=found.mean + math.log(200))
    log_costs = np.log([260.0, 120.0, 100.0, 80.0])
    variances = np.array([0.1, 0.02, 0.0, 0.0])
    trial = Lookahead(found, log_costs, variances, most).explore(index, horizon=40.0)
    monkeypatch.setattr(lookahead, "EACH", most)
    lookahead._stops.cache_clear()
    exact = Lookahead(found, log_costs, variances, most)
    lookahead._stops.cache_clear()
    best = exact.explore(index, horizon=40.0)
    assert trial.epochs == pytest.approx(best.epochs, rel=0.05)
    spare = float(exact.costs[exact.incumbent or 0])
    assert trial.score == pytest.approx(best.score, abs=2e-3 * spare)
