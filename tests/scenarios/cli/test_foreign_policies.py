"""A policy of another distribution that fails, through the command, simulated and live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.messages import assert_states, drop_signs_of_life
from tests.support.warm import forker

MODULE = '''\
from typing import ClassVar, Literal

from wattkeeper.policies.points.views import Configuration
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.registry import Point, PolicyConfig


class Mine(Configure):
    def configure(self, ctx, start):
        return self.choose(start)

    def choose(self, start):
        {line}


class MineConfig(PolicyConfig):
    """Fails."""

    point: ClassVar[Point] = "configure"
    kind: Literal["mine"] = "mine"
    policy = Mine
'''

SCENARIO = """\
name: failing
question: How does it fail?
cluster: {gpu: SYN-250W, gpus: 1, gpus_per_node: 1, idle_power_w: 40}
workload: {kind: recurring, profiles: {synthetic: {}}, workloads: [image], recurrences: 2}
live: {speed: 1.0e6}
policies: {configure: mine}
variants: {mine: {}}
baseline: mine
"""


def run(
    folder: Path, line: str, *arguments: str, module: str = MODULE
) -> subprocess.CompletedProcess[str]:
    """`wattkeeper` where a distribution with the policy is installed."""
    (folder / "mine_policy.py").write_text(module.format(line=line), encoding="utf-8")
    info = folder / "mine_policy-0.1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-policy\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[wattkeeper.policies]\nmine = mine_policy\n")
    (folder / "failing.yaml").write_text(SCENARIO, encoding="utf-8")
    words = [*arguments]
    if "--live" not in words and "--workers" not in words:  # no process that it starts needs it
        ended = forker().run(words, folder, os.environ)
        return subprocess.CompletedProcess(words, ended.code, ended.stdout, ended.stderr)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "wattkeeper.scenarios", *words],
        env=os.environ | {"PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("more", [(), ("--live",)], ids=["simulated", "live"])
@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("return 1 / 0", ("ZeroDivisionError", "line 13, in choose")),
        ("raise SystemExit(0)", ("SystemExit", "line 13, in choose")),
        ("import asyncio; raise asyncio.CancelledError", ("CancelledError", "line 13, in choose")),
        ("return {'batch_size': 32}", ("wrong type", "Configuration", "dict", "mine_policy.py")),
        ("start.job.gpus = 0", ("AttributeError", "gpus", "line 13, in choose")),
    ],
)
def test_a_failing_policy_is_one_message(
    tmp_path: Path, line: str, facts: tuple[str, ...], more: tuple[str, ...]
) -> None:
    ended = run(tmp_path, line, "run", "failing.yaml", *more)
    assert ended.returncode == 1, ended.stderr
    named = ("configure policy 'mine'", "job image/1", "at 0 s", "variant 'mine'", "mine_policy.py")
    assert_states(ended.stderr, *named, *facts)
    assert "Traceback" not in ended.stderr
    assert "wattkeeper/" not in ended.stderr
    assert not (tmp_path / "results/failing").exists()


PRINTS = "print('chatty'); import sys; sys.stdout.write('chatty'); from wattkeeper.policies."
PRINTS += "configure.fixed import FixedConfig; return FixedConfig().build().configure(None, start)"


@pytest.mark.parametrize(
    "more",
    [(), ("--workers", "2", "--seeds", "2"), ("--sweep", "objective.eta=0,1"), ("--live",)],
    ids=lambda more: " ".join(more) or "simulated",
)
def test_what_a_policy_prints_is_none_of_the_output(tmp_path: Path, more: tuple[str, ...]) -> None:
    ended = run(tmp_path, PRINTS, "run", "failing.yaml", "--json", *more)
    assert ended.returncode == 0, ended.stderr
    json.loads(ended.stdout)
    assert "chatty" not in ended.stdout
    assert "chattychatty" in ended.stderr.replace("\n", "")


WORKERS = pytest.mark.parametrize("more", [(), ("--workers", "2")], ids=["1", "2"])


@WORKERS
def test_an_interruption_by_a_policy_ends_the_command(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    arguments = ("run", "failing.yaml", "--seeds", "2", *more)
    ended = run(tmp_path, "raise KeyboardInterrupt", *arguments)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert drop_signs_of_life(ended.stderr) == "interrupted\n"


@WORKERS
def test_a_policy_that_ends_the_process_leaves_no_results(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """The exit code is the policy's, unless a worker ends."""
    line = "import os; os._exit(0)"
    ended = run(tmp_path, line, "run", "failing.yaml", "--seeds", "2", *more)
    assert ended.returncode == (3 if more else 0), ended.stderr
    assert "Results" not in ended.stdout
    assert not (tmp_path / "results/failing").exists()


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("import not_there_at_all", ("ModuleNotFoundError", "not_there_at_all", "line 2")),
        ("1 / 0", ("ZeroDivisionError", "line 2")),
        ("raise SystemExit(0)", ("SystemExit", "line 2")),
        ("this is no Python", ("SyntaxError", "line 2")),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_message(
    tmp_path: Path, line: str, facts: tuple[str, ...], command: str
) -> None:
    ended = run(tmp_path, line, command, "failing.yaml", module='"""Broken."""\n{line}\n')
    assert ended.returncode == 1, ended.stderr
    named = ("wattkeeper.policies", "'mine'", "mine-policy 0.1", "mine_policy.py")
    assert_states(ended.stderr, *named, *facts)
    assert "Traceback" not in ended.stderr
    assert "wattkeeper/" not in ended.stderr
    assert not (tmp_path / "results/failing").exists()
    assert run(tmp_path, line, "--help", module='"""Broken."""\n{line}\n').returncode == 0
