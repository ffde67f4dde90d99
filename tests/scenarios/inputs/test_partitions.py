"""Partitions of a cluster: which nodes their jobs may run on, and which jobs have no place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states

COLUMNS = ("submit_time_s", "duration_s", "gpus", "gpu_type", "queue")
SCENARIO = """\
name: mine
cluster:
  nodes: [{gpu: a, count: 2, gpus: 4}, {gpu: b, count: 1, gpus: 4}]
  power:
    a: {idle_w: 50, busy_w: 300}
    b: {idle_w: 60, busy_w: 500}
  partitions: {small: [a], debug: [a], large: [b]}
workload: {kind: trace, trace: jobs}
variants: {fifo: {}, pool: {cluster: {partitions: null}}}
baseline: fifo
"""

Ask = Callable[..., str]


@pytest.fixture
def ask(inside: Command, tmp_path: Path) -> Ask:
    """What a command says of `mine.yaml` with given jobs and settings."""

    def run(
        rows: str, *more: str, code: int = 2, verb: str = "validate", text: str = SCENARIO
    ) -> str:
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        header = ",".join(("job_id", *COLUMNS))
        (tmp_path / "jobs.csv").write_text(f"{header}\n{rows}", encoding="utf-8")
        mapped = (f"--map={name}={name}" for name in COLUMNS)
        inside("traces", "import", "csv", "jobs.csv", "--name=jobs", "--replace", *mapped)
        done = inside(verb, "mine.yaml", *more, code=code)
        return done.stderr if code else done.stdout

    return run


ROWS = "p,0,100,4,,large\nq,1,100,4,,large\nr,2,100,4,,small\ns,3,100,4,a|b,debug\n"


def table(folder: Path, variant: str, column: str) -> list[float | str]:
    jobs = pd.read_parquet(folder / "out/jobs.parquet")
    found: list[float | str] = jobs[jobs.variant == variant].sort_values("job_id")[column].tolist()
    return found


def test_a_job_runs_on_the_nodes_of_its_partition(ask: Ask, tmp_path: Path) -> None:
    """Without partitions, it waits in the one queue and runs where its own types allow."""
    ask(ROWS, "--out", "out", verb="run", code=0)
    assert table(tmp_path, "fifo", "gpu_type") == ["b", "b", "a", "a"]
    assert table(tmp_path, "fifo", "start_time_s") == [0, 100, 2, 3]
    assert table(tmp_path, "pool", "gpu_type") == ["a", "a", "b", "a"]
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    partitions = {"small": ["a"], "debug": ["a"], "large": ["b"]}
    assert manifest["scenario"]["cluster"]["partitions"] == partitions


def test_ignored_types_are_still_those_of_the_partition(ask: Ask, tmp_path: Path) -> None:
    rows = ROWS.replace("4,,large", "4,a,large")
    settings = ("--set", "workload.gpu_types=ignore")
    ask(rows, *settings, "--out", "out", verb="run", code=0)
    assert table(tmp_path, "fifo", "gpu_type") == ["b", "b", "a", "a"]


def test_jobs_without_a_place_are_counted_by_reason(ask: Ask) -> None:
    rows = (
        "k,0,9,1,,night\nl,1,9,1,,night\nm,2,9,1,b,small\nn,3,9,8,,large\no,4,9,1,,\np,5,9,1,z,x\n"
        "q,6,9,1,b,\nr,7,9,8,,small\n"
    )
    alone = SCENARIO.replace(
        "variants: {fifo: {}, pool: {cluster: {partitions: null}}}", "variants: {fifo: {}}"
    )
    whole, types, names, none, lack, large, advice = ask(rows, text=alone).splitlines()
    assert_states(whole, "6 of 8 jobs")
    assert_states(types, "1 asks for type z", "row 6, job p")
    assert_states(names, "2 name a partition that the cluster lacks (night", "row 1, job k; row 2")
    assert_states(none, "1 job of no partition", "several queues", "row 5, job o")
    assert_states(lack, "1 job of a GPU type", "their partition lack", "job m", "'small'")
    assert_states(large, "1 job larger than", "job n", "'large': 8 GPUs", "4 of one type")
    assert_states(advice, "cluster.partitions", "workload.unusable=drop")
    said = ask(rows, "--set", "workload.unusable=drop", code=0, text=alone)
    assert_states(
        said,
        "Left out: 2 jobs of a partition that the cluster lacks",
        "Left out: 1 job larger than their partition",
    )


def test_a_cap_counts_the_nodes_of_the_partition(ask: Ask) -> None:
    """A job of `large` cannot start below the cap, though it could on nodes of the other type."""
    said = ask("p,0,9,4,,large\n", "--set", "cluster.power_cap_w=1700")
    assert_states(said, "variant 'fifo'", "more power than cluster.power_cap_w, 1700 W")
    assert "'pool'" not in said
    ask("p,0,9,4,,small\n", "--set", "cluster.power_cap_w=1700", code=0)


@pytest.mark.parametrize(
    ("partitions", "facts"),
    [
        (
            "{small: [a], large: [c]}",
            ("mine.yaml:7", "large: no node has", "'c'", "nodes have a, b"),
        ),
        ("{small: []}", ("mine.yaml:7", "small", "at least 1")),
        ("{small: [a, a]}", ("mine.yaml:7", "small", "twice")),
        ("{}", ("mine.yaml:7", "partitions")),
    ],
)
def test_wrong_partitions_are_refused(ask: Ask, partitions: str, facts: tuple[str, ...]) -> None:
    text = SCENARIO.replace("{small: [a], debug: [a], large: [b]}", partitions)
    assert_states(ask(ROWS, text=text), *facts)


def test_only_jobs_of_a_trace_have_partitions(inside: Command, tmp_path: Path) -> None:
    text = SCENARIO.replace("gpu: a,", "gpu: SYN-250W,").replace("    a:", "    SYN-250W:")
    text = text.replace("[a]", "[SYN-250W]").replace(
        "{kind: trace, trace: jobs}", "{kind: recurring, profiles: {synthetic: {}}, recurrences: 2}"
    )
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    said = inside("validate", "mine.yaml", code=2).stderr
    assert_states(said, "mine.yaml:7", "partitions: only jobs of a trace", "kind recurring")
