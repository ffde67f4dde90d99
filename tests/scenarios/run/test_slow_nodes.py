"""Slow nodes through the command: drawn and of a trace, what they cost, and a placement without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.losses import SCENARIO, generate_jobs

EVENTS = (
    "{rate: 1000, away_s: 3600, together: {share: 0.3, nodes: 2, rack: 4}, "
    "notice: {share: 1, length_s: 14400}, "
    "degraded: {rate: 1000, length_s: 43200, factor: [1.5, 3]}}"
)
VARIANTS = """variants:
  lossless: {cluster: {losses: null}}
  first-fit: {}
  steady: {policies: {place: {kind: steady, then: first-fit}}}
baseline: first-fit
"""


def run(command: Command, events: str) -> dict[str, dict[str, float]]:
    """The metrics of each variant."""
    head = SCENARIO.replace("EVENTS", events).split("variants:")[0]
    Path("slow.yaml").write_text(f"{head}{VARIANTS}", encoding="utf-8")
    command("validate", "slow.yaml")
    command("run", "slow.yaml", "--out", "out")
    summary: dict[str, Any] = json.loads(Path("out/summary.json").read_text())
    return {
        name: {metric: value["mean"] for metric, value in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }


@pytest.fixture
def with_jobs(inside: Command) -> Command:
    generate_jobs(inside, 0.4)
    return inside


def test_slow_nodes_cost_time_and_a_placement_avoids_some_of_it(with_jobs: Command) -> None:
    metrics = run(with_jobs, EVENTS)
    assert "slow_gpu_s" not in metrics["lossless"]
    for name in ("slow_gpu_s", "lost_gpu_s", "lost_attempts"):
        assert 0 < metrics["steady"][name] < 0.9 * metrics["first-fit"][name]
    jobs = pd.read_parquet("out/jobs.parquet")
    nodes = pd.read_parquet("out/nodes.parquet")
    held_s = (jobs.slow_s * jobs.gpus * jobs.gpu_milli / 1000).groupby(jobs.variant).sum()
    for name in ("first-fit", "steady"):
        assert held_s[name] == pytest.approx(metrics[name]["slow_gpu_s"])
    assert held_s["lossless"] == 0
    slow = nodes[nodes.event == "degraded"]
    assert slow.factor.between(1, 3).all()
    assert (slow.factor > 1).sum() > 10
    assert nodes[nodes.event != "degraded"].factor.isna().all()
    both = [
        nodes[nodes.variant == name][["time_s", "node", "event"]].to_numpy().tolist()
        for name in ("first-fit", "steady")
    ]
    shorter = min(map(len, both))
    assert both[0][:shorter] == both[1][:shorter]
    page = Path("out/report.html").read_text()
    assert "slow nodes" in page


def test_losses_are_the_same_with_slow_nodes_and_without(with_jobs: Command) -> None:
    def losses() -> list[list[Any]]:
        nodes = pd.read_parquet("out/nodes.parquet")
        kept = nodes[(nodes.variant == "first-fit") & (nodes.event != "degraded")]
        listed: list[list[Any]] = kept[["time_s", "node", "event"]].to_numpy().tolist()
        return listed

    run(with_jobs, EVENTS)
    with_slow = losses()
    assert "factor" in pd.read_parquet("out/nodes.parquet")
    run(with_jobs, EVENTS.partition(", degraded")[0] + "}")
    without = losses()
    shorter = min(len(with_slow), len(without))
    assert shorter > 50
    assert with_slow[:shorter] == without[:shorter]
    assert "factor" not in pd.read_parquet("out/nodes.parquet")
    assert "slow_s" not in pd.read_parquet("out/jobs.parquet")


def test_a_trace_says_which_nodes_are_slow_and_where_they_stand(with_jobs: Command) -> None:
    rows = [
        "time_s,event,node,rack,cause,deadline_s,repair_s,factor",
        "0,degraded,n0,west,hot,,,2.5",
        "3600,degraded,n1,east,,,7200,1.5",
        "7200,down,n1,east,disk,,600,",
        "9000,degraded,n0,west,,,,1",
    ]
    Path("events.csv").write_text("\n".join(rows), encoding="utf-8")
    with_jobs("traces", "import", "auto", "events.csv", "--name", "events")
    about = with_jobs("traces", "describe", "events").stdout
    assert "2 racks" in about
    assert "nodes became slow 2 times: on average an iteration took 2 times as long for" in about
    run(with_jobs, "events")
    nodes = pd.read_parquet("out/nodes.parquet")
    found = nodes[nodes.variant == "steady"].fillna(0)
    assert found[["time_s", "node", "event", "factor"]].to_numpy().tolist() == [
        [0.0, 0, "degraded", 2.5],
        [3600.0, 1, "degraded", 1.5],
        [7200.0, 1, "down", 0.0],
        [7800.0, 1, "up", 0.0],
        [9000.0, 0, "degraded", 1.0],
    ]


@pytest.mark.parametrize(
    ("events", "facts"),
    [
        ("{rate: 5, degraded: {rate: 5, factor: [2, 1.5]}}", "2 to 1.5 is no range"),
        ("{rate: 5, degraded: {rate: 5, factor: [0.5, 1.5]}}", "greater than or equal to 1"),
        ("{rate: 5, degraded: {rate: 0}}", "greater than 0"),
        ("{rate: 5, degraded: {}}", "rate"),
    ],
)
def test_what_is_refused(events: str, facts: str, inside: Command) -> None:
    text = SCENARIO.replace("EVENTS", events)
    Path("slow.yaml").write_text(text, encoding="utf-8")
    done = inside("validate", "slow.yaml", code=2)
    assert facts in done.stderr
    assert "slow.yaml:" in done.stderr
