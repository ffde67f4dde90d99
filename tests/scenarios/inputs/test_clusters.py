"""What a cluster cannot run is known before anything runs, and said by reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

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


def test_a_log_without_durations_names_a_remedy(ask: Ask) -> None:
    _, duration, advice = ask("a,0,,1,,\nb,1,,1,,\n").splitlines()
    assert_states(duration, "2 have no recorded duration")
    assert_states(advice, "--map duration_s=COLUMN", "workload.durations")
    assert "unusable" not in advice, "no job would be left"


def test_what_cannot_be_replayed_is_counted_by_reason(ask: Ask) -> None:
    rows = "\n".join(
        [
            *(f"j{n},{n},9,1,{'x' if n % 3 else 'y|z'}," for n in range(30)),
            "big,40,9,9,,",
            "large,41,9,3,b,",
            "open,42,,1,,",
            "good,43,9,1,,",
            "",
        ]
    )
    whole, types, size, duration, advice = ask(rows).splitlines()
    assert_states(whole, "jobs: ", "33 of 34 jobs", "a x8, b x2")
    assert_states(types, "20 ask for type x, 10 for type y or z", "row 1, job j0; rows 2, 3")
    assert_states(size, "2 ask for more GPUs", "row 31, job big: 9 GPUs", "8 of one type", "row 32")
    assert_states(duration, "1 has no recorded duration", "row 33, job open")
    assert_states(
        advice,
        "cluster.nodes",
        "--set workload.gpu_types=ignore",
        "more GPUs",
        "--map duration_s=COLUMN",
        "--set workload.unusable=drop",
    )
    types, size, duration, last = ask(rows, "workload.unusable=drop", code=0).splitlines()
    assert_states(types, "Left out: 30 jobs", "GPU type")
    assert_states(size, "Left out: 2 jobs", "larger")
    assert_states(duration, "Left out: 1 job ", "duration")
    assert_states(last, "mine.yaml: good", "1 variant, 1 run")


def test_many_types_add_up(ask: Ask) -> None:
    said = ask("".join(f"j{n},{n},9,1,t{n % 7},\n" for n in range(20)))
    assert_states(
        said,
        "3 ask for type t0, 3 for type t1, ",
        "3 for type t4, 5 for 2 others",
        "row 1, job j0; rows 2, 3",
    )
    assert "leave them out" not in said, "nothing would be left"


def test_gpu_types_can_be_ignored(ask: Ask, tmp_path: Path) -> None:
    rows = "j,0,9,1,x,\nk,0,9,1,a,\nl,0,9,1,,\n"
    assert "1 asks for type x" in ask(rows)
    said = ask(rows, "workload.gpu_types=ignore", code=0, verb="run")
    facts = ("GPU types are ignored", "1 asks for type x, 1 for type a")
    assert_states(said, *facts)
    manifest = json.loads((tmp_path / "results/mine/manifest.json").read_text(encoding="utf-8"))
    assert manifest["ignored_gpu_types"] == {"x": 1, "a": 1}
    assert len(pd.read_parquet(tmp_path / "results/mine/jobs.parquet")) == 3
    assert_states(ask(rows, "workload.gpu_types=ignore", code=0), *facts)


@pytest.mark.parametrize("shipped", ["scheduler-pool", "philly-schedulers"])
def test_shipped_schedulers_take_any_trace(ask: Ask, inside: Command, shipped: str) -> None:
    ask("j,0,9,1,x,\nk,0,9,1,a,\n")
    settings = ("--set", "workload.trace=jobs")
    assert "good" in inside("validate", shipped, *settings).stdout


def test_busy_power_is_needed_where_a_job_may_run(ask: Ask) -> None:
    setting = "cluster.power.b={idle_w: 60}"
    said = ask("j,0,9,1,,\nk,0,9,3,,\n", setting)
    assert said.startswith(f"--set {setting}: ")
    assert_states(said, "cluster.power.b.busy_w is missing", "1 job without a workload", "run on b")
    assert said.count("\n") == 1
    assert "good" in ask("j,0,9,1,a,\nk,0,9,3,,\n", "cluster.power.b={idle_w: 60}", code=0)
    said = ask("j,0,9,1,,\n", "cluster={gpu: GPU, gpus: 8, idle_power_w: 50}")
    assert_states(said, "cluster.busy_power_w is missing", "1 job without a workload", "run on GPU")


def test_a_policy_that_needs_estimates(ask: Ask) -> None:
    rows = "j,0,9,1,,5\nk,0,9,1,,\n"
    backfill = "policies.select=easy-backfill"
    said = ask(rows, backfill)
    assert_states(
        said,
        "variant 'fifo'",
        "select: easy-backfill",
        "1 of 2 jobs",
        "no estimate",
        "row 2, job k",
        "estimates: perfect",
        "--default-estimate",
    )
    perfect = "policies.select={kind: easy-backfill, estimates: perfect}"
    assert "good" in ask(rows, perfect, code=0)
    dropped = ask("bad,0,,1,,\n" + rows, backfill, "workload.unusable=drop", code=0)
    assert_states(
        dropped,
        "1 job without a recorded duration",
        "1 job without the estimate that easy-backfill needs",
        "good",
    )


def test_a_policy_that_needs_durations_of_recurring_jobs(inside: Command) -> None:
    done = inside("validate", "quickstart", "--set", "policies.select=sjf", code=2)
    assert_states(done.stderr, "sjf cannot run", "recorded duration")


def test_a_power_cap_that_is_too_low(ask: Ask, tmp_path: Path) -> None:
    said = ask("j,0,9,1,,\n", "cluster.power_cap_w=519")
    assert_states(said, "519 W", "8 x 50 W (a) + 2 x 60 W (b) = 520 W")
    said = ask("j,0,9,1,,\n", "cluster.power_cap_w=2000", "occupancy=recorded")
    assert_states(said, "cap", "occupancy: recorded")
    rows = "j,0,9,1,a,\nk,0,9,2,a,\nl,0,9,1,b,\n"
    whole, reason, advice = ask(rows, "cluster.power_cap_w=800").splitlines()
    assert_states(whole, "jobs: ", "2 of 3 jobs", "a x8, b x2")
    assert_states(
        reason,
        "2 need more power than cluster.power_cap_w, 800 W",
        "row 2, job k: ",
        "2 GPUs at up to 600 W",
        "420 W = 1020 W",
        "row 3",
    )
    assert_states(advice, "cluster.power_cap_w", "--set workload.unusable=drop")
    drop = ("cluster.power_cap_w=800", "workload.unusable=drop")
    assert_states(ask(rows, *drop, code=0), "Left out: 2 jobs above the power cap")
    ask(rows, *drop, code=0, verb="run")
    assert pd.read_parquet(tmp_path / "results/mine/jobs.parquet")["job_id"].tolist() == ["j"]
    ask(rows, "cluster.power_cap_w=1020", code=0, verb="run")


def test_a_power_cap_counts_with_measured_power(inside: Command, tmp_path: Path) -> None:
    """Of jobs with energy, what they drew decides, whether the cluster states more or less."""
    capped = SCENARIO.replace("cluster:", "cluster:\n  power_cap_w: 800")
    (tmp_path / "mine.yaml").write_text(capped.replace(", busy_w: 300", ""), encoding="utf-8")

    def ask(rows: str, *arguments: object, code: int = 0) -> str:
        header = "job_id,submit_time_s,duration_s,gpus,gpu_type,energy_j\n"
        (tmp_path / "jobs.csv").write_text(header + rows, encoding="utf-8")
        inside("traces", "import", "csv", "jobs.csv", "--name=jobs", "--replace")
        done = inside("run", "mine.yaml", "--set=workload.unusable=drop", *arguments, code=code)
        return done.stderr if code else done.stdout

    assert "Left out: 1 job above the power cap" in ask("j,0,9,1,a,900\nk,0,10,2,a,5000\n")
    ran = pd.read_parquet(tmp_path / "results/mine/jobs.parquet")
    assert ran["job_id"].tolist() == ["j"]
    assert ran["energy_j"].tolist() == [900]
    assert_states(
        ask("j,0,0,1,a,900\nk,0,9,1,a,900\n", code=2), "power.a.busy_w is missing", "1 job"
    )


@pytest.mark.parametrize("select", ["easy-backfill", "fifo", "sjf"])
def test_a_power_cap_is_kept_with_measured_power(
    inside: Command, tmp_path: Path, select: str
) -> None:
    """Of two jobs of one demand, the one that may pass the first of the queue draws too much."""
    rows = ["r,0,100,100,2,30000", "h,1,10,10,4,4000", "x,2,1000,1000,1,50000", "y,3,50,50,1,45000"]
    header = "job_id,submit_time_s,duration_s,estimate_s,gpus,energy_j"
    (tmp_path / "jobs.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    inside("traces", "import", "csv", "jobs.csv", "--name=jobs")
    (tmp_path / "mine.yaml").write_text(SCENARIO, encoding="utf-8")
    cluster = "{gpu: GPU, gpus: 4, idle_power_w: 20, busy_power_w: 200, power_cap_w: 1000}"
    inside("run", "mine.yaml", f"--set=cluster={cluster}", f"--set=policies.select={select}")
    drawn = pd.read_parquet(tmp_path / "results/mine/timeline.parquet")["power_w"]
    assert 900 < drawn.max() <= 1000
    ran = pd.read_parquet(tmp_path / "results/mine/jobs.parquet").set_index("job_id")["energy_j"]
    assert ran.to_dict() == {"r": 30000, "h": 4000, "x": 50000, "y": 45000}


def test_a_power_cap_on_recurring_jobs(inside: Command) -> None:
    done = inside("validate", "quickstart", "--set", "cluster.power_cap_w=300", code=2)
    assert_states(done.stderr, "workload 'image'", "300 W", "1 GPU at up to")


@pytest.mark.parametrize("setting", ["cluster.gpus=5", "cluster.idle_power_w=5"])
def test_two_forms_of_a_cluster(ask: Ask, setting: str) -> None:
    said = ask("j,0,9,1,,\n", setting)
    assert said.startswith(f"--set {setting}: ")
    keys = "gpu, gpus, gpus_per_node, idle_power_w, busy_power_w, gpu_model or nodes, power"
    assert_states(said, keys)
    assert said.count("\n") == 1
    assert ask("j,0,9,1,,\n", EQUAL, "cluster.nodes=5").count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cluster.power.a.busy_w=40", "busy_w: |40 W|idle_w, 50 W"),
        (
            "cluster={gpu: GPU, gpus: 8, idle_power_w: 50, busy_power_w: 40}",
            "busy_power_w: |40 W|idle_power_w, 50 W",
        ),
        (
            "cluster={gpu: A40, gpus: 8, idle_power_w: 50, busy_power_w: 310}",
            "busy_power_w: |310 W|highest power limit of A40|300 W",
        ),
        (
            "cluster={gpu: x, gpu_model: v100, gpus: 8, idle_power_w: 50, busy_power_w: 360}",
            "busy_power_w: |360 W|highest power limit of v100|350 W",
        ),
        (
            "cluster.power.a={idle_w: 50, busy_w: 310, model: A40}",
            "power.a.busy_w: |310 W|highest power limit of A40",
        ),
        (
            "cluster.sleep={after_s: 1, power_w: 51, wake_s: 1}",
            "sleep.power_w: |51 W|power.a.idle_w, 50 W",
        ),
        (
            "cluster={gpu: x, gpus: 8, idle_power_w: 50, "
            "sleep: {after_s: 1, power_w: 51, wake_s: 1}}",
            "sleep.power_w: |51 W|idle_power_w, 50 W",
        ),
    ],
)
def test_impossible_power(ask: Ask, setting: str, words: str) -> None:
    said = ask("j,0,9,1,,\n", setting)
    assert_states(said, *f"--set {setting}: {words}".split("|"))
    assert said.count("\n") == 1


def test_idle_power_above_that_of_recorded_trainings(inside: Command) -> None:
    setting = "cluster.idle_power_w=251"
    said = inside("run", "quickstart", "--set", setting, code=2).stderr
    assert_states(said, f"--set {setting}: idle_power_w", "SYN-250W", "251 W", "at most")
    assert said.count("\n") == 1
    inside("validate", "quickstart", "--set", "cluster.idle_power_w=60")


def test_names_of_scenarios(inside: Command) -> None:
    done = inside("run", "quickstrat", code=2)
    assert_states(done.stderr, "'quickstrat'", "'quickstart'?")
    lines = inside("scenarios").stdout.splitlines()
    starts = {len(line) - len(line.split(maxsplit=1)[1]) for line in lines}
    assert len(lines) > 5
    assert len(starts) == 1, "questions stand below one another"
