"""What a cluster cannot run is known before anything runs, and said by reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command

COLUMNS = ("submit_time_s", "duration_s", "gpus", "gpu_type", "estimate_s")
HEADER = ",".join(("job_id", *COLUMNS)) + "\n"

SCENARIO = """\
name: mine
cluster:
  nodes: [{gpu: a, count: 2, gpus: 4}, {gpu: b, count: 1, gpus: 2}]
  power:
    a: {idle_w: 50, busy_w: 300}
    b: {idle_w: 60, busy_w: 500}
workload: {kind: trace, trace: jobs}
variants: {fifo: {}}
baseline: fifo
"""
EQUAL = "cluster={gpu: GPU, gpus: 8, idle_power_w: 50, busy_power_w: 300}"

Ask = Callable[..., str]


@pytest.fixture
def ask(inside: Command, tmp_path: Path) -> Ask:
    """What `validate` says of `mine.yaml` with given jobs and settings."""
    (tmp_path / "mine.yaml").write_text(SCENARIO, encoding="utf-8")

    def validate(rows: str, *settings: str, code: int = 2, verb: str = "validate") -> str:
        (tmp_path / "jobs.csv").write_text(HEADER + rows, encoding="utf-8")
        mapped = (f"--map={name}={name}" for name in COLUMNS)
        inside("traces", "import", "csv", "jobs.csv", "--name=jobs", "--replace", *mapped)
        done = inside(verb, "mine.yaml", *(f"--set={each}" for each in settings), code=code)
        return done.stderr if code else done.stdout

    return validate


def test_what_cannot_be_replayed_is_counted_by_reason(ask: Ask) -> None:
    rows = "\n".join(
        [*(f"j{n},{n},9,1,{'x' if n % 3 else 'y|z'}," for n in range(30)), "big,40,9,9,,",
         "large,41,9,3,b,", "open,42,,1,,", "good,43,9,1,,", ""]
    )  # fmt: skip
    assert ask(rows) == (
        "jobs: 33 of 34 jobs cannot be replayed on this cluster (a x8, b x2):\n"
        "  20 ask for type x, 10 for type y or z (first: row 1, job j0; rows 2, 3)\n"
        "  2 ask for more GPUs than there are (first: row 31, job big: 9 GPUs, the cluster has 8 "
        "of one type; row 32)\n"
        "  1 has no recorded duration (first: row 33, job open)\n"
        "list these types under cluster.nodes, or run jobs on any type (--set "
        "workload.gpu_types=ignore), or give the cluster more GPUs, or leave them out (--set "
        "workload.unusable=drop)\n"
    )
    assert ask(rows, "workload.unusable=drop", code=0).splitlines() == [
        "Left out: 30 jobs of a GPU type that the cluster lacks.",
        "Left out: 2 jobs larger than the cluster.",
        "Left out: 1 job without a recorded duration.",
        "mine.yaml: good; 1 variant, 1 run",
    ]


def test_many_types_add_up(ask: Ask) -> None:
    said = ask("".join(f"j{n},{n},9,1,t{n % 7},\n" for n in range(20)))
    assert "  3 ask for type t0, 3 for type t1, " in said
    assert "3 for type t4, 5 for 2 others (first: row 1, job j0; rows 2, 3)" in said
    assert "leave them out" not in said, "nothing would be left"


def test_gpu_types_can_be_ignored(ask: Ask, tmp_path: Path) -> None:
    rows = "j,0,9,1,x,\nk,0,9,1,a,\nl,0,9,1,,\n"
    assert "1 asks for type x" in ask(rows)
    said = ask(rows, "workload.gpu_types=ignore", code=0, verb="run")
    note = "GPU types are ignored: 1 asks for type x, 1 for type a, and run on any"
    assert note in said
    manifest = json.loads((tmp_path / "results/mine/manifest.json").read_text(encoding="utf-8"))
    assert manifest["ignored_gpu_types"] == {"x": 1, "a": 1}
    assert len(pd.read_parquet(tmp_path / "results/mine/jobs.parquet")) == 3
    assert note in ask(rows, "workload.gpu_types=ignore", code=0)


@pytest.mark.parametrize("shipped", ["scheduler-pool", "philly-schedulers"])
def test_shipped_schedulers_take_any_trace(ask: Ask, inside: Command, shipped: str) -> None:
    ask("j,0,9,1,x,\nk,0,9,1,a,\n")
    settings = ("--set", "workload.trace=jobs")
    assert "good" in inside("validate", shipped, *settings).stdout


def test_busy_power_is_needed_where_a_job_may_run(ask: Ask) -> None:
    said = ask("j,0,9,1,,\nk,0,9,3,,\n", "cluster.power.b={idle_w: 60}")
    assert said == (
        "--set cluster.power.b={idle_w: 60}: cluster.power.b.busy_w is missing: 1 job without a "
        "workload may run on b, and their power comes from a model; say what one busy GPU draws, "
        "W\n"
    )
    assert "good" in ask("j,0,9,1,a,\nk,0,9,3,,\n", "cluster.power.b={idle_w: 60}", code=0)
    said = ask("j,0,9,1,,\n", "cluster={gpu: GPU, gpus: 8, idle_power_w: 50}")
    assert "cluster.busy_power_w is missing: 1 job without a workload may run on GPU" in said


def test_a_policy_that_needs_estimates(ask: Ask) -> None:
    rows = "bad,0,,1,,\nj,0,9,1,,5\nk,0,9,1,,\n"
    settings = ("policies.select=easy-backfill", "workload.unusable=drop")
    said = ask(rows, *settings)
    assert "variant 'fifo': select: easy-backfill cannot run: 1 of 2 jobs have no estimate" in said
    assert said.endswith("(first: row 3, job k); set `estimates: perfect`\n")
    perfect = "policies.select={kind: easy-backfill, estimates: perfect}"
    assert "good" in ask(rows, *settings, perfect, code=0)


def test_a_policy_that_needs_durations_of_recurring_jobs(inside: Command) -> None:
    done = inside("validate", "quickstart", "--set", "policies.select=sjf", code=2)
    assert "sjf cannot run: it needs the recorded duration of every job" in done.stderr


def test_a_power_cap_that_is_too_low(ask: Ask, tmp_path: Path) -> None:
    said = ask("j,0,9,1,,\n", "cluster.power_cap_w=519")
    assert (
        "no job can ever start below 519 W, for all GPUs draw 8 x 50 W (a) + 2 x 60 W (b) = 520 W "
        "while they idle"
    ) in said
    said = ask("j,0,9,1,,\n", "cluster.power_cap_w=2000", "occupancy=recorded")
    assert "a cap cannot be kept with occupancy: recorded" in said
    rows = "j,0,9,1,a,\nk,0,9,2,a,\nl,0,9,1,b,\n"
    assert ask(rows, "cluster.power_cap_w=800") == (
        "jobs: 2 of 3 jobs cannot be replayed on this cluster (a x8, b x2):\n"
        "  2 need more power than cluster.power_cap_w, 800 W (first: row 2, job k: 2 GPUs at up to "
        "600 W + the others idle at 420 W = 1020 W; row 3)\n"
        "raise cluster.power_cap_w, or leave them out (--set workload.unusable=drop)\n"
    )
    drop = ("cluster.power_cap_w=800", "workload.unusable=drop")
    assert "Left out: 2 jobs above the power cap." in ask(rows, *drop, code=0)
    ask(rows, *drop, code=0, verb="run")
    assert pd.read_parquet(tmp_path / "results/mine/jobs.parquet")["job_id"].tolist() == ["j"]
    ask(rows, "cluster.power_cap_w=1020", code=0, verb="run")


def test_a_power_cap_on_recurring_jobs(inside: Command) -> None:
    done = inside("validate", "quickstart", "--set", "cluster.power_cap_w=300", code=2)
    assert "workload 'image' can never start below 300 W: 1 GPU at up to" in done.stderr


@pytest.mark.parametrize("setting", ["cluster.gpus=5", "cluster.idle_power_w=5"])
def test_two_forms_of_a_cluster(ask: Ask, setting: str) -> None:
    assert ask("j,0,9,1,,\n", setting) == (
        f"--set {setting}: a cluster has either gpu, gpus, gpus_per_node, idle_power_w, "
        "busy_power_w or nodes, power; this one mixes both\n"
    )
    assert ask("j,0,9,1,,\n", EQUAL, "cluster.nodes=5").count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cluster.power.a.busy_w=40", "busy_w: a busy GPU draws 40 W, less than an idle one "
         "(idle_w, 50 W)"),
        ("cluster={gpu: GPU, gpus: 8, idle_power_w: 50, busy_power_w: 40}",
         "busy_power_w: a busy GPU draws 40 W, less than an idle one (idle_power_w, 50 W)"),
    ],
)  # fmt: skip
def test_idle_power_above_busy_power(ask: Ask, setting: str, words: str) -> None:
    assert ask("j,0,9,1,,\n", setting) == f"--set {setting}: {words}\n"


def test_names_of_scenarios(inside: Command) -> None:
    done = inside("run", "quickstrat", code=2)
    assert "no scenario 'quickstrat' (did you mean 'quickstart'?)" in done.stderr
    lines = inside("scenarios").stdout.splitlines()
    starts = {len(line) - len(line.split(maxsplit=1)[1]) for line in lines}
    assert len(lines) > 5
    assert len(starts) == 1, "questions stand below one another"
