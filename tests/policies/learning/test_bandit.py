"""Gaussian Thompson sampling, and the random numbers that the published code draws."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.generators import unused
from wattkeeper.policies.learning.bandit import GaussianThompson, Rewards
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.kernel.streams import PublishedStreams, checksum

SIZES = (8, 16, 32, 64, 128)


rewards_seen = st.lists(st.floats(-1e9, -1e-3), min_size=1, max_size=60)
windows = st.none() | st.integers(1, 12)


def rewards_of(seen: Sequence[float], window: int | None = None) -> Rewards:
    rewards = Rewards(window)
    for reward in seen:
        rewards.add(reward)
    return rewards


@settings(max_examples=300)
@given(seen=rewards_seen, window=windows)
def test_belief_is_mean_and_deviation_of_the_mean(seen: list[float], window: int | None) -> None:
    kept = np.array(seen if window is None else seen[-window:])
    mean, deviation = rewards_of(seen, window).belief()
    close = 1e-12 * float(np.abs(kept).max())
    assert mean == pytest.approx(kept.mean(), rel=1e-12, abs=close)
    assert deviation == pytest.approx(math.sqrt(kept.var() / len(kept)), rel=1e-12, abs=close)


@given(reward=st.floats(-1e12, 0.0), times=st.integers(1, 200), window=windows)
def test_equal_rewards_have_no_deviation(reward: float, times: int, window: int | None) -> None:
    assert rewards_of([reward] * times, window).belief() == (reward, 0.0)


@given(before=rewards_seen, after=rewards_seen)
def test_a_window_drops_old_costs(before: list[float], after: list[float]) -> None:
    window = len(after)
    moved = rewards_of([*before, *after], window)
    assert moved.belief() == rewards_of(after, window).belief()
    assert len(moved.state_dict()["last"]) == window


arm_rewards = st.dictionaries(st.sampled_from(SIZES), rewards_seen, min_size=1)


@settings(max_examples=200)
@given(seen=arm_rewards, seed=st.integers(0, 2**32))
def test_a_draw_consumes_as_many_random_numbers_as_the_published_code(
    seen: dict[int, list[float]], seed: int
) -> None:
    arms = sorted(seen)
    rewards = {arm: rewards_of(seen[arm]) for arm in arms}
    bandit = GaussianThompson(arms, rewards)
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(5):
        theirs.choice(np.array(arms), len(arms), replace=False)
        drawn = {arm: theirs.normal(*rewards[arm].belief()) for arm in arms}
        assert bandit.draw(ours) == max(drawn, key=drawn.__getitem__)
        assert unused(ours) == unused(theirs)


@given(seen=arm_rewards, more=rewards_seen, learnt=st.sampled_from(SIZES), seed=st.integers(0, 99))
def test_learning_updates_one_arm(
    seen: dict[int, list[float]], more: list[float], learnt: int, seed: int
) -> None:
    """It equals a bandit that is made anew; an arm that was dropped is no arm again."""
    arms = sorted(seen)
    bandit = GaussianThompson(arms, {arm: rewards_of(seen[arm]) for arm in arms})
    bandit.learn(learnt, rewards_of([*seen.get(learnt, []), *more]))
    renewed = {arm: rewards_of([*seen[arm], *(more if arm == learnt else [])]) for arm in arms}
    ours, anew = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(5):
        assert bandit.draw(ours) == GaussianThompson(arms, renewed).draw(anew)


def test_an_arm_wins_as_often_as_it_is_believed_to_be_better() -> None:
    rewards = {16: rewards_of([-80.0, -120.0] * 5), 32: rewards_of([-85.0, -125.0] * 5)}
    bandit, rng = GaussianThompson([16, 32], rewards), np.random.default_rng(2)
    (mean, deviation), (other_mean, other_deviation) = rewards[16].belief(), rewards[32].belief()
    z = (mean - other_mean) / math.hypot(deviation, other_deviation)
    expected = statistics.NormalDist().cdf(z)
    draws = [bandit.draw(rng) for _ in range(4000)]
    assert 0.6 < expected < 0.8
    assert draws.count(16) / len(draws) == pytest.approx(expected, abs=0.04)


# --- the published generators


def test_picks_equal_those_of_the_published_code() -> None:
    """In value and in what they consume, for every number of recorded runs."""
    for choices in range(1, 101):
        streams, theirs = PublishedStreams(lambda _: 7), np.random.default_rng(7)
        for _ in range(5):
            expected = theirs.choice(choices, size=1, replace=False)[0]
            assert streams.pick(job(), 1, choices) == expected
        after = [int(theirs.choice(1000, size=1, replace=False)[0]) for _ in range(20)]
        assert [streams.pick(job(), 1, 1000) for _ in range(20)] == after, choices


@given(numbers=st.lists(st.integers(1, 100), max_size=60), seed=st.integers(0, 2**32))
def test_picks_of_mixed_numbers_equal_the_published_ones(numbers: list[int], seed: int) -> None:
    streams, theirs = PublishedStreams(lambda _: seed), np.random.default_rng(seed)
    ours = [streams.pick(job(), 1, choices) for choices in numbers]
    assert ours == [int(theirs.choice(n, size=1, replace=False)[0]) for n in numbers]


def test_published_groups_have_two_generators_of_one_seed() -> None:
    streams = PublishedStreams(checksum)
    picks = [streams.pick(job(group="g"), 1, 50) for _ in range(10)]
    streams.pick(job(group="h"), 1, 50)
    picks += [streams.pick(job(group="g"), 1, 50) for _ in range(10)]
    seed = zlib.adler32(b"g")
    assert picks == np.random.default_rng(seed).integers(50, size=20).tolist()
    bandit = streams.policy("configure", "g")
    assert bandit.bit_generator.state == np.random.default_rng(seed).bit_generator.state
