"""Tests of the policy `quiet-neighbours`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from pathlib import Path

from wattkeeper.policies.points.views import Outcome, Start
from wattkeeper.scenarios.policy_kit import (
    ScriptedContext,
    check_policy_file,
    job,
    load_policy,
    make_cluster,
    profile,
)

FILE = Path(__file__).with_name("place.py")


def test_it_keeps_the_contract() -> None:
    """The contract, the simulator and a rehearsed live run: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_noisy_jobs_begin_at_the_other_end() -> None:
    """A group that drew 300 W, where the other one drew 100 W, gets the last node."""
    policy, ctx = load_policy(FILE)().build(), ScriptedContext(profile())
    cluster = make_cluster(nodes=3, gpus_per_node=2)
    for group, power_w in (("loud", 300.0), ("quiet", 100.0)):
        one = job(f"{group}/1", group=group)
        policy.on_submit(ctx, one)
        start = Start(one, 1, ctx.options(), 0)
        policy.observe(ctx, Outcome(start, 32, 250.0, 1, 10.0, 10 * power_w, 0.0, True))
    placed = {
        group: policy.place(ctx, job(f"{group}/2", group=group), cluster)[0][0]
        for group in ("loud", "quiet")
    }
    assert placed == {"loud": 2, "quiet": 0}
