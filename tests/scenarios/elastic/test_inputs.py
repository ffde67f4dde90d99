"""Inputs of elastic jobs through the command: files of rates, announced losses, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

HEAD = "model,num_nodes,samples_per_s\n"
ROWS = "gpt,2,4\ngpt,3,6\ngpt,4,8\n"


def scenario(tmp_path: Path, **sections: Any) -> None:
    """Write a scenario of one job on 2 to 4 nodes; `sections` replace those of the same name."""
    (tmp_path / "rates.csv").write_text(HEAD + ROWS)
    stated: dict[str, Any] = {
        "name": "small",
        "cluster": {
            "gpu": "A",
            "gpus": 8,
            "gpus_per_node": 2,
            "idle_power_w": 50,
            "busy_power_w": 250,
        },
        "workload": {
            "kind": "elastic",
            "rates": "rates.csv",
            "until_s": 1000,
            "jobs": [
                {
                    "name": "gpt",
                    "model": "gpt",
                    "batch": 32,
                    "least_nodes": 2,
                    "most_nodes": 4,
                    "checkpoint_s": 5,
                    "restart_s": 30,
                    "reconfigure_s": 2,
                }
            ],
        },
        "variants": {"varuna": {"policies": {"replan": "varuna"}}, "oobleck": {}},
        "baseline": "varuna",
    }
    for name, more in sections.items():
        stated[name] = {**stated.get(name, {}), **more}
    (tmp_path / "small.yaml").write_text(json.dumps(stated, indent=1))


def test_rates_that_name_no_system_hold_for_all(inside: Command, tmp_path: Path) -> None:
    scenario(tmp_path)
    inside("run", "small.yaml", "--out", "results")
    shapes = pd.read_parquet("results/shapes.parquet")
    assert shapes.set_index("variant").samples_per_s.to_dict() == {"varuna": 8, "oobleck": 8}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (f"system,{HEAD},gpt,2,4\nvaruna,gpt,3,6\n", ("rates.csv", "row 1 names no system")),
        (f"{HEAD}{ROWS}gpt,2,5\n", ("rates.csv", "gpt on 2 nodes", "twice")),
        (f"{HEAD}gpt,2,4\n", ("small.yaml:", "2 numbers of nodes", "first: 3")),
        (f"system,{HEAD}varuna,{ROWS}".replace("\ngpt", "\nvaruna,gpt"), ("by oobleck",)),
    ],
)
def test_broken_rates_are_refused(
    text: str, facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    scenario(tmp_path)
    (tmp_path / "rates.csv").write_text(text)
    assert_states(inside("validate", "small.yaml", code=2).stderr, *facts)


def test_a_job_trains_on_no_fewer_nodes_than_a_pipeline_of_bamboo(
    inside: Command, tmp_path: Path
) -> None:
    scenario(tmp_path, policies={"replan": {"kind": "bamboo", "depth": 3}})
    inside("run", "small.yaml", "--out", "results", "--set", "cluster.gpus=6")
    shapes = pd.read_parquet("results/shapes.parquet").query("variant == 'oobleck'")
    assert shapes[["nodes", "samples_per_s"]].to_numpy().tolist() == [[3, 6]]
    answer = inside("validate", "small.yaml", "--set", "cluster.gpus=4", code=2)
    assert_states(answer.stderr, "gpt trains on 3 nodes at least", "2")
    scenario(tmp_path, policies={"replan": "bamboo"})
    answer = inside("validate", "small.yaml", code=2)
    assert_states(answer.stderr, "gpt takes 4 nodes at most", "12 or more")


LOSSES = {"events": {"rate": 2000, "away_s": 60}}


@pytest.mark.parametrize(
    ("section", "stated", "facts"),
    [
        ("cluster", {"losses": LOSSES | {"requeue": "last"}}, ("losses.requeue has no effect",)),
        (
            "cluster",
            {"losses": LOSSES | {"checkpoint": {"every_s": 60, "write_s": 1}}},
            ("losses.checkpoint has no effect",),
        ),
        ("cluster", {"preemption": {"restore_s": 5}}, ("preemption has no effect",)),
        ("policies", {"place": "steady"}, ("place: steady would touch no job",)),
        (
            "policies",
            {"tune": {"kind": "power-fraction", "fraction": 0.5}},
            ("tune: power-fraction would touch no job",),
        ),
        ("workload", {"rates": None, "beyond_rates": "nearest"}, ("beyond_rates", "without rates")),
    ],
)
def test_settings_that_change_nothing_are_refused(
    section: str, stated: dict[str, Any], facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    scenario(tmp_path, **{section: stated})
    assert_states(inside("validate", "small.yaml", code=2).stderr, "small.yaml:", *facts)


def test_a_loss_is_announced_once_its_node_is_repaired(inside: Command, tmp_path: Path) -> None:
    """Down from 100 to 150 s, and again at 200 s: announced 120 s before, but not while down."""
    scenario(tmp_path, cluster={"losses": {"events": "spot", "notice_s": 120}})
    (tmp_path / "spot.csv").write_text(
        "time_s,event,node,repair_s\n100,down,a,50\n200,down,a,50\n300,down,b,\n"
    )
    inside("traces", "import", "node-events", "spot.csv", "--name", "spot")
    inside("run", "small.yaml", "--out", "results")
    nodes = pd.read_parquet("results/nodes.parquet").query("variant == 'varuna'")
    notices = nodes[nodes.event == "notice"]
    assert notices.time_s.tolist() == [0, 150, 180]
    assert notices.deadline_s.tolist() == [100, 200, 300]
    assert nodes[nodes.event == "up"].time_s.tolist() == [150, 250]
