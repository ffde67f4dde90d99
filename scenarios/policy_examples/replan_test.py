"""Tests of the policy `patient`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from pathlib import Path

from wattkeeper.policies.points.replan import ElasticTask, ElasticView
from wattkeeper.scenarios.policy_kit import ScriptedContext, check_policy_file, load_policy, profile

FILE = Path(__file__).with_name("replan.py")
TASK = ElasticTask("gpt", 2, (0.0, 0.0, 8.0, 11.0), 64.0, 60.0, (0.0, 200.0, 200.0, 200.0), 15.0)


def test_it_keeps_the_contract() -> None:
    """The contract and the simulator: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_it_waits_after_a_loss() -> None:
    """After a loss, two offers are declined; the third one is taken up."""
    policy, ctx = load_policy(FILE)(patience=2).build(), ScriptedContext(profile())
    lost = ElasticView("a", TASK, "lost", (0, 1), 0, None, 3600.0)
    assert policy.replan(ctx, lost).shape.nodes == 2
    offered = ElasticView("a", TASK, "gained", (0, 1), 1, None, 3600.0)
    assert [policy.replan(ctx, offered) is None for _ in range(3)] == [True, True, False]
