"""`wattkeeper policy check` finds planted faults, each by its line, and none in a good policy."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.registry import POINTS, Point
from wattkeeper.scenarios.contract import lines
from wattkeeper.scenarios.contract.new_policy import read_example

GOOD = '''\
"""The batch size with the least mean cost, after one try of each."""

import copy
from typing import Any, ClassVar, Literal

from wattkeeper.policies.points.views import Configuration, Outcome, Start
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
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
        LAST,
        "        best = np.random.choice(sizes)\n        return Configuration(int(best))\n",
        "draws from a random generator of the whole process|ctx.rng",
    ),
    "entropy": (
        LAST,
        "        best = int(np.random.default_rng().choice(sizes))\n"
        "        return Configuration(best)\n",
        "a generator without a seed|ctx.rng",
    ),
    "a clock": (
        LAST,
        "        best = sizes[int(time.time()) % len(sizes)]\n        return Configuration(best)\n",
        "reads a clock|time.time|ctx.now_s",
    ),
    "another clock": (
        LAST,
        "        best = sizes[datetime.now().second % len(sizes)]\n"
        "        return Configuration(best)\n",
        "reads a clock|datetime.now|ctx.now_s",
    ),
    "a mutated view": (
        LAST,
        "        start.job.gpus = 1\n        return Configuration(best)\n",
        "cannot be changed|gpus",
    ),
    "a mutated context": (
        LAST,
        "        ctx.now_s += 1\n        return Configuration(best)\n",
        "changes what it is shown",
    ),
    "a wrong type": (LAST, "        return best\n", "needed: Configuration|int"),
    "a type of numpy": (
        LAST,
        "        return Configuration(np.int64(best))\n",
        "batch_size must be int|int64",
    ),
    "state that JSON cannot hold": (
        STATE,
        "        return {'keys': set(self.costs)}\n",
        "'keys'|a set",
    ),
    "state that is not a number of JSON": (
        STATE,
        "        return {'worst': float('inf')}\n",
        "'worst'|inf",
    ),
    "state that is lacking": (STATE, "        return {}\n", "restored decides otherwise"),
    "foresight that was not declared": (
        LAST,
        "        best = ctx.foresight(start).default_batch_size\n"
        "        return Configuration(best)\n",
        "asks for foresight|needs_foresight",
    ),
    "draws that were not declared": (
        LAST,
        "        best = int(ctx.rng('size').choice(sizes))\n        return Configuration(best)\n",
        "draws at random|draws",
    ),
    "state on the context": (
        LAST,
        "        ctx.memo = best\n        return Configuration(best)\n",
        "AttributeError|memo",
    ),
    "a config without a policy": ("    policy = LeastCost\n", "", "names no policy"),
    "a config of another decision point": (
        'Point] = "configure"',
        'Point] = "select"',
        "no subclass of|Select",
    ),
    "an exception": (LAST, "        raise KeyError(best)\n", "KeyError"),
    "an end of the process": (LAST, "        raise SystemExit(0)\n", "SystemExit"),
    "a context that has no zoo": (
        LAST,
        "        ctx.zoo = None\n        return Configuration(best)\n",
        "changes what it is shown",
    ),
}


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
    in_config = fault.startswith("a config")
    line = _line_of(tmp_path, "class LeastCostConfig" if in_config else new)
    assert_states(found[0], f"mine.py:{line}: ", "'least-cost'", *words.split("|"))
    assert len(found) == 1, found


SCHEDULER = '''\
"""The job that is submitted last, first."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.select import Select, Selection
from wattkeeper.policies.registry import Point, PolicyConfig


class Latest(Select):
    def __init__(self):
        self.queue = {}

    def on_submit(self, ctx, job):
        self.queue[job.number] = job

    def select(self, ctx, capacity):
        for job in sorted(self.queue.values(), key=lambda job: -job.number):
            if capacity.fits(job):
                del self.queue[job.number]
                return Selection((job,))
        return Selection()


class LatestConfig(PolicyConfig):
    """The job that was submitted last."""

    point: ClassVar[Point] = "select"
    kind: Literal["latest"] = "latest"
    policy = Latest
