"""Services that still run when a log of Kubernetes ends hold their GPUs when it is simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.kubernetes import admitted, at, import_objects, jobs, pod, workload, write
from tests.support.messages import assert_states

STUDY = ("study", "kubernetes", "pods.json", "--nodes", "nodes.yaml", "--out", "study")
OF_SERVICE: dict[str, Any] = {"owner": ("ReplicaSet", "llm", "u-rs"), "gpus": 2}
FIRST, LAST = "10T02:00", "12T20:00"


def objects() -> list[Any]:
    """Twelve jobs of 4 GPUs on three days, one that still runs, and three pods of a service."""
    ended = [
        pod(f"j{n}", f"1{n % 3}T0{2 + n}:30", f"1{n % 3}T12:00", gpus=4, created=f"1{n % 3}T02:00")
        for n in range(7)
    ]
    ended.append(pod("last", "12T13:00", LAST, gpus=1, created="12T12:30"))
    old = [pod(f"s{n}", "01T09:00", None, created="01T08:00", **OF_SERVICE) for n in range(2)]
    young = pod("s2", "11T10:00", None, created="11T09:00", **OF_SERVICE)
    running = pod("running", "12T01:00", None, created="12T00:30", owner=("Job", "j", "u-j"))
    return [*ended, *old, young, running]


def test_they_last_from_the_first_job_to_the_end_of_the_log(tmp_path: Path) -> None:
    found = jobs(import_objects(tmp_path / "pods.json", objects()))
    first_s = pd.Timestamp(at(FIRST)).timestamp()
    young_s, last_s = (pd.Timestamp(at(time)).timestamp() - first_s for time in ("11T10:00", LAST))
    for name, start_s in (("ml/s0", 0.0), ("ml/s1", 0.0), ("ml/s2", young_s)):
        job = found[name]
        assert job["submit_time_s"] == job["start_time_s"] == start_s
        assert start_s + job["duration_s"] == last_s
        assert (job["serves"], job["gpus"]) == (1, 2)
    assert found["ml/j0"]["submit_time_s"] == 0
    assert found["ml/j"]["duration_s"] is None, "a job that still runs is no service"
    assert {job["serves"] for name, job in found.items() if not name.startswith("ml/s")} == {None}


def test_a_workload_of_kueue_that_serves(tmp_path: Path) -> None:
    served = workload("w", admitted("09:00"), owner=("StatefulSet", "llm", "u-llm"))
    ended = workload("x", admitted("10:00", "12:00"), created="09:30")
    found = jobs(import_objects(tmp_path / "log", [served, ended]))
    assert found["ml/llm"]["serves"] == 1
    assert found["ml/llm"]["duration_s"] == 2.5 * 3600, "from the first other job on"
    assert found["ml/x"]["serves"] is None


def test_a_study_keeps_their_gpus_and_counts_no_wait_of_theirs(
    inside: Command, tmp_path: Path
) -> None:
    write(tmp_path / "pods.json", objects())
    (tmp_path / "nodes.yaml").write_text("nodes: [{gpu: a100, count: 2, gpus: 8}]\n")
    said = inside(*STUDY).stdout
    told = ("3 parts of services", "hold 6 GPUs", "waits do not count")
    assert_states(said, *told)
    results = tmp_path / "study/results"
    assert_states((results / "report.html").read_text(encoding="utf-8"), *told)
    manifest, summary = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("manifest", "summary")
    )
    assert manifest["waits"][0]["jobs"] == 8, "neither of services, nor of the one without an end"
    assert manifest["job_times"]["parts"][0]["jobs"] == 8
    attempts = pd.read_parquet(results / "jobs.parquet")
    own = attempts[attempts["variant"] == manifest["scenario"]["baseline"]].set_index("job_id")
    serving = own.loc[["ml/s0", "ml/s1", "ml/s2"]]
    others = own.drop(serving.index)
    metrics = summary["variants"][manifest["scenario"]["baseline"]]["metrics"]
    jct_s = (others["finish_time_s"] - others["submit_time_s"]).mean()
    assert metrics["jct_s"]["mean"] == pytest.approx(jct_s)
    delay_s = (others["start_time_s"] - others["submit_time_s"]).mean()
    assert metrics["queue_delay_s"]["mean"] == pytest.approx(delay_s)
    assert metrics["jobs"]["mean"] == 11
    line = pd.read_parquet(results / "timeline.parquet")
    line = line[line["variant"] == manifest["scenario"]["baseline"]]
    last_s = serving["finish_time_s"].max()
    held = line["gpus_busy"][line["time_s"] < last_s]
    assert (held >= 4).all(), "those that ran before the first job"
