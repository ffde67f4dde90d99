"""What `wattkeeper policy new` writes keeps the contract, and its tests pass, at every point."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.contract.new_policy import EXAMPLES, class_name, read_example
from wattkeeper.scenarios.policy_kit import load_policy

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_decision_point_has_an_example() -> None:
    assert set(EXAMPLES) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_the_file_holds_a_policy_of_that_name(point: str, inside: Command, tmp_path: Path) -> None:
    done = inside("policy", "new", point, "mine-too", "--out", "made")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["made/mine_too.py", "made/test_mine_too.py"]
    assert lines[3] == "  wattkeeper policy check made/mine_too.py"
    config = load_policy(tmp_path / "made/mine_too.py")
    assert (config.point, config.__name__) == (point, "MineTooConfig")
    policy = config().build()
    base = POINTS[config.point].base
    assert isinstance(policy, base)
    assert type(policy).state_dict is not base.state_dict, "it has no state"
    written = "".join(path.read_text() for path in (tmp_path / "made").iterdir())
    example = EXAMPLES[config.point]
    assert class_name(example) not in written
    assert f'"{example}"' not in written


def test_the_preemptive_example_preempts(inside: Command, tmp_path: Path) -> None:
    """In a run that is checked for the laws of conservation."""
    inside("policy", "new", "select", "mine", "--preemptive")
    config = load_policy(tmp_path / "mine.py")
    assert isinstance(config().build(), POINTS["select"].base)
    generated = ("--name", "jobs", "--jobs", "200", "--load", "1", "--gpus", "8")
    inside("traces", "generate", "jobs", *generated)
    mine = "variants={mine: {policies: {select: mine}}, fjf: {policies: {select: fjf}}}"
    size = ("--set", "workload.trace=jobs", "--set", "cluster.gpus=8", "--set", mine)
    asked = ("--policy", "mine.py", *size, "--set", "baseline=fjf", "--out", "results", "--check")
    inside("run", "philly-schedulers", *asked)
    jobs = pd.read_parquet(tmp_path / "results/jobs.parquet")
    preemptions = jobs.groupby("variant")["preemptions"].sum()
    assert preemptions["mine"] > 0
    assert preemptions["fjf"] == 0
    refused = inside("policy", "new", "tune", "other", "--preemptive", code=2)
    assert_states(refused.stderr, "--preemptive", "select", "tune")


@pytest.mark.slow
def test_the_written_tests_pass(inside: Command, tmp_path: Path) -> None:
    for point in POINTS:
        inside("policy", "new", point, f"my-{point}")
    inside("policy", "new", "select", "my-preemptive", "--preemptive")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "WATTKEEPER_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "14 passed" in done.stdout


def test_the_examples_are_not_registered() -> None:
    for point, kind in EXAMPLES.items():
        assert read_example(point)
        assert kind not in policies(point)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Policy", "small letters"),
        ("a b", "small letters"),
        ("../a", "small letters"),
        ("a--b", "small letters"),
        ("a-", "small letters"),
        ("é", "small letters"),
        ("class", "Python"),
        ("json", "Python"),
        ("any", "'Any'|the file has"),
        ("max-power", "already"),
    ],
)
def test_names_that_cannot_be_used_are_refused(name: str, words: str, inside: Command) -> None:
    refused = inside("policy", "new", "tune", name, code=2)
    assert_states(refused.stderr, name, *words.split("|"))


def test_files_are_not_overwritten(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    refused = inside("policy", "new", "tune", "mine", code=2)
    assert_states(refused.stderr, "test_mine.py", "is there already")
    assert not (tmp_path / "mine.py").exists()


@pytest.mark.parametrize("point", POINTS)
def test_the_printed_run_compares_the_policy(point: str, inside: Command, tmp_path: Path) -> None:
    printed = inside("policy", "new", point, "mine-too", "--out", "my files").stdout.splitlines()[
        -1
    ]
    few = [] if point == "replan" else ["--set", "workload.recurrences=2"]
    inside(*shlex.split(printed)[1:], "--seeds", "1", "--out", "results", *few)
    decisions = pd.read_parquet(tmp_path / "results/decisions.parquet", columns=["policy"])
    retained = pd.read_parquet(tmp_path / "results/jobs.parquet", columns=["variant"])
    assert "mine" in set(retained["variant"])
    assert point == "retain" or "mine-too" in set(decisions["policy"])


def test_the_page_states_what_the_example_costs(inside: Command, tmp_path: Path) -> None:
    """The commands of the page on policies, and the figure beside them."""
    page = (DOCS / "policy.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"## Begin with an example\n(.*?)\n## ", page, re.DOTALL)
    new, _, run = re.findall(r"^\$ wattkeeper (.*)$", section, re.MULTILINE)
    for line in (new, run):
        inside(*shlex.split(line))
    summary = json.loads((tmp_path / "results/mine/summary.json").read_text())
    ratio = summary["variants"]["mine"]["versus"]["energy_j"]["ratio"]
    assert f"needs {100 * (ratio - 1):.1f} % more energy" in section
