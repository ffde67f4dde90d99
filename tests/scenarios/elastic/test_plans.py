"""Plans of pipelines through the command: all published ones, rates for scenarios, refusals."""

from __future__ import annotations

import json
import random
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.published_replays import read_reference
from wattkeeper import scenarios
from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.reconfiguration import reconfigure
from wattkeeper.policies.elastic.templates import plan_templates, template_sizes
from wattkeeper.traces.layer_costs import read_layers
from wattkeeper.traces.node_rates import read_node_rates

LAYERS = "layer,fb_s,extra_2gpus_s\n" + "".join(f"{n},{1 + n % 3},0.1\n" for n in range(12))

SECTIONS = "section,microbatch,forward_s,backward_s,state_bytes,sample_bytes,gradient_bytes\n" + (
    "".join(
        f"{n},{size},{0.1 * size},{0.2 * size},4e9,1e8,2e9\n" for size in (1, 2) for n in range(4)
    )
)


def plan(command: Command, *arguments: str | Path | int) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        command("elastic", "plan", *map(str, arguments), "--json").stdout
    )
    return answer


def check_templates(found: list[dict[str, Any]], rows: list[dict[str, str]]) -> None:
    """Equal times and numbers of stages; stages may differ where the time is equal."""
    for template, row in zip(found, rows, strict=True):
        assert template["num_nodes"] == int(row["num_nodes"])
        assert template["iteration_s"] == pytest.approx(float(row["iteration_time"]), rel=1e-9)
        assert template["num_stages"] == int(row["num_stages"])


@pytest.mark.parametrize(("profile", "gpus"), [("equal24", 1), ("gptlike26", 1), ("mixed30", 2)])
def test_published_templates(profile: str, gpus: int, shared: Path, inside: Command) -> None:
    rows = read_reference(shared, f"templates_{profile}_g{gpus}.csv")
    layers = shared / "reference/elastic/layers.csv"
    sizes = f"{rows[0]['num_nodes']}-{rows[-1]['num_nodes']}"
    found = plan(inside, layers, "--profile", profile, "--gpus-per-node", gpus, "--sizes", sizes)
    check_templates(found["templates"], rows)
    for template, row in zip(found["templates"], rows, strict=True):
        assert template["gpus_per_node"] == int(row["gpus_per_node"])
        assert template["stages"].count("]x") == len(row["stages"].split())