'''

SCHEDULER_FAULTS = {
    "a run time that is not declared": (
        "        for job in sorted(self.queue.values(), key=lambda job: -job.number):\n",
        "        for job in sorted(self.queue.values(), key=lambda job: -job.duration_s):\n",
        20,
        "recorded duration_s|needed_columns",
    ),
    "a job that is started twice": (
        "                del self.queue[job.number]\n",
        "",
        19,
        "was started, but does not wait",
    ),
    "an answer of a wrong type": ("Selection((job,))", "[job]", 20, "needed: Selection"),
    "a list in the answer": ("Selection((job,))", "Selection([job])", 20, "tuple"),
    "jobs that wait for ever": (
        "            if capacity.fits(job):\n",
        "            if capacity.fits(job) and job.gpus < 3:\n",
        21,
        "was never placed",
    ),
}


@pytest.mark.parametrize("fault", SCHEDULER_FAULTS)
def test_a_planted_fault_in_a_scheduler_is_found(
    fault: str, inside: Command, tmp_path: Path
) -> None:
    old, new, line, words = SCHEDULER_FAULTS[fault]
    (tmp_path / "mine.py").write_text(SCHEDULER.replace(old, new))
    found = inside("policy", "check", "mine.py", code=1).stdout.splitlines()
    assert_states(found[0], f"mine.py:{line}: ", "'latest'", "select", *words.split("|"))
    assert len(found) == 1, found


EXAMPLE_FAULTS = {
    "a loaded state that is kept": (
        "retain",
        "        self.uses = dict(state)\n",
        "        self.uses = state\n",
        "load_state_dict keeps values of others",
    ),
    "a loaded state that is kept in part": (
        "place",
        "        self.known = copy.deepcopy(state)\n",
        "        self.known = dict(state)\n",
        "load_state_dict keeps values of others",
    ),
    "a state that comes to be what it was": (
        "replan",
        "        return copy.deepcopy(self.offers)\n",
        "        return self.offers\n",
        "state_dict gives away",
    ),
    "a state that holds itself": (
        "tune",
        '        return {"average": self.average, "since_s": self.since_s}\n',
        "        self.me = {'a': []}; self.me['a'].append(self.me); return self.me\n",
        "['a'][0] holds itself",
    ),
    "a generator without a seed": (
        "select",
        "                del self.queue[job.number]\n",
        "                __import__('random').Random().random()\n"
        "                del self.queue[job.number]\n",
        "a generator without a seed|ctx.rng",
    ),
    "a clock of the system": (
        "replan",
        "        shape = Shape(nodes, task.rates[nodes])\n",
        "        __import__('time').clock_gettime(0)\n"
        "        shape = Shape(nodes, task.rates[nodes])\n",
        "time.clock_gettime|ctx.now_s",
    ),
    "a part of another type": (
        "replan",
        "        return Reshape(shape, task.restart_s[nodes])\n",
        "        return Reshape(None, task.restart_s[nodes])\n",
        "needed: Shape|None",
    ),
    "names of another type": (
        "retain",
        "        return evict_in_order(\n",
        "        return Retention(True, ({},)) or evict_in_order(\n",
        "a tuple of ids",
    ),
}


@pytest.mark.parametrize("fault", EXAMPLE_FAULTS)
def test_a_planted_fault_in_an_example_is_found(
    fault: str, inside: Command, tmp_path: Path
) -> None:
    point, old, new, words = EXAMPLE_FAULTS[fault]
    source = read_example(point)
    assert old in source
    (tmp_path / "mine.py").write_text(source.replace(old, new))
    found = inside("policy", "check", "mine.py", code=1).stdout.splitlines()
    assert_states(found[0], f"mine.py:{_line_of(tmp_path, new)}: ", point, *words.split("|"))
    assert len(found) == 1, found


SET_ORDER = SCHEDULER.replace(
    "sorted(self.queue.values(), key=lambda job: -job.number)",
    "[self.queue[int(name)] for name in {str(number) for number in self.queue}]",
)


@pytest.mark.slow
def test_a_file_that_imports_pandas_can_be_checked(tmp_path: Path) -> None:
    """In a process of its own, in which pandas is not loaded yet."""
    source = SCHEDULER.replace("from typing", "import pandas as pd\nfrom typing", 1)
    source = source.replace("def __init__(self):\n", "def __init__(self):\n        pd.NaT\n")
    (tmp_path / "mine.py").write_text(source)
    command = [sys.executable, "-m", "wattkeeper.scenarios", "policy", "check", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr


def test_an_order_of_text_in_a_set_is_found(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SET_ORDER)
    found = inside("policy", "check", "mine.py", code=1).stdout.splitlines()
    assert_states(found[0], "mine.py:", "'latest'", "another process", "set")
    assert len(found) == 1, found


def test_jobs_that_start_and_stop_without_an_end_are_found(inside: Command, tmp_path: Path) -> None:
    source = SCHEDULER.replace(
        "                del self.queue[job.number]\n",
        "                self.swaps = not self.swaps\n"
        "                if not self.swaps: return Selection((), (self.last,))\n"
        "                self.last = job\n",
    ).replace("        self.queue = {}\n", "        self.queue, self.swaps = {}, False\n")
    (tmp_path / "mine.py").write_text(source)
    found = inside("policy", "check", "mine.py", code=1).stdout.splitlines()
    assert_states(found[0], "mine.py:", "'latest'", "1,000 times at one time")


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


def test_arguments_that_a_policy_is_not_constructed_with_are_found(
    inside: Command, tmp_path: Path
) -> None:
    begin = "    def __init__(self) -> None:\n"
    with_config = GOOD.replace(begin, begin.replace("self", 'self, config: "LeastCostConfig"'))
    found = check(tmp_path, inside, with_config)
    assert_states(found, "'least-cost'", "no settings", "LeastCost", "with no argument")
    found = check(tmp_path, inside, GOOD + "    share: float = 0.5\n")
    assert_states(found, "'least-cost'", "has settings", "LeastCost", "with its config alone")


@pytest.mark.slow
def test_a_call_that_does_not_end_is_found(inside: Command, tmp_path: Path) -> None:
    loop = "        while True:\n            capacity.fits\n"
    line = "        for job in sorted("
    (tmp_path / "mine.py").write_text(SCHEDULER.replace(line, loop + line))
    found = inside("policy", "check", "mine.py", code=1).stdout
    assert_states(found, "'latest'", "select", "1,000,000 lines", "ever end")
    at = _line_of(tmp_path, "while True:")
    assert found.startswith((f"mine.py:{at}: ", f"mine.py:{at + 1}: "))


def test_an_import_that_does_not_end_is_found(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\nwhile x:\n    x += 1\n")
    found = inside("policy", "check", "mine.py", code=1).stdout
    assert_states(found, "mine.py:", "import", "1,000,000 lines")


@pytest.mark.parametrize("where", ["call", pytest.param("import", marks=pytest.mark.slow)])
def test_a_line_that_does_not_end_is_found(
    where: str, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line begins anew there: time ends it."""
    monkeypatch.setattr(lines, "MOST_SECONDS", 2.0)
    loop = "        while True: pass\n"
    before = "        for job in sorted("
    source = (
        "x = 1\nwhile True: pass\n"
        if where == "import"
        else SCHEDULER.replace(before, loop + before)
    )
    (tmp_path / "mine.py").write_text(source)
    found = inside("policy", "check", "mine.py", code=1).stdout.splitlines()
    assert_states(found[0], f"mine.py:{_line_of(tmp_path, 'while True')}: ", "2 s", "ever end")
    assert len(found) == 1, found
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.slow
def test_a_learner_that_never_learns_is_noted(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD.replace("def observe(", "def observed("))
    *_, state, method, kept = inside("policy", "check", "mine.py").stdout.splitlines()
    line = _line_of(tmp_path, "class LeastCost")
    assert_states(state, f"mine.py:{line}: note: ", "'least-cost'", "state_dict", "observe")
    line = _line_of(tmp_path, "    def observed")
    assert_states(method, f"mine.py:{line}: note: ", "'observed'", "did you mean 'observe'?")
    assert kept == "mine.py: keeps the contract"


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_examples_have_no_notes(point: Point, inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(read_example(point))
    assert "note: " not in inside("policy", "check", "mine.py").stdout


def test_clocks_are_found_on_import(inside: Command, tmp_path: Path) -> None:
    before = "\n\nclass LeastCost("
    found = check(tmp_path, inside, GOOD.replace(before, f"\nT = time.time()\n{before}", 1))
    assert_states(found, f"mine.py:{_line_of(tmp_path, 'T = time')}: ", "on import", "a clock")


def test_a_file_that_cannot_be_executed_is_one_finding(inside: Command, tmp_path: Path) -> None:
    found = check(tmp_path, inside, GOOD.replace("self.costs: dict", "self.costs dict"))
    assert_states(found, f"mine.py:{_line_of(tmp_path, 'self.costs dict')}: ", "SyntaxError")
    assert found.count("\n") == 1


def test_a_good_policy_is_simulated_and_runs_live(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    done = inside("policy", "check", "mine.py")
    assert_states(done.stdout, "configure: least-cost: rehearsed, simulated, live")


def test_a_fault_that_only_a_simulation_reaches_has_its_line(
    inside: Command, tmp_path: Path
) -> None:
    new = "        assert start.job.workload == 'cnn'\n        return Configuration(best)\n"
    found = check(tmp_path, inside, GOOD.replace(LAST, new)).splitlines()
    assert_states(found[0], f"mine.py:{_line_of(tmp_path, new)}: ", "AssertionError", "image")
    assert found[1:] == ["configure: least-cost: rehearsed"]


def test_settings_that_the_check_cannot_use_need_an_example(
    inside: Command, tmp_path: Path
) -> None:
    own = "\n    def check(self, options):\n        options.check_batch_size(7, 'all jobs')\n"
    found = check(tmp_path, inside, GOOD + own)
    line = _line_of(tmp_path, "options.check_batch_size")
    assert_states(found, f"mine.py:{line}: ", "batch size 7", "16, 32, 64, 128", "examples")
