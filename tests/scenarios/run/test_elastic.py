"""Elastic jobs through the command: what their nodes cost, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.elastic import SCENARIO
from tests.support.messages import assert_states


def run(command: Command, folder: Path, text: str = SCENARIO) -> dict[str, dict[str, Any]]:
    """The metrics of each variant, means over seeds."""
    (folder / "elastic.yaml").write_text(text, encoding="utf-8")
    command("run", "elastic.yaml", "--out", "out")
    summary = json.loads((folder / "out/summary.json").read_text())
    return {
        name: {metric: values["mean"] for metric, values in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }


def with_rent(rent: str, signals: str = "") -> str:
    rented = SCENARIO.replace("boot_s: 60}\n", f"boot_s: 60}}\n  rent: {rent}\n")
    assert rented != SCENARIO
    return rented + (f"signals: {signals}\n" if signals else "")


def test_rent_is_that_of_the_nodes_that_are_up(inside: Command, tmp_path: Path) -> None:
    """One job may take all nodes: it pays for each while it is up."""
    found = run(inside, tmp_path, with_rent("{node_hour: 0.9, on_demand: 3, currency: USD}"))
    for metrics in found.values():
        node_h = 6 * 24 * metrics["nodes_up"]
        assert metrics["elastic_rent"] == pytest.approx(0.9 * node_h)
        assert metrics["elastic_energy_j"] == pytest.approx(metrics["cluster_energy_j"])
        assert metrics["on_demand_rent"] == pytest.approx(
            3 * 6 * metrics["useful_samples"] / 10.0 / 3600
        )
        assert 0 < metrics["lost_rent"] < metrics["elastic_rent"]
    assert found["varuna"]["useful_sample_rent"] > found["oobleck"]["useful_sample_rent"]


def test_prices_that_follow_a_signal(inside: Command, tmp_path: Path) -> None:
    """Half of the day at one price, and half at another; no node is lost."""
    steps = "{spot: {series: {steps: [[0, 1], [43200, 3]]}, unit: EUR/h}}"
    text = with_rent("{node_hour: {signal: spot}, currency: EUR}", steps)
    text = re.sub("losses: .*", "losses: null", text)
    found = run(inside, tmp_path, text)
    for metrics in found.values():
        assert metrics["elastic_rent"] == pytest.approx(6 * 12 * (1 + 3))
        assert metrics["lost_rent"] == 0


def test_results_without_rent_have_no_metrics_of_it(inside: Command, tmp_path: Path) -> None:
    found = run(inside, tmp_path)
    assert not [name for metrics in found.values() for name in metrics if "rent" in name]


def test_slow_nodes_cost_goodput(inside: Command, tmp_path: Path) -> None:
    """All nodes become slow in turn; none is lost, but for one in many years."""
    events = "{rate: 0.001, away_s: 60, degraded: {rate: 3000, length_s: 7200, factor: [2, 2]}}"
    slow = run(inside, tmp_path, re.sub("events: {.*?}", f"events: {events}", SCENARIO))
    full = run(inside, tmp_path, re.sub("losses: .*", "losses: null", SCENARIO))
    for name, metrics in slow.items():
        assert metrics["node_losses"] == 0
        slow_s = metrics["slow_gpu_s"] / 48
        assert slow_s > 3600
        lost = 1 - metrics["goodput"] / full[name]["goodput"]
        assert lost == pytest.approx(slow_s / 86400, abs=2 * 400 / 86400)
        assert metrics["elastic_energy_j"] == pytest.approx(metrics["cluster_energy_j"])


def test_a_job_that_never_has_enough_nodes(inside: Command, tmp_path: Path) -> None:
    """It needs all nodes, and one is down: there is nothing to measure, and the command says so."""
    (tmp_path / "events.csv").write_text("time_s,node,event\n0,0,down\n90000,0,up\n")
    inside("traces", "import", "node-events", "events.csv", "--name", "one-down")
    text = re.sub("losses: .*", "losses: {events: one-down}", SCENARIO)
    (tmp_path / "elastic.yaml").write_text(text.replace("least_nodes: 3", "least_nodes: 6"))
    done = inside("run", "elastic.yaml", "--out", "out")
    assert "varuna: no elastic job ever held a node." in " ".join(done.stdout.split())
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    for about in summary["variants"].values():
        assert about["metrics"]["unable_jobs"]["mean"] == 1
        assert about["metrics"]["makespan_s"]["mean"] is None
        assert about["metrics"]["useful_samples"]["mean"] == 0
    assert (tmp_path / "out/report.html").exists()


RECURRING = """
name: recurring
cluster:
  {gpu: SYN-250W, gpus: 1, idle_power_w: 40, rent: {node_hour: 1, currency: USD}}
workload: {kind: recurring, profiles: {synthetic: {}}, workloads: [image], recurrences: 1}
variants: {one: {}}
baseline: one
"""

SIGNAL = "{node_hour: {signal: spot}, currency: USD}"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (RECURRING, ["rent has no effect", "workload.kind: elastic"]),
        (with_rent(SIGNAL), ["rent.node_hour", "'spot'", "signals.spot"]),
        (with_rent(SIGNAL, "{spot: {series: 1, unit: EUR/h}}"), ["'spot'", "EUR/h", "USD/h"]),
        (with_rent(SIGNAL, "{spot: {series: -1}}"), ["'spot'", "falls to -1", "at least 0"]),
        (
            with_rent("{node_hour: 1, currency: USD}", "{spot: {series: 1}}"),
            ["'spot'", "neither a power cap nor a rent follows it"],
        ),
        (with_rent("{on_demand: 1, currency: USD}"), ["node_hour"]),
        (with_rent("{node_hour: 1}"), ["currency"]),
        (with_rent("{node_hour: -1, currency: USD}"), ["node_hour", "-1"]),
        (
            with_rent("{node_hour: 1, currency: USD}").replace(
                "oobleck: {", "oobleck: {cluster: {rent: {currency: EUR}}, "
            ),
            ["one currency", "USD and EUR", "'oobleck'"],
        ),
        (
            with_rent(
                SIGNAL,
                "{spot: {series: {file: spot.csv, unit: USD/h, origin: "
                "'2024-01-01T00:00:00+00:00'}}}",
            ),
            ["'spot'", "43200", "repeat"],
        ),
    ],
)
def test_prices_that_cannot_be_are_refused(
    inside: Command, tmp_path: Path, text: str, facts: list[str]
) -> None:
    spot = "time,price\n2024-01-01T00:00Z,1\n2024-01-01T06:00Z,2\n"
    (tmp_path / "spot.csv").write_text(spot, encoding="utf-8")
    (tmp_path / "elastic.yaml").write_text(text, encoding="utf-8")
    done = inside("run", "elastic.yaml", "--out", "out", code=2)
    assert_states(done.stderr, "elastic.yaml:", *facts)


def test_it_is_not_run_live(inside: Command) -> None:
    """That is said before any losses of its nodes are refused."""
    Path("elastic.yaml").write_text(SCENARIO, encoding="utf-8")
    done = inside("run", "elastic.yaml", "--live", "--out", "out", code=2)
    assert_states(done.stderr, "elastic.yaml:12:", "kind elastic", "--live", "live-elastic.md")
    assert "losses" not in done.stderr
