"""Losses of nodes through the command: traces, drawn ones, checkpoints, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.losses import SCENARIO, generate_jobs

DALY = "  daly: {cluster: {losses: {checkpoint: {every_s: daly}}}}\n"
DRAWN = "{rate: 300, away_s: 1800, notice: {share: 0.5, length_s: 120}}"


def losses(command: Command, folder: Path, events: str = DRAWN, **change: str) -> dict[str, Any]:
    """The summary of the scenario."""
    text = SCENARIO.replace("EVENTS", events).replace("baseline:", f"{DALY}baseline:")
    for old, new in change.items():
        text = text.replace(old, new)
    (folder / "losses.yaml").write_text(text, encoding="utf-8")
    command("run", "losses.yaml", "--out", "out")
    summary: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())
    return summary


@pytest.fixture
def with_jobs(inside: Command) -> Command:
    generate_jobs(inside, 0.8, jobs=100)
    return inside


def test_checkpoints_save_work_and_all_variants_meet_the_same_losses(
    with_jobs: Command, tmp_path: Path
) -> None:
    summary = losses(with_jobs, tmp_path)
    metrics = {
        name: {metric: value["mean"] for metric, value in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }
    assert "node_losses" not in metrics["none"]
    assert metrics["anew"]["lost_gpu_s"] > 5 * metrics["saved"]["lost_gpu_s"] > 0
    assert metrics["saved"]["unable_jobs"] == 0
    assert metrics["saved"]["jobs"] == metrics["none"]["jobs"]
    nodes = pd.read_parquet(tmp_path / "out/nodes.parquet")
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    lost = jobs[jobs.lost_node.notna()]
    assert nodes.groupby("variant").jobs.sum().to_dict() == lost.groupby("variant").size().to_dict()
    one, other = (
        nodes[nodes.variant == name][["time_s", "node", "event"]].to_numpy().tolist()
        for name in ("anew", "saved")
    )
    assert one[: min(len(one), len(other))] == other[: len(one)]
    useful = (jobs.time_s - jobs.lost_time_s.fillna(0)).groupby([jobs.variant, jobs.job_id]).sum()
    for variant in ("saved", "daly"):  # without checkpoints, long jobs never end
        pd.testing.assert_series_equal(useful[variant], useful["none"], check_names=False)


def test_the_same_losses_give_the_same_bytes(with_jobs: Command, tmp_path: Path) -> None:
    losses(with_jobs, tmp_path)
    first = json.loads((tmp_path / "out/manifest.json").read_text())["results_digest"]
    losses(with_jobs, tmp_path)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["results_digest"] == first


def test_nodes_of_a_trace_come_and_go(with_jobs: Command, tmp_path: Path) -> None:
    rows = [f"0,add,n{n}" for n in range(6)] + ["3600000,remove,n2", "7200000,add,other"]
    rows.append("9000000,add,n2")
    (tmp_path / "spot.csv").write_text("\n".join(rows), encoding="utf-8")
    with_jobs("traces", "import", "auto", "spot.csv", "--name", "spot")
    losses(with_jobs, tmp_path, "spot")
    nodes = pd.read_parquet(tmp_path / "out/nodes.parquet")
    found = nodes[nodes.variant == "saved"][["time_s", "node", "event"]].to_numpy().tolist()
    assert found == [
        [0.0, 6, "absent"],
        [0.0, 7, "absent"],
        [3600.0, 2, "down"],
        [7200.0, 2, "up"],
        [9000.0, 6, "up"],
    ]


@pytest.mark.parametrize(
    ("events", "change", "facts"),
    [
        ("nowhere", {}, "nowhere"),
        ("jobs", {}, "trace 'jobs' holds jobs; node-events are needed"),
        ("many", {}, "9 nodes are there at 0 s, the cluster has 8"),
        ("{rate: 5}", {"read_s: 10": "on_notice: true"}, "on_notice has no effect"),
        ("{rate: 5, shape: 3}", {}, "shape"),
        ("{rate: 5}", {"write_s: 20": "write_s: 700, blocking: false"}, "longer than every_s"),
        ("{rate: 5}", {"every_s: 600": "every_s: on-notice"}, "needs on_notice: true"),
    ],
)
def test_what_is_refused(
    events: str, change: dict[str, str], facts: str, with_jobs: Command, tmp_path: Path
) -> None:
    rows = "\n".join(f"0,add,n{n}" for n in range(9))
    (tmp_path / "many.csv").write_text(rows, encoding="utf-8")
    with_jobs("traces", "import", "node-events", "many.csv", "--name", "many")
    text = SCENARIO.replace("EVENTS", events).replace("baseline:", f"{DALY}baseline:")
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / "losses.yaml").write_text(text, encoding="utf-8")
    done = with_jobs("run", "losses.yaml", "--out", "out", code=2)
    assert facts in done.stderr
    assert "losses.yaml:" in done.stderr


def test_a_live_run_refuses_losses(with_jobs: Command, tmp_path: Path) -> None:
    (tmp_path / "losses.yaml").write_text(SCENARIO.replace("EVENTS", "{rate: 5}"))
    done = with_jobs("run", "losses.yaml", "--live", "--out", "out", code=2)
    assert "nodes are lost in simulated runs only" in done.stderr
