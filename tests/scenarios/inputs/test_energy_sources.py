"""What the energy of a cluster rests on: measured jobs, models, and stated factors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

SCENARIO = """\
name: metered
cluster:
  nodes: [{gpu: a100, count: 2, gpus: 8}]
  power: {a100: {idle_w: 50, busy_w: 300}}
  pue: 1.25
workload: {kind: trace, trace: metered}
variants: {fifo: {}, sjf: {policies: {select: sjf}}}
baseline: fifo
"""
HOUR_S = 3600
POWER_W = {"whole": (8, 2000), "part": (2, 700), "unmetered": (1, None), "too-much": (2, 900)}
"""GPUs and measured power by job; two GPUs draw at most 800 W."""


@pytest.fixture
def metered(inside: Command, tmp_path: Path) -> Path:
    lines = ["job_id,submit_time_s,duration_s,gpus,energy_j"]
    for name, (gpus, power_w) in POWER_W.items():
        joules = "" if power_w is None else power_w * HOUR_S
        lines.append(f"{name},0,{HOUR_S},{gpus},{joules}")
    (tmp_path / "jobs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    inside("traces", "import", "csv", "jobs.csv", "--name", "metered")
    (tmp_path / "metered.yaml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path / "metered.yaml"


def test_shares_of_the_energy(inside: Command, metered: Path) -> None:
    said = inside("run", metered, "--out", "out").stdout
    assert_states(" ".join(said.split()), "upper bound", "can exceed what the node drew")
    manifest = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))
    shares = manifest["energy_sources"]["shares"]
    measured_w, modelled_w, idle_w = 2000 + 700, 300 + 2 * 300, 3 * 50
    gpus_w = measured_w + modelled_w + idle_w
    assert shares == {
        "measured": pytest.approx(measured_w / gpus_w / 1.25),
        "profiles": 0,
        "modelled": pytest.approx((modelled_w + idle_w) / gpus_w / 1.25),
        "stated": pytest.approx(0.2),
    }
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert_states(
        page,
        "energy of fifo",
        "57.6 % measured",
        "22.4 % modelled",
        "20 % stated or assumed (power usage effectiveness)",
    )
    sleep = "cluster.sleep={after_s: 60, power_w: 5, wake_s: 60}"
    inside(
        "run",
        metered,
        "--out",
        "out",
        "--set",
        sleep,
        "--set",
        "cluster.pue=1",
        "--set",
        "cluster.nodes.0.count=3",
    )
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert_states(page, "stated or assumed (sleeping GPUs)")


def test_nothing_was_measured(inside: Command, metered: Path) -> None:
    path = metered.with_name("jobs.csv")
    rows = [line.rpartition(",")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    inside("traces", "import", "csv", "jobs.csv", "--name", "metered", "--replace")
    inside("run", metered, "--out", "out")
    manifest = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))
    shares = manifest["energy_sources"]["shares"]
    assert (shares["measured"], shares["modelled"]) == (0, pytest.approx(0.8))
