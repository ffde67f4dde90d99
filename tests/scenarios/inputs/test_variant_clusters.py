"""Variants with clusters and workloads of their own, through the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import load

HEADER = "job_id,submit_time_s,duration_s,gpus,gpu_type\n"
SIX = "a,0,100,2,\nb,10,100,2,\nc,20,100,4,\nd,30,100,1,\ne,40,100,8,\nf,50,100,1,x\n"

SCENARIO = """\
name: mine
cluster:
  {gpu: x, gpus: 8, gpus_per_node: 4, idle_power_w: 50, busy_power_w: 300,
   sleep: {after_s: 10, power_w: 5, wake_s: 1}}
workload: {kind: trace, trace: jobs, unusable: drop}
policies: {select: fjf}
variants:
  usual: {}
  half: {cluster: {gpus: 4}}
  capped:
    cluster:
      power_cap_w: 1200
  awake: {cluster: {sleep: null, pue: 1.5}}
  fast: {workload: {load: 2}}
  mixed: {cluster: {nodes: [{gpu: x, count: 1, gpus: 4}, {gpu: y, count: 1, gpus: 4}],
                    power: {x: {idle_w: 50, busy_w: 300}, y: {idle_w: 40, busy_w: 100}}}}
baseline: usual
"""

Ask = Callable[..., CompletedProcess[str]]


@pytest.fixture
def ask(inside: Command, tmp_path: Path) -> Ask:
    """Runs a command on `mine.yaml` with a trace of the given jobs."""
    (tmp_path / "mine.yaml").write_text(SCENARIO, encoding="utf-8")

    def run_rows(rows: str, verb: str, *settings: str, code: int = 0) -> CompletedProcess[str]:
        (tmp_path / "jobs.csv").write_text(HEADER + rows, encoding="utf-8")
        mapped = ("--map=gpu_type=gpu_type",)
        inside("traces", "import", "csv", "jobs.csv", "--name=jobs", "--replace", *mapped)
        return inside(verb, "mine.yaml", *(f"--set={each}" for each in settings), code=code)

    return run_rows


def results(tmp_path: Path, name: str) -> Any:
    path = tmp_path / "results/mine"
    if name in ("manifest", "summary"):
        return json.loads((path / f"{name}.json").read_text(encoding="utf-8"))
    return pd.read_parquet(path / f"{name}.parquet")


def test_each_variant_runs_on_its_own_cluster(ask: Ask, tmp_path: Path) -> None:
    shown = ask(SIX, "run").stdout
    jobs = results(tmp_path, "jobs")
    assert jobs.groupby("variant")["job_id"].apply(set).tolist() == [set("abdf")] * 6
    starts = jobs.set_index(["variant", "job_id"])["start_time_s"]
    assert starts["usual"].to_dict() == {"a": 0, "b": 10, "d": 30, "f": 50}
    assert starts["half"]["d"] == 100, "four GPUs are busy"
    assert starts["capped"].to_dict() == {"a": 0, "d": 30, "b": 100, "f": 130}
    assert starts["fast"].to_dict() == {"a": 0, "b": 5, "d": 15, "f": 25}
    types = jobs.set_index(["variant", "job_id"])["gpu_type"]
    assert set(types["mixed"]) == {"x", "y"}
    assert set(types.drop("mixed", level=0)) == {"x"}
    line = results(tmp_path, "timeline").groupby("variant")
    assert line["gpus_busy"].max().to_dict() == {
        "usual": 6,
        "half": 4,
        "capped": 3,
        "awake": 6,
        "fast": 6,
        "mixed": 5,
    }
    assert line["power_w"].max()["awake"] == pytest.approx(1.5 * (6 * 300 + 2 * 50))
    assert line["power_w"].max()["capped"] <= 1200
    overrides = (
        "half: 4 × x.",
        "trace's): 2.",
        "awake: nodes never sleep, power usage effectiveness: 1.5.",
        "capped: power cap of the cluster: 1,200 W.",
        "mixed: 4 × x, 4 × y, ",
    )
    assert_states(" ".join(shown.split()), *overrides)


def test_jobs_that_a_variant_cannot_run_are_left_out_of_all(ask: Ask, tmp_path: Path) -> None:
    shown = ask(SIX, "validate").stdout
    assert_states(
        shown,
        "Left out of all variants: 1 job larger than the cluster",
        "good; 6 variants",
        "Left out of all variants: 1 job above the power cap",
        "because of capped: 1 job above",
        "Left out because of half: 1 job larger",
        "Left out because of mixed: 1 job larger",
    )
    ask(SIX, "run")
    manifest = results(tmp_path, "manifest")
    assert manifest["dropped_jobs"] == {"larger than the cluster": 1, "above the power cap": 1}
    assert manifest["dropped_for"] == {
        "half": {"larger than the cluster": 1},
        "mixed": {"larger than the cluster": 1},
        "capped": {"above the power cap": 1},
    }
    page = (tmp_path / "results/mine/report.html").read_text(encoding="utf-8")
    assert_states(page, "Left out because of capped: 1 job above the power cap", "(half: 4 × x")
    done = ask(SIX, "validate", "workload.unusable=refuse", code=2)
    assert_states(
        done.stderr,
        "variant 'half': 1 of 6 jobs",
        "row 5, job e: 8 GPUs",
        "variant 'capped': 1 of 6",
        "variant 'mixed'",
        "unusable=drop",
    )
    assert "usual" not in done.stderr


def test_settings_and_sweeps_of_a_variant(ask: Ask, inside: Command, tmp_path: Path) -> None:
    ask(SIX, "run", "variants.usual.cluster.power_cap_w=1800", "variants.mixed.cluster=null")
    cluster = results(tmp_path, "manifest")["scenario"]["variants"]["usual"]["cluster"]
    assert cluster["power_cap_w"] == 1800
    assert cluster["sleep"]["after_s"] == 10
    axis = "variants.capped.cluster.power_cap_w=900,1200"
    inside("run", "mine.yaml", "--sweep", axis, "--out", "swept")
    metrics = pd.read_parquet(tmp_path / "swept/metrics.parquet")
    waits = metrics[(metrics["metric"] == "queue_delay_s") & (metrics["by"] == "")]
    by_point = waits[waits["variant"] == "capped"].set_index("point")["value"]
    assert by_point["0001"] > by_point["0002"]
    for path in ("swept/points/0001", "swept/points/0002"):
        jobs = pd.read_parquet(tmp_path / path / "jobs.parquet")
        assert set(jobs["variant"]) == {"usual", "half", "capped", "awake", "fast", "mixed"}


@pytest.mark.parametrize(
    ("setting", "facts"),
    [
        ("variants.capped.cluster.power_cap_w=100", "variant 'capped': |100 W|8 x 50 W"),
        ("variants.half.cluster.gpus=5", "5 GPUs do not fill nodes of 4"),
        ("variants.half.cluster.gpuss=4", "'gpuss'|'gpus'"),
        ("variants.half.cluster.nodes=n", "either gpu, gpus|both"),
        (
            "variants.half.cluster.busy_power_w=null",
            "variant 'half': |cluster.busy_power_w|run on x",
        ),
        ("variants.half.cluster={gpu: z}", "variant 'half'|1 asks for type x"),
        ("variants.half.workload.recurrences=4", "recurrences|kind trace"),
        ("variants.half.workload.load=0", "load|0|greater than 0"),
        ("variants.half.cluster=4", "cluster: found 4; should be a mapping"),
    ],
)
def test_errors_name_the_variants_own_line(ask: Ask, setting: str, facts: str) -> None:
    shown = ask(SIX, "validate", setting, "workload.unusable=refuse", code=2).stderr
    assert_states(shown, *facts.split("|"))
    if "asks" not in facts:
        assert shown.startswith(f"--set {setting}: ")


def test_lines_in_the_file(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIO.replace("power_cap_w: 1200", "power_cap_w: 12"), encoding="utf-8")
    assert "mine.yaml:12:20: variant 'capped': power_cap_w" in ask(SIX, "run", code=2).stderr
    path.write_text(SCENARIO.replace("gpus: 8", "gpus: eight"), encoding="utf-8")
    (line,) = ask(SIX, "run", code=2).stderr.splitlines()
    assert_states(line, "mine.yaml:3:18", "gpus: found the text 'eight'")


def test_a_trace_is_read_once_and_shared(ask: Ask, tmp_path: Path) -> None:
    """Whatever variants change, they hold one table of jobs."""
    ask(SIX, "validate")
    loaded = load(str(tmp_path / "mine.yaml"))
    inputs = read_inputs(loaded)
    assert len({id(own.jobs) for own in inputs.runs.values()}) == 1
    assert {name: own.load for name, own in inputs.runs.items() if own.load != 1} == {"fast": 2}
    assert inputs.runs["usual"].cluster is inputs.runs["fast"].cluster
    assert len(inputs.traces) == 1


def test_the_same_bytes_with_several_workers(ask: Ask, tmp_path: Path, inside: Command) -> None:
    ask(SIX, "run")
    inside("run", "mine.yaml", "--workers", "2", "--out", "other")
    for name in ("jobs.parquet", "timeline.parquet", "summary.json", "report.html"):
        mine, other = (tmp_path / folder / name for folder in ("results/mine", "other"))
        assert mine.read_bytes() == other.read_bytes(), name


def test_recurring_jobs_of_a_variant() -> None:
    done = run(
        load(
            "quickstart",
            {
                "variants": {
                    "usual": {},
                    "few": {"workload": {"recurrences": 3}},
                    "two": {"cluster": {"gpus": 2, "gpus_per_node": 1}},
                },
                "baseline": "usual",
                "seeds": 1,
                "workload.recurrences": 5,
            },
        )
    )
    jobs = done.table("jobs").to_pandas().groupby("variant")["job_id"].nunique()
    workloads = jobs["few"] // 3
    assert jobs.to_dict() == {"usual": 5 * workloads, "few": 3 * workloads, "two": 5 * workloads}
    nodes = done.table("jobs").to_pandas().explode("node_ids").groupby("variant")["node_ids"]
    assert nodes.max()["two"] == 1


def test_recorded_starts_belong_to_recorded_arrivals(ask: Ask) -> None:
    setting = "variants.fast.policies.select=recorded"
    shown = ask(SIX, "validate", setting, code=2).stderr
    assert_states(shown, "variant 'fast'", "select: recorded cannot run", "load: 2")


def test_cases_of_a_limit_are_one_variant_in_messages(ask: Ask, tmp_path: Path) -> None:
    cut = "variants.half.policies.tune={kind: power-fraction, fraction: 0.8}"
    rename = [f"variants.{name}.cluster=null" for name in ("capped", "mixed")]
    settings = (*rename, cut, "cluster.gpu=V100", "workload.gpu_types=ignore")
    done = ask(SIX, "run", *settings)
    assert_states(
        done.stdout, "Left out because of half: 1 job", "half: power limit 200 W on V100, 4 × V100."
    )
    assert "half (low): 4" not in done.stdout
    assert "half (low)" in results(tmp_path, "summary")["variants"]
    refused = ask(SIX, "validate", *settings, "workload.unusable=refuse", code=2).stderr
    assert_states(refused, "variant 'half': 1 of 6 jobs")
