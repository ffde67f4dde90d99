"""The oracle, against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.worlds import attempts, by_job, chosen, profiles, run_world
from wattkeeper.policies.configure.oracle import OracleConfig
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.profile import Curve, KnobChoice, Objective, Profile, expectations, optimum
from wattkeeper.scenarios.contract.scripted import GPU, NEVER, curve, job, profile
from wattkeeper.sim.engine.sources import RecurringSource

every_turn = pytest.mark.parametrize("knobs", ["both", "batch-size", "power-limit"])


def brute_force(known: Profile, eta: float, knobs: KnobChoice) -> dict[tuple[int, float], float]:
    """Expected cost by configuration.

    A failed run costs `max_epochs` and starts anew: the expected number of epochs is the mean over
    all runs of their epochs, or of `max_epochs` and the expected number again; solved for it.
    """
    found = {}
    for size, at in known.curves.items():
        reached = [epochs for epochs in at.epochs if epochs <= known.max_epochs]
        failed = len(at.epochs) - len(reached)
        if not reached or (knobs == "power-limit" and size != known.default_batch_size):
            continue
        epochs = (sum(reached) + failed * known.max_epochs) / len(reached)
        points = list(zip(at.limits_w, at.time_per_epoch_s, at.average_power_w, strict=True))
        for limit_w, time_s, power_w in points[-1:] if knobs == "batch-size" else points:
            weighed = eta * power_w + (1 - eta) * known.max_power_w
            found[size, limit_w] = epochs * time_s * weighed
    return found


@every_turn
@settings(max_examples=100)
@given(known=profiles(), eta=st.floats(0.0, 1.0))
def test_the_oracle_is_brute_force(known: Profile, eta: float, knobs: KnobChoice) -> None:
    best = optimum(known, Objective(eta), knobs)
    costs = brute_force(known, eta, knobs)
    assert best is not None
    assert best.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert costs[best.batch_size, best.power_limit_w] == pytest.approx(best.cost, rel=1e-9)
    weighed = eta * best.energy_j + (1 - eta) * known.max_power_w * best.time_s
    assert weighed == pytest.approx(best.cost, rel=1e-9)
    every = {(x.batch_size, x.power_limit_w): x.cost for x in expectations(known, Objective(eta))}
    assert every == pytest.approx(brute_force(known, eta, "both"), rel=1e-9)


def test_a_tie_goes_to_the_smaller_one() -> None:
    flat = (10.0, 10.0)
    same = {b: Curve(b, (150.0, 250.0), flat, (100.0, 100.0), (3.0,)) for b in (16, 32)}
    best = optimum(Profile("cnn", GPU, 1, 0.9, 5, 32, 250.0, same), Objective(0.5))
    assert best is not None
    assert (best.batch_size, best.power_limit_w) == (16, 150.0)


@every_turn
def test_the_oracle_turns_its_knobs(knobs: KnobChoice) -> None:
    known = profile()
    world = run_world(
        RecurringSource({"cnn": 10}),
        by_job(known),
        None,
        chosen(configure=OracleConfig(knobs=knobs)),
    )
    costs = brute_force(known, 0.5, knobs)
    ran = {(row.batch_size, row.power_limit_w) for row in attempts(world)}
    assert ran == {min(costs, key=costs.__getitem__)}
    if knobs == "power-limit":
        assert {size for size, _ in ran} == {32}
    if knobs == "batch-size":
        assert {limit for _, limit in ran} == {250.0}


def test_the_oracle_finds_nothing_if_no_run_ever_succeeds() -> None:
    known = profile(runs={32: (NEVER,), 64: (NEVER,)})
    assert optimum(known, Objective(0.5)) is None
    with pytest.raises(PolicyError, match="cnn@V100x1"):
        run_world([job()], by_job(known), None, chosen(configure="oracle"))


def test_the_oracle_says_where_it_fails() -> None:
    known = profile(runs={32: (NEVER,)})
    with pytest.raises(PolicyError) as caught:
        run_world([job()], by_job(known), None, chosen(configure="oracle"))
    assert caught.value.point == "configure"


def test_a_run_past_the_last_epoch_does_not_count() -> None:
    assert curve(32, (3.0, 8.0)).expected_epochs(5) == 3.0 + 5
    assert curve(32, (3.0, 5.0)).expected_epochs(5) == 4.0
    assert curve(32, (8.0, NEVER)).expected_epochs(5) == math.inf
