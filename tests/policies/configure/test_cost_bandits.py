"""Bandits that know nothing but the cost of runs, and what could be had with full information."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.worlds import AttemptRow, attempts, by_job, chosen, run_world
from wattkeeper.policies.configure._cost_bandit import GroupCosts, RunCosts
from wattkeeper.policies.configure.expected_improvement import improvement, posterior
from wattkeeper.policies.configure.thompson import belief
from wattkeeper.policies.points.views import Options
from wattkeeper.policies.profile import Objective, Profile, optimum
from wattkeeper.scenarios.contract.scripted import NEVER, profile
from wattkeeper.sim.engine.sources import RecurringSource

KINDS = ("expected-improvement", "successive-halving", "ucb", "thompson", "full-information")


def recur(kind: str, recurrences: int, known: Profile, tune: str = "oracle") -> list[AttemptRow]:
    source = RecurringSource({"cnn": recurrences})
    return attempts(run_world(source, by_job(known), None, chosen(configure=kind, tune=tune)))


def group_of(costs: dict[int, list[float]]) -> GroupCosts:
    sizes = (16, 32, 64, 128)
    group = GroupCosts(Options("cnn@V100x1", "V100", 1, sizes, ((250.0,),) * 4, 32, 250.0, 50))
    group.scale = costs[32][0]
    for size, each in costs.items():
        group.costs[size] = RunCosts()
        for cost in each:
            group.costs[size].add(cost, reached=True)
    return group


@pytest.mark.parametrize("kind", KINDS)
def test_the_cheapest_batch_size_is_found(kind: str) -> None:
    known = profile(
        runs={8: (9.0,), 16: (8.0,), 32: (8.0,), 64: (3.0,), 128: (4.0,), 256: (NEVER,)}
    )
    best = optimum(known, Objective(0.5))
    assert best is not None
    rows = recur(kind, 200, known)
    assert rows[0].batch_size == 32, "the default one comes first"
    last = [row.batch_size for row in rows[-20:]]
    assert last.count(best.batch_size) >= 15
    assert {row.power_limit_w for row in rows if row.batch_size == best.batch_size} == {
        best.power_limit_w
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_is_hard_to_reach(kind: str) -> None:
    """A failed job takes the cheapest batch size so far; before there is one, others."""
    known = profile(runs={16: (NEVER,), 32: (NEVER, 4.0, NEVER), 64: (5.0,), 128: (NEVER,)})
    rows = recur(kind, 30, known)
    reached = [row.recurrence for row in rows if row.reached_target]
    assert sorted(reached) == list(range(1, 31))
    if kind != "full-information":
        assert sum(row.batch_size == 128 for row in rows) < 10


def test_halving_runs_each_batch_size_and_keeps_the_cheaper_half() -> None:
    known = profile(runs={16: (6.0,), 32: (5.0,), 64: (4.0,), 128: (2.0,)})
    rows = recur("successive-halving", 8, known, "max-power")
    costs = {row.batch_size: row.cost for row in rows if row.reached_target}
    half = sorted(costs, key=costs.__getitem__)[:2]
    sizes = [row.batch_size for row in rows if row.attempt == 1]
    assert sizes == [32, 16, 64, 128, *half, half[0], half[0]]


def test_the_process_of_costs_is_regressed_exactly() -> None:
    group = group_of({32: [100.0, 120.0], 64: [80.0]})
    mean, deviation = posterior(group)
    x, tried = np.log2([32, 16, 64, 128]), [0, 0, 2]
    kernel = 0.25 * np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * 1.5**2))
    y = np.log([110.0, 110.0, 80.0]) - math.log(100.0)
    inner = kernel[np.ix_(tried, tried)] + 0.01 * np.eye(3)
    across = kernel[:, tried]
    assert mean == pytest.approx(across @ np.linalg.solve(inner, y))
    spread = np.diag(kernel) - np.sum(across * np.linalg.solve(inner, across.T).T, axis=1)
    assert deviation == pytest.approx(np.sqrt(spread))


@pytest.mark.parametrize(("better", "deviation"), [(0.1, 0.2), (-0.3, 0.2), (0.0, 0.5)])
def test_the_expected_improvement_is_the_integral(better: float, deviation: float) -> None:
    z = np.linspace(-12, 12, 400_001)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    expected = float((np.maximum(better + deviation * z, 0) * density).sum() * (z[1] - z[0]))
    assert improvement(better, deviation) == pytest.approx(expected, rel=1e-6)
    assert improvement(0.2, 0.0) == 0.2
    assert improvement(-0.2, 0.0) == 0.0


def test_beliefs_narrow_as_runs_add_up() -> None:
    assert belief(None, 100.0) == (100.0, 100.0)
    group = group_of({32: [100.0], 64: [50.0] * 4})
    mean, deviation = belief(group.costs[64], 100.0)
    share = 100.0**2 / (100.0**2 + 10.0**2 / 4)
    assert mean == pytest.approx(share * 50 + (1 - share) * 100)
    assert deviation == pytest.approx(math.sqrt(1 - share) * 100)
    assert belief(RunCosts.from_state([3, 0.0, 0.0, True]), 0.0) == (0.0, 0.0), "nothing has a cost"
