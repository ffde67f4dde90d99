"""Tests of the policy `fading`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from pathlib import Path

from wattkeeper.policies.points.retain import StoredModel, StoredModels
from wattkeeper.scenarios.policy_kit import check_policy_file, load_policy

FILE = Path(__file__).with_name("retain.py")


def test_it_keeps_the_contract() -> None:
    """The contract and the simulator: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_old_uses_count_less() -> None:
    """One use now outweighs two uses before several additions."""
    policy = load_policy(FILE)(fade=0.5).build()
    old, new = (StoredModel(name, "task", 0.9, 40, at, at) for at, name in enumerate("ab", 1))
    store = StoredModels(100, (old, new))
    policy.on_use(old)
    policy.on_use(old)
    added = StoredModel("c", "task", 0.9, 20, 3, 3)
    assert policy.retain(store, added).evict == ()
    assert policy.retain(store, added).evict == ()
    policy.on_use(new)
    large = StoredModel("d", "task", 0.9, 60, 4, 4)
    assert policy.retain(store, large).evict == ("a",)
