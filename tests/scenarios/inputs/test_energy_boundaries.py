"""What energy is of: power of GPUs, nodes and facility is never added together."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

TABLE = """\
workload,gpu_type,gpus,batch_size,per,time_s,power_w,energy_of,nodes,metric,target,\
higher_is_better,epochs,reached,seed
net,H100,8,64,run,1000,6000,{of},1,loss,1,no,10,yes,1
net,H100,8,64,run,1200,6400,{of},1,loss,1,no,12,yes,2
"""
SCENARIO = """\
name: nodes
question: What do nodes draw?
cluster: {cluster}
workload: {{kind: recurring, profiles: {of}, recurrences: 20, gpus: 8}}
objective: {{eta: 1}}
accounting: {{from_s: 0, until_s: 40000}}
variants:
  default: {{policies: {{place: {place}}}}}
baseline: default
"""
NODES = "{gpu: H100, gpus: 16, gpus_per_node: 8, energy_of: node, idle_power_w: 250}"


@pytest.fixture
def scenario(inside: Command, tmp_path: Path) -> Path:
    for of in ("gpu", "node", "facility"):
        (tmp_path / f"{of}.csv").write_text(TABLE.format(of=of))
        inside("traces", "import", "profiles", tmp_path / f"{of}.csv")
    return tmp_path / "nodes.yaml"


def write(path: Path, cluster: str = NODES, of: str = "node", place: str = "first-fit") -> Path:
    path.write_text(SCENARIO.format(cluster=cluster, of=of, place=place))
    return path


def test_nodes_draw_what_was_recorded_and_idle_power_when_free(
    scenario: Path, inside: Command, tmp_path: Path
) -> None:
    inside("run", write(scenario), "--out", "out", "--seeds", "1")
    jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
    recorded = {1000.0: 6e6, 1200.0: 1200 * 6400.0}
    assert {round(t, 6): round(e, 3) for t, e in zip(jobs.time_s, jobs.energy_j, strict=True)} == (
        recorded
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    metrics = summary["variants"]["default"]["metrics"]
    idle_j = 8 * 250 * (2 * 40000 - jobs.time_s.sum())
    assert metrics["training_energy_j"]["mean"] == pytest.approx(jobs.energy_j.sum())
    assert metrics["cluster_energy_j"]["mean"] == pytest.approx(jobs.energy_j.sum() + idle_j)
    told = (tmp_path / "out" / "report.html").read_text()
    assert "energy is of whole nodes at the plug" in told


WRONG: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "nodes in a cluster of GPUs": (
        {"cluster": NODES.replace("energy_of: node, ", "")},
        ("whole nodes at the plug", "GPUs alone", "energy_of: node", "'net' on 8 x H100"),
    ),
    "GPUs in a cluster of nodes": ({"of": "gpu"}, ("GPUs alone", "leave energy_of out")),
    "facility": ({"of": "facility"}, ("the facility", "energy_of: facility")),
    "facility twice": (
        {
            "of": "facility",
            "cluster": NODES.replace("energy_of: node", "energy_of: facility, pue: 2"),
        },
        ("pue", "includes it already"),
    ),
    "other nodes": (
        {"cluster": NODES.replace("gpus_per_node: 8", "gpus_per_node: 16")},
        ("whole nodes with 8 GPUs", "have 16"),
    ),
    "busy power": (
        {"cluster": NODES.replace("idle_power_w: 250", "idle_power_w: 250, busy_power_w: 600")},
        ("busy_power_w", "leave it out"),
    ),
    "nodes in part": ({"place": "spread"}, ("place: spread", "whole nodes")),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_cannot_be_kept_apart_is_refused(scenario: Path, inside: Command, fault: str) -> None:
    changed, facts = WRONG[fault]
    refused = inside("validate", write(scenario, **changed), code=2).stderr
    assert_states(refused, "nodes.yaml:", *facts)


def test_jobs_without_a_profile_are_refused_beside_nodes(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit_time_s,duration_s,gpus\n0,60,8\n5,60,8\n")
    inside("traces", "import", "csv", tmp_path / "jobs.csv", "--name", "log")
    path = tmp_path / "nodes.yaml"
    path.write_text(
        f"name: nodes\nquestion: Whose power?\ncluster: {NODES}\n"
        "workload: {kind: trace, trace: log}\nobjective: {eta: 1}\n"
        "variants: {default: {}}\nbaseline: default\n"
    )
    refused = inside("validate", path, code=2).stderr
    assert_states(refused, "busy_power_w is missing")
    path.write_text(path.read_text().replace("idle_power_w", "busy_power_w: 600, idle_power_w"))
    assert_states(inside("validate", path, code=2).stderr, "energy_of", "busy_power_w")


def test_other_kinds_have_no_boundary(inside: Command) -> None:
    refused = inside("run", "pipeline-clocks", "--set", "cluster.energy_of=node", code=2).stderr
    assert_states(refused, "energy_of", "kind: pipeline")
