"""Tests of the policy `price-following`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from pathlib import Path

from wattkeeper.policies.points.views import Configuration, Running, Start
from wattkeeper.scenarios.policy_kit import (
    ScriptedContext,
    check_policy_file,
    job,
    load_policy,
    profile,
)

FILE = Path(__file__).with_name("tune.py")


def test_it_keeps_the_contract() -> None:
    """The contract, the simulator and a rehearsed live run: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_the_limit_falls_as_the_price_rises() -> None:
    """The scripted price is a wave that rises for six hours and then falls."""
    policy, ctx = load_policy(FILE)().build(), ScriptedContext(profile())
    running = Running(Start(job(), 1, ctx.options(), 0), Configuration(32))
    limits = {}
    for hour in (0, 4, 18):
        ctx.now_s = 3600.0 * hour
        limits[hour] = policy.tune(ctx, running).power_limit_w
    assert limits == {0: 250.0, 4: 150.0, 18: 250.0}
