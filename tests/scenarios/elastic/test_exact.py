"""Elastic jobs in scenarios: all rows of the reference of exact losses, and the fair headline."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers.replays.models import PUBLISHED_MODELS, PublishedModel
from tests.conftest import Command
from tests.support.published_replays import read_reference, trace_name
from wattkeeper import scenarios
from wattkeeper.policies.replan.adaptive import useful_share
from wattkeeper.traces.node_rates import read_node_rates

MIN_NODES, BOOT_S = 12, 45.0

COLUMNS = {
    "goodput_samples_per_s": "goodput",
    "ettr": "ettr",
    "lost_share": "lost_share",
    "pause_share": "pause_share",
    "checkpoint_share": "checkpoint_share",
    "stopped_share": "stopped_share",
}
"""Metrics by column of the reference."""

KINDS = {"in_memory": "in-memory", "notice": "on-notice"}
"""Policies by system of the reference, where they differ."""


def job_of(name: str, model: PublishedModel) -> dict[str, Any]:
    """The job of a published model; its times are those of the published replays."""
    varuna = model.varuna
    by_nodes = varuna.restart_ms_by_nodes
    restart_s = {nodes: length_ms / 1000 for nodes, length_ms in by_nodes.items()}
    return {
        "name": name,
        "model": model.rates,
        "submit_s": BOOT_S,
        "batch": varuna.batch,
        "least_nodes": MIN_NODES,
        "most_nodes": 30,
        "checkpoint_s": varuna.checkpoint_ms / 1000,
        "restart_s": restart_s or varuna.restart_ms / 1000,
        "reconfigure_s": model.oobleck.pause_ms / 1000,
    }


def scenario_of(
    shared: Path, trace: str, job: Mapping[str, Any], until_s: float, variants: Mapping[str, Any]
) -> dict[str, Any]:
    """A scenario of one job on 30 nodes that are lost as in a trace."""
    return {
        "name": "exact",
        "cluster": {
            "gpu": "V100",
            "gpus": 30,
            "gpus_per_node": 1,
            "idle_power_w": 50,
            "busy_power_w": 250,
            "losses": {"events": trace, "boot_s": BOOT_S},
        },
        "workload": {
            "kind": "elastic",
            "rates": str(shared / "data/oobleck/throughput_by_nodes.csv"),
            "beyond_rates": "nearest",
            "until_s": until_s,
            "jobs": [job],
        },
        "variants": variants,
        "baseline": next(iter(variants)),
    }


def variant_of(row: Mapping[str, str]) -> dict[str, Any]:
    kind = KINDS.get(row["system"], row["system"])
    variant: dict[str, Any] = {"policies": {"replan": {"kind": kind, "join": row["join"]}}}
    if kind == "on-notice":
        variant["cluster"] = {"losses": {"notice_s": 120}}
    return variant


def last_s(shared: Path, trace: str) -> float:
    """Time of the last row of a trace of spot nodes, s."""
    text = (shared / "data/spot" / trace).read_text(encoding="utf-8")
    return max(int(line.partition(",")[0]) for line in text.split()) / 1000


def run(scenario: Mapping[str, Any], folder: Path) -> dict[str, dict[str, float]]:
    """The metrics of each variant."""
    path = folder / "exact.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    variants = scenarios.load(str(path)).run().summary["variants"]
    return {
        name: {metric: of["mean"] for metric, of in about["metrics"].items()}
        for name, about in variants.items()
    }


def test_all_rows_of_the_reference(
    shared: Path, spot_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(spot_traces))
    rows = read_reference(shared, "exact_by_trace.csv")
    assert len(rows) == 65
    rows.sort(key=lambda row: (row["trace"], row["model"]))
    for (trace, model), group in groupby(rows, key=lambda row: (row["trace"], row["model"])):
        wanted = {f"{row['system']}-{row['join']}".replace("_", "-"): row for row in group}
        variants = {name: variant_of(row) for name, row in wanted.items()}
        job = job_of(model, PUBLISHED_MODELS[model])
        until_s = last_s(shared, trace)
        found = run(scenario_of(shared, trace_name(trace), job, until_s, variants), tmp_path)
        for name, row in wanted.items():
            own = found[name]
            assert own["ready_node_losses"] == int(row["losses"]), (trace, model, name)
            for column, metric in COLUMNS.items():
                expected = pytest.approx(float(row[column]), rel=5e-6, abs=1e-6)
                assert own[metric] == expected, (trace, model, name, column)


LARGEST = PUBLISHED_MODELS["GPT-3-6_7b"]
MEAN_S = 600.0
"""Mean time between losses of the headline, s."""
SIZES = range(30, 15, -1)
"""Nodes before each of its 15 losses."""


def test_the_fair_headline_follows_from_the_closed_form(shared: Path) -> None:
    """As the headline, 30 nodes are lost one by one, but after exponential times."""
    rates = read_node_rates(shared / "data/oobleck/throughput_by_nodes.csv")
    oobleck, others = (rates.of(system, LARGEST.rates) for system in ("oobleck", "varuna"))
    batch, write_s = LARGEST.varuna.batch, LARGEST.varuna.checkpoint_ms / 1000
    restart_s, pause_s = LARGEST.varuna.restart_ms / 1000, LARGEST.oobleck.pause_ms / 1000

    def goodput(rate: float, steps: int, write_s: float, pause_s: float) -> float:
        return rate * useful_share(steps * batch / rate, write_s, pause_s, MEAN_S)

    copies = sum(goodput(oobleck[n], 1, 0, pause_s) for n in SIZES)
    stored = sum(
        max(goodput(others[n], steps, write_s, restart_s - write_s) for steps in range(1, 30))
        for n in SIZES
    )
    memory = sum(goodput(others[n], 1, 0, restart_s - 2 * write_s) for n in SIZES)
    assert copies / stored == pytest.approx(4.07, abs=0.005)
    assert copies / memory == pytest.approx(1.95, abs=0.005)


@pytest.mark.slow
def test_the_fair_headline_in_scenarios(shared: Path, inside: Command, tmp_path: Path) -> None:
    """The same, again and again: all nodes are back at each fifteenth loss."""
    drawn = random.Random(7)
    rows, now_s = ["time_s,event,node", *(f"0,up,n{n}" for n in range(30))], 0.0
    for _ in range(400):
        lost = drawn.sample(range(30), len(SIZES))
        for node in lost:
            now_s += drawn.expovariate(1 / MEAN_S)
            rows.append(f"{now_s:.3f},down,n{node}")
        rows += [f"{now_s:.3f},up,n{node}" for node in sorted(lost)]
    (tmp_path / "events.csv").write_text("\n".join(rows))
    inside("traces", "import", "node-events", "events.csv", "--name", "events")
    chosen: dict[str, Any] = {
        "oobleck": "oobleck",
        "memory": {"kind": "in-memory", "join": "loss"},
        "ten": "varuna",
        "one": {"kind": "varuna", "every_steps": 1},
        "two": {"kind": "varuna", "every_steps": 2},
    }
    variants = {name: {"policies": {"replan": replan}} for name, replan in chosen.items()}
    job = job_of("GPT-3-6_7b", LARGEST) | {"submit_s": 0}
    scenario = scenario_of(shared, "events", job, now_s, variants)
    scenario["cluster"]["losses"]["boot_s"] = 0
    found = run(scenario, tmp_path)
    ratio = {name: found["oobleck"]["goodput"] / own["goodput"] for name, own in found.items()}
    assert min(ratio["one"], ratio["two"]) == pytest.approx(4.1, rel=0.04)
    assert ratio["memory"] == pytest.approx(1.95, rel=0.04)
    assert ratio["ten"] > 13.9
