"""`wattkeeper policy check` finds planted faults, each by its line, and none in a good policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

GOOD = '''\
"""The batch size with the least mean cost, after one try of each."""

import copy
from typing import Any, ClassVar, Literal

from wattkeeper.policies.protocols import Configuration, Configure, Context, Outcome, Start
from wattkeeper.policies.registry import Point, PolicyConfig


class LeastCost(Configure):
    """See `LeastCostConfig`."""

    def __init__(self) -> None:
        self.costs: dict[str, dict[str, list[float]]] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Untried sizes first, then the one of the least mean cost."""
        known = self.costs.setdefault(start.learning_key, {})
        sizes = start.options.batch_sizes
        means = {size: self.mean(known.get(str(size), [])) for size in sizes}
        best = min(sizes, key=lambda size: (means[size], size))
        return Configuration(best)

    def mean(self, costs: list[float]) -> float:
        return sum(costs) / len(costs) if costs else 0.0

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn a cost; one that missed the target counts ten times."""
        known = self.costs.get(outcome.start.learning_key)
        if known is not None:
            cost = outcome.cost * (1 if outcome.reached else 10)
            known.setdefault(str(outcome.batch_size), []).append(cost)

    def state_dict(self) -> dict[str, Any]:
        """The costs by group and batch size."""
        return copy.deepcopy(self.costs)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.costs = copy.deepcopy(state)


class LeastCostConfig(PolicyConfig):
    """The batch size with the least mean cost so far; each is tried once."""

    point: ClassVar[Point] = "configure"
    kind: Literal["least-cost"] = "least-cost"
    policy = LeastCost
'''

LAST = "        return Configuration(best)\n"
STATE = "        return copy.deepcopy(self.costs)\n"
IMPORT = "from typing import Any, ClassVar, Literal\n"

FAULTS = {
    "aliased state": (STATE, "        return self.costs\n", "gives away values that it changes"),
    "global randomness": (
        LAST, "        best = np.random.choice(sizes)\n        return Configuration(int(best))\n",
        "draws from a random generator of the whole process|ctx.rng",
    ),
    "entropy": (
        LAST, "        best = int(np.random.default_rng().choice(sizes))\n"
        "        return Configuration(best)\n", "a generator without a seed|ctx.rng",
    ),
    "a clock": (
        LAST, "        best = sizes[int(time.time()) % len(sizes)]\n"
        "        return Configuration(best)\n", "reads a clock|time.time|ctx.now_s",
    ),
    "another clock": (
        LAST, "        best = sizes[datetime.now().second % len(sizes)]\n"
        "        return Configuration(best)\n", "reads a clock|datetime.now|ctx.now_s",
    ),
    "a mutated view": (
        LAST, "        start.job.gpus = 1\n        return Configuration(best)\n",
        "cannot be changed|gpus",
    ),
    "a mutated context": (
        LAST, "        ctx.now_s += 1\n        return Configuration(best)\n",
        "changes what it is shown",
    ),
    "a wrong type": (LAST, "        return best\n", "needed: Configuration|int"),
    "a type of numpy": (
        LAST, "        return Configuration(np.int64(best))\n", "as an int|batch size",
    ),
    "state that JSON cannot hold": (
        STATE, "        return {'keys': set(self.costs)}\n", "'keys'|a set",
    ),
    "state that is not a number of JSON": (
        STATE, "        return {'worst': float('inf')}\n", "'worst'|inf",
    ),
    "state that is lacking": (STATE, "        return {}\n", "restored decides otherwise"),
    "foresight that was not declared": (
        LAST, "        best = ctx.foresight(start).default_batch_size\n"
        "        return Configuration(best)\n", "asks for foresight|needs_foresight",
    ),
    "draws that were not declared": (
        LAST, "        best = int(ctx.rng('size').choice(sizes))\n"
        "        return Configuration(best)\n", "draws at random|draws",
    ),
    "an exception": (LAST, "        raise KeyError(best)\n", "KeyError"),
}  # fmt: skip


def check(folder: Path, inside: Command, content: str) -> str:
    """What the command finds in a file that has faults."""
    imports = "import time\nfrom datetime import datetime\n" + IMPORT
    content = content.replace(IMPORT, imports + "\nimport numpy as np\n")
    (folder / "mine.py").write_text(content)
    return inside("policy", "check", "mine.py", code=1).stdout


def _line_of(folder: Path, text: str) -> int:
    whole = (folder / "mine.py").read_text()
    return whole[: whole.index(text)].count("\n") + 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_with_its_line(
    fault: str, inside: Command, tmp_path: Path
) -> None:
    old, new, words = FAULTS[fault]
    found = check(tmp_path, inside, GOOD.replace(old, new)).splitlines()
    line = _line_of(tmp_path, new)
    assert_states(found[0], f"mine.py:{line}: ", "configure", "'least-cost'", *words.split("|"))
    assert len(found) == 1, found


def test_a_forgotten_registration_is_found(inside: Command, tmp_path: Path) -> None:
    found = check(tmp_path, inside, GOOD.partition("class LeastCostConfig")[0])
    assert_states(
        found,
        f"mine.py:{_line_of(tmp_path, 'class LeastCost')}: ",
        "LeastCost",
        "Configure",
        "PolicyConfig",
    )
    other = GOOD + "\n\nclass Forgotten(LeastCost):\n    pass\n"
    found = check(tmp_path, inside, other)
    assert_states(found, f"mine.py:{_line_of(tmp_path, 'class Forgotten')}: ", "PolicyConfig")


def test_clocks_are_found_on_import(inside: Command, tmp_path: Path) -> None:
    before = "\n\nclass LeastCost("
    found = check(tmp_path, inside, GOOD.replace(before, f"\nT = time.time()\n{before}", 1))
    assert_states(found, f"mine.py:{_line_of(tmp_path, 'T = time')}: ", "on import", "a clock")


def test_a_file_that_cannot_be_executed_is_one_finding(inside: Command, tmp_path: Path) -> None:
    found = check(tmp_path, inside, GOOD.replace("self.costs: dict", "self.costs dict"))
    assert_states(found, "mine.py:18: ", "SyntaxError")
    assert found.count("\n") == 1


def test_a_good_policy_is_simulated_and_runs_live(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    done = inside("policy", "check", "mine.py")
    assert_states(done.stdout, "configure: least-cost: rehearsed, simulated, live")
