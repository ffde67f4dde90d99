"""Expected goodput in closed form, against the best interval and against long simulated runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.elastic import run_elastic, shapes, task
from wattkeeper.policies.planning.checkpoint_intervals import daly_interval_s
from wattkeeper.policies.planning.loss_history import believe
from wattkeeper.policies.replan.adaptive import time_of_pause_s, useful_share
from wattkeeper.sim.cluster.losses import NodeChange

MODELS = {
    "BERT-large": (8192 / 343.1, 15.8, 71.3),
    "GPT-2": (1024 / 126.4, 11.5, 83.0),
    "GPT-3 medium": (819 / 42.1, 11.2, 78.7),
    "GPT-3 2.7B": (512 / 9.768, 50.0, 515.0),
    "GPT-3 6.7B": (1024 / 5.241, 120.0, 701.0),
}
"""Step, checkpoint and restart, s, about as published."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mean_s", [600, 900, 1800, 3600, 10_800, 21_600, 86_400, 604_800])
def test_whole_steps_at_dalys_interval_are_near_the_optimum(model: str, mean_s: float) -> None:
    step_s, write_s, restart_s = MODELS[model]

    def share(steps: int) -> float:
        return useful_share(steps * step_s, write_s, restart_s - write_s, mean_s)

    steps = max(1, round(daly_interval_s(write_s, mean_s) / step_s))
    best = max(range(1, 3000), key=share)
    assert share(steps) >= 0.999 * share(best)


@pytest.mark.parametrize(
    ("replan", "settings", "pause_s", "steps", "write_s"),
    [
        ("oobleck", {}, 2.0, 1, 0.0),
        ("in-memory", {}, 4.0, 1, 0.0),
        ("varuna", {"every_steps": 5}, 7.0, 5, 3.0),
    ],
)
@pytest.mark.parametrize("mean_s", [20.0, 100.0, 1000.0])
def test_goodput_at_constant_size_agrees_with_the_closed_form(
    replan: str, settings: dict[str, int], pause_s: float, steps: int, write_s: float, mean_s: float
) -> None:
    """Each loss takes a node that is back at once; within four standard errors."""
    until_s = 4000 * mean_s
    world = run_elastic([task()], losses(mean_s), replan=replan, settings=settings, until_s=until_s)
    rows = shapes(world)
    assert {row.nodes for row in rows} == {4}
    samples = np.array([row.samples for row in rows])
    spans_s = np.array([row.until_s - row.time_s for row in rows])
    expected = 4 * useful_share(steps * 2.5, write_s, pause_s, mean_s)
    error = math.sqrt(float(np.sum((samples - expected * spans_s) ** 2))) / until_s
    assert error < 0.05 * expected
    assert abs(samples.sum() / until_s - expected) < 4 * error


def losses(mean_s: float) -> Iterator[NodeChange]:
    rng = np.random.default_rng(7)
    now_s = 0.0
    while True:
        now_s += rng.exponential(mean_s)
        yield NodeChange(now_s, "down", 1)
        yield NodeChange(now_s, "up", 1)


def test_a_pause_that_losses_interrupt_takes_longer() -> None:
    """As many losses of mean 50 s as it takes until one comes later than 100 s."""
    rng = np.random.default_rng(3)
    totals = []
    for _ in range(20_000):
        total = 0.0
        while (span := rng.exponential(50.0)) < 100.0:
            total += span
        totals.append(total + 100.0)
    error = float(np.std(totals)) / math.sqrt(len(totals))
    assert abs(time_of_pause_s(100.0, 50.0) - float(np.mean(totals))) < 4 * error
    assert time_of_pause_s(1e6, 50.0) == math.inf


@given(losses=st.integers(0, 500), observed_s=st.floats(0, 1e7), longest_s=st.floats(1e3, 1e9))
def test_a_belief_is_a_distribution_that_losses_shorten(
    losses: int, observed_s: float, longest_s: float
) -> None:
    belief = believe(losses, observed_s, longest_s)
    assert math.fsum(belief.shares) == pytest.approx(1)
    assert belief.means_s[0] > 59.9
    assert belief.means_s[-1] < longest_s * 1.001
    more = believe(losses + 1, observed_s, longest_s)
    assert more.expect(more.means_s) <= belief.expect(belief.means_s) * (1 + 1e-6)


def test_a_belief_after_many_losses_is_their_mean_interval() -> None:
    belief = believe(400, 400 * 1800.0, 1e7)
    assert belief.expect(belief.means_s) == pytest.approx(1800, rel=0.03)
