"""The least energy by GPU type, and placement that comes near it, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wattkeeper.scenarios.cli.main import main

pytest.importorskip("scipy", reason="scipy is not installed: pip install 'wattkeeper[pipeline]'")

POOL = """\
name: pool
cluster:
  nodes:
    - {gpu: SYN-250W, count: 8, gpus: 4}
    - {gpu: SYN-400W, count: 4, gpus: 4}
  power: {SYN-250W: {idle_w: 40}, SYN-400W: {idle_w: 60}}
workload: {kind: recurring, profiles: {synthetic: {}}, recurrences: 250, every_s: 100}
policies: {select: fjf}
bound: types
variants:
  best-fit: {policies: {place: best-fit}}
  energy-aware: {policies: {place: {kind: energy-aware, completion_s: COMPLETION}}}
baseline: best-fit
seeds: 2
"""


def run(folder: Path, text: str, *settings: str) -> Result:
    path = folder / "pool.yaml"
    path.write_text(text)
    words = ["run", str(path), *settings, "--out", str(folder / "out")]
    return CliRunner().invoke(main, words)


def summary(folder: Path) -> Any:
    return json.loads((folder / "out/summary.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    folder = tmp_path_factory.mktemp("pool")
    done = run(folder, POOL.replace("COMPLETION", "1200"))
    assert done.exit_code == 0, done.output
    return done.output, summary(folder)


def test_no_run_falls_below_the_least(found: tuple[str, Any]) -> None:
    output, results = found
    compared = results["types"]
    for name, each in compared.items():
        metrics = results["variants"][name]["metrics"]
        assert each["energy_j"] == pytest.approx(metrics["energy_j"]["mean"])
        assert each["jct_s"] == pytest.approx(metrics["jct_s"]["mean"])
        assert each["above"]["mean"] > 0
        assert each["above"]["ci95"][0] > 0
    assert "above it" in output


def test_placement_by_energy_comes_nearer_and_keeps_its_limit(found: tuple[str, Any]) -> None:
    _, results = found
    blind, aware = (results["types"][name] for name in ("best-fit", "energy-aware"))
    assert aware["above"]["mean"] < blind["above"]["mean"] / 3
    assert aware["jct_s"] < min(blind["jct_s"], 1200)


def test_a_shorter_limit_makes_jobs_wait_less(tmp_path: Path, found: tuple[str, Any]) -> None:
    done = run(tmp_path, POOL.replace("COMPLETION", "700"), "--seeds", "2")
    assert done.exit_code == 0, done.output
    delays = [
        each["variants"]["energy-aware"]["metrics"]["queue_delay_s"]["mean"]
        for each in (found[1], summary(tmp_path))
    ]
    assert delays[1] < delays[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("select: fjf}", "select: fjf, tune: zeus-jit}"), "has tune: zeus-jit"),
        (("select: fjf}", "select: fjf, configure: zeus}"), "has configure: zeus"),
        (("bound: types", "bound: carbon"), "needs electricity.carbon"),
        (("completion_s: COMPLETION", "completion_s: 0"), "completion_s"),
        (("gpu: SYN-400W", "gpu: SYN-250W"), "no workload has a profile on two types"),
    ],
)
def test_what_cannot_be_bounded_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    text = POOL.replace(*change).replace("COMPLETION", "1200")
    done = run(tmp_path, text)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()