def test_sizes_of_templates_end_with_the_layers(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    found = plan(inside, "layers.csv", "--least", 10, "--nodes", "40", "--microbatches", 64)
    assert [template["num_nodes"] for template in found["templates"]] == [10, 11, 12]


@pytest.mark.parametrize("profile", ["equal24", "gptlike26"])
def test_published_times_of_templates(profile: str, shared: Path, inside: Command) -> None:
    rows = read_reference(shared, "template_times.csv")
    layers = shared / "reference/elastic/layers.csv"
    found = plan(inside, layers, "--profile", profile, "--sizes", "3-9")
    check_templates(found["templates"], [row for row in rows if row["profile"] == profile])


def test_published_reconfigurations(shared: Path, inside: Command) -> None:
    file = shared / "reference/elastic/reconfiguration_cases.json"
    recorded = json.loads(file.read_text())
    assert len(recorded["cases"]) == 2
    for case in recorded["cases"]:
        lost = [word for node in case["lost"] for word in ("--lost", str(node))]
        done = inside(
            "elastic",
            "reconfigure",
            json.dumps(recorded["initial"]),
            *lost,
            "--least",
            str(recorded["min_num_ranks"]),
        )
        assert json.loads(done.stdout) == case["expected"]


def test_rates_of_plans_run_in_a_scenario(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    (tmp_path / "sections.csv").write_text(SECTIONS)
    inside(
        "elastic",
        "plan",
        "layers.csv",
        "--least",
        "2",
        "--losses",
        "1",
        "--nodes",
        "3-8",
        "--microbatches",
        "32",
        "--rates",
        "rates.csv",
        "--model",
        "m",
        "--samples",
        "4",
        "--gpus-per-node",
        "2",
    )
    inside(
        "elastic",
        "morph",
        "sections.csv",
        "--gpus-per-node",
        "2",
        "--nodes",
        "3-8",
        "--batch",
        "128",
        "--memory-gb",
        "10",
        "--bandwidth-gb-s",
        "10",
        "--rates",
        "rates.csv",
        "--model",
        "m",
    )
    rates = read_node_rates(tmp_path / "rates.csv").rates
    for system in ("oobleck", "varuna"):
        by_nodes = rates[system, "m"]
        assert list(by_nodes) == list(range(3, 9))
        assert all(rate > 0 for rate in by_nodes.values())
        assert by_nodes[8] > by_nodes[3]
    scenario = {
        "name": "planned",
        "cluster": {
            "gpu": "A",
            "gpus": 16,
            "gpus_per_node": 2,
            "idle_power_w": 50,
            "busy_power_w": 250,
            "losses": {"events": {"rate": 5000, "away_s": 600}},
        },
        "workload": {
            "kind": "elastic",
            "rates": "rates.csv",
            "until_s": 20000,
            "jobs": [
                {
                    "name": "m",
                    "model": "m",
                    "batch": 128,
                    "least_nodes": 3,
                    "most_nodes": 8,
                    "checkpoint_s": 5,
                    "restart_s": 30,
                    "reconfigure_s": 2,
                }
            ],
        },
        "variants": {
            "oobleck": {"policies": {"replan": "oobleck"}},
            "varuna": {"policies": {"replan": "varuna"}},
        },
        "baseline": "varuna",
    }
    (tmp_path / "planned.yaml").write_text(json.dumps(scenario))
    inside("run", "planned.yaml", "--out", "results")
    done = inside(
        "elastic",
        "plan",
        "layers.csv",
        "--sizes",
        "2",
        "--nodes",
        "3",
        "--microbatches",
        "32",
        "--rates",
        "rates.csv",
        "--model",
        "m",
        "--samples",
        "4",
        code=2,
    )
    assert_states(done.stderr, "rates.csv", "'m' by oobleck already")


def pipelines_scenario(**changes: Any) -> dict[str, Any]:
    """A scenario of a job with pipelines; `changes` are those of its workload."""
    job = {
        "name": "m",
        "model": "m",
        "batch": 128,
        "least_nodes": 3,
        "most_nodes": 8,
        "checkpoint_s": 5,
        "restart_s": 30,
        "reconfigure_s": 2,
        "pipelines": {"layers": "layers.csv", "least_nodes": 2, "microbatch": 4},
    }
    workload = {"kind": "elastic", "until_s": 20000, "jobs": [job]} | changes
    return {
        "name": "pipelines",
        "cluster": {
            "gpu": "A",
            "gpus": 8,
            "gpus_per_node": 1,
            "idle_power_w": 50,
            "busy_power_w": 250,
            "losses": {"events": {"rate": 20000, "away_s": 600}},
        },
        "workload": workload,
        "variants": {
            "loss": {"policies": {"replan": "oobleck"}},
            "now": {"policies": {"replan": {"kind": "oobleck", "join": "now"}}},
        },
        "baseline": "loss",
    }


def test_pipelines_of_a_job_are_those_that_losses_leave(inside: Command, tmp_path: Path) -> None:
    rows = LAYERS.replace("extra_2gpus_s\n", "state_bytes\n").replace(",0.1\n", ",1e9\n")
    (tmp_path / "layers.csv").write_text(rows)
    (tmp_path / "pipelines.yaml").write_text(json.dumps(pipelines_scenario()))
    study = scenarios.load(str(tmp_path / "pipelines.yaml")).run()
    (source,) = study.manifest["inputs"]
    assert (source["trace"], source["kind"]) == ("layers.csv", "costs of layers")
    inside(
        "elastic",
        "plan",
        "layers.csv",
        "--least",
        "2",
        "--nodes",
        "3-8",
        "--microbatches",
        "32",
        "--rates",
        "rates.csv",
        "--model",
        "m",
        "--samples",
        "4",
    )
    balanced = read_node_rates(tmp_path / "rates.csv").rates["oobleck", "m"]
    shapes = study.table("shapes").to_pylist()
    changed = [row for row in shapes if row["moment"] == "lost" and row["pause_s"]]
    assert len(changed) > 10
    assert all(row["copied_bytes"] > 0 for row in changed if not row["from_storage"])
    firsts = [row for row in shapes if row["moment"] in ("start", "boundary")]
    assert {row["moment"] for row in firsts} == {"start", "boundary"}
    assert all(row["samples_per_s"] == pytest.approx(balanced[row["nodes"]]) for row in firsts)
    assert any(row["samples_per_s"] < 0.99 * balanced[row["nodes"]] for row in changed)


@pytest.mark.parametrize(
    ("changes", "replan", "facts"),
    [
        ({"rates": {"m": {3: 1.0}}}, "oobleck", ("rates have no effect", "rates")),
        (
            {"rates": {"m": dict.fromkeys(range(3, 9), 1.0)}},
            "varuna",
            ("pipelines have no effect",),
        ),
        ({}, "varuna", ("pipelines have no effect",)),
        ({}, "adaptive", ("no rates of 'm' by varuna",)),
        ({"rates": "rates.csv"}, "adaptive", ("rates.csv has rates of 'm' by oobleck", "either")),
    ],
)
def test_settings_of_pipelines_without_effect_are_refused(
    changes: dict[str, Any], replan: str, facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    rows = "".join(f"{system},m,{n},1\n" for system in ("oobleck", "varuna") for n in range(3, 9))
    (tmp_path / "rates.csv").write_text(f"system,model,num_nodes,samples_per_s\n{rows}")
    scenario = pipelines_scenario(**changes)
    scenario["variants"] = {"loss": {"policies": {"replan": replan}}}
    (tmp_path / "pipelines.yaml").write_text(json.dumps(scenario))
    assert_states(inside("validate", "pipelines.yaml", code=2).stderr, *facts)


@pytest.mark.parametrize(
    ("key", "value", "facts"),
    [
        ("layers", "absent.csv", ("absent.csv", "no such file")),
        ("profile", "x", ("layers.csv", "no profile 'x'")),
        ("least_nodes", 5, ("pipelines.yaml:", "8 nodes", "10")),
        ("microbatch", 3, ("pipelines.yaml:", "128", "micro-batches of 3")),
        ("microbatch", 1, ("pipelines.yaml:", "1.28e+08", "1,000,000 micro-batches of 1")),
        ("losses", 4, ("pipelines.yaml:", "8 nodes", "5 pipelines")),
    ],
)
def test_pipelines_that_cannot_be_are_refused(
    key: str, value: object, facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    scenario = pipelines_scenario()
    scenario["workload"]["jobs"][0]["pipelines"][key] = value
    if (key, value) == ("microbatch", 1):
        scenario["workload"]["jobs"][0]["batch"] = 128_000_000
    (tmp_path / "pipelines.yaml").write_text(json.dumps(scenario))
    done = inside("validate", "pipelines.yaml", code=2)
    assert_states(done.stderr, *facts)


@pytest.mark.parametrize(("profile", "share"), [("gptlike26", 0.96), ("equal24", 0.87)])
def test_pipelines_that_losses_leave_are_slower(profile: str, share: float, shared: Path) -> None:
    layers = read_layers(shared / "reference/elastic/layers.csv", profile).layers
    sizes = template_sizes(3, 24, 1, most=24)
    plan = PipelinePlan(plan_templates(layers, 1, sizes), 512)
    balanced, ratios = plan.rates(range(12, 25), 512), []
    for seed in range(50):
        drawn, pipelines = random.Random(seed), plan.form(range(24))
        left = list(range(24))
        for _ in range(12):
            left.remove(lost := drawn.choice(left))
            pipelines = reconfigure(pipelines, [lost], plan.least)
            ratios.append(512 / plan.step_s(pipelines) / balanced[len(left)])
    assert mean(ratios) == pytest.approx(share, abs=0.005)


def test_a_step_lasts_as_long_as_its_slowest_pipeline(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text("layer,fb_s\n0,2\n1,1\n2,1\n3,2\n")
    inside(
        "elastic",
        "plan",
        "layers.csv",
        "--sizes",
        "1-2",
        "--nodes",
        "1-4",
        "--microbatches",
        "6",
        "--rates",
        "rates.csv",
        "--model",
        "m",
        "--samples",
        "10",
    )
    rates = read_node_rates(tmp_path / "rates.csv").rates["oobleck", "m"]
    assert rates[1] == pytest.approx(60 / (6 * 6))  # one pipeline of one stage
    assert rates[2] == pytest.approx(60 / (3 * 6))  # two of them, or one of two stages in 6 + 5 * 3
    assert rates[4] >= rates[3] >= rates[2]


def test_tables(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    (tmp_path / "sections.csv").write_text(SECTIONS)
    out = inside(
        "elastic", "plan", "layers.csv", "--sizes", "2-4", "--nodes", "1-5", "--microbatches", "16"
    ).stdout
    assert_states(out, "Templates", "[0:", "none", "balanced")
    arguments = ("--nodes", "1-6", "--batch", "64", "--memory-gb", "9", "--bandwidth-gb-s", "5")
    assert_states(inside("elastic", "morph", "sections.csv", *arguments).stdout, "depth", "idle")
    rows = json.loads(inside("elastic", "morph", "sections.csv", *arguments, "--json").stdout)
    assert [row["nodes"] for row in rows] == list(range(1, 7))
    assert rows[0] == {"nodes": 1, "samples_per_s": 0.0}
    assert rows[5]["depth"] * rows[5]["replicas"] + rows[5]["idle_gpus"] == 6
    for row in rows[1:]:
        shared_evenly = 64 - 64 % row["replicas"]
        assert row["samples_per_s"] * row["step_s"] == pytest.approx(shared_evenly)


SAVED = {
    "layers.csv": LAYERS,
    "sections.csv": SECTIONS,
    "plain.csv": "model,num_nodes,samples_per_s\nm,3,5\n",
}


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("plan", "layers.csv"), ("--sizes", "--least")),
        (("plan", "layers.csv", "--sizes", "3-1"), ("3-1", "3-9")),
        (("plan", "layers.csv", "--sizes", "13"), ("13 nodes", "1 to 12")),
        (("plan", "layers.csv", "--sizes", "3", "--nodes", "3"), ("--microbatches",)),
        (("plan", "layers.csv", "--sizes", "3", "--losses", "1"), ("--least",)),
        (("plan", "layers.csv", "--sizes", "3", "--rates", "r.csv"), ("--model",)),
        (("plan", "layers.csv", "--sizes", "3", "--profile", "x"), ("no profile 'x'",)),
        (
            ("plan", "layers.csv", "--least", "3", "--nodes", "5", "--microbatches", "9"),
            ("5 nodes", "6"),
        ),
        (("reconfigure", "[[0, 1], 2]", "--lost", "1", "--least", "1"), ("[[0, 1], 2]", "JSON")),
        (("reconfigure", "[[0, 1.5]]", "--lost", "1", "--least", "1"), ("1.5", "whole")),
        (("reconfigure", "[[Infinity]]", "--lost", "1", "--least", "1"), ("Infinity", "whole")),
        (("reconfigure", "[[true]]", "--lost", "1", "--least", "1"), ("true", "whole")),
        (("reconfigure", "[[0, 1]]", "--lost", "2", "--least", "1"), ("rank 2",)),
        (
            (
                "morph",
                "layers.csv",
                "--nodes",
                "3",
                "--batch",
                "8",
                "--memory-gb",
                "1",
                "--bandwidth-gb-s",
                "1",
            ),
            ("layers.csv", "section"),
        ),
        (
            (
                "morph",
                "sections.csv",
                "--nodes",
                "3",
                "--batch",
                "8",
                "--memory-gb",
                "1e300",
                "--bandwidth-gb-s",
                "1",
            ),
            ("--memory-gb", "1e300", "1e9"),
        ),
        (
            (
                "morph",
                "sections.csv",
                "--nodes",
                "3",
                "--batch",
                "8",
                "--memory-gb",
                "9",
                "--bandwidth-gb-s",
                "1",
                "--rates",
                "r.csv",
                "--model",
                "",
            ),
            ("--model is empty",),
        ),
        (
            (
                "plan",
                "layers.csv",
                "--sizes",
                "3",
                "--nodes",
                "3",
                "--microbatches",
                "9",
                "--rates",
                "plain.csv",
                "--model",
                "m",
                "--samples",
                "1",
            ),
            ("plain.csv", "names no systems"),
        ),
    ],
)
def test_a_wrong_plan_is_refused(
    arguments: tuple[str, ...], facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    for name, text in SAVED.items():
        (tmp_path / name).write_text(text)
    done = inside("elastic", *arguments, code=2)
    assert_states(done.stderr, *facts)


@pytest.mark.parametrize(
    ("name", "old", "new", "facts"),
    [
        ("layers.csv", "3,1,0.1", "4,1,0.1", ("layer 4 follows 2",)),
        ("layers.csv", "3,1,0.1", "2,1,0.1", ("layer 2", "twice")),
        ("layers.csv", "3,1,0.1", "3,-1,0.1", ("row 4", "fb_s", "-1")),
        ("sections.csv", "3,2,0.2", "3,4,0.2", ("3 sections", "micro-batches of 2")),
        ("sections.csv", "0,1,0.1,", "0,1,0,", ("row 1", "forward_s is 0", "> 0")),
        ("sections.csv", "0,2,0.2,0.4,4e9", "0,2,0.2,0.4,5e9", ("section 0", "other bytes")),
    ],
)
def test_broken_costs_are_refused(
    name: str, old: str, new: str, facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    assert old in SAVED[name]
    (tmp_path / name).write_text(SAVED[name].replace(old, new, 1))
    options = (
        ("--sizes", "2")
        if name == "layers.csv"
        else ("--nodes", "3", "--batch", "8", "--memory-gb", "1", "--bandwidth-gb-s", "1")
    )
    command = "plan" if name == "layers.csv" else "morph"
    done = inside("elastic", command, name, *options, code=2)
    assert_states(done.stderr, *facts)


def test_profiles_of_the_reference_are_all_planned(shared: Path) -> None:
    rows = read_reference(shared, "layers.csv")
    names = [name for name, _ in groupby(rows, key=lambda row: row["profile"])]
    assert names == ["equal24", "gptlike26", "mixed30"]
