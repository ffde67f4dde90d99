"""Tests of the policy `epsilon-greedy`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from pathlib import Path

from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.scenarios.policy_kit import (
    ScriptedContext,
    check_policy_file,
    job,
    load_policy,
    profile,
)

FILE = Path(__file__).with_name("configure.py")


def test_it_keeps_the_contract() -> None:
    """The contract, the simulator and a rehearsed live run: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_it_repeats_what_cost_least() -> None:
    """Without exploration, the cheapest batch size so far is chosen."""
    policy = load_policy(FILE)(epsilon=0.0).build()
    ctx = ScriptedContext(profile())
    start = Start(job("a/1", group="a"), 1, ctx.options(), 0)
    assert policy.configure(ctx, start).batch_size == start.options.default_batch_size
    costs = {}
    for size in (16, 32, 64):
        outcome = ctx.outcome(start, Configuration(size), 250.0)
        costs[size] = outcome.cost * (1 if outcome.reached else 3)
        policy.observe(ctx, outcome)
    assert policy.configure(ctx, start).batch_size == min(costs, key=lambda size: costs[size])
