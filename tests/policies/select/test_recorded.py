"""`recorded` starts each job when it started in the log, where the cluster can."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.select_worlds import make_job
from tests.support.worlds import attempts, chosen, run_world, spec
from wattkeeper.policies.points.job import Job
from wattkeeper.traces.library import store


def starts(jobs: list[Job], select: str, nodes: int = 4) -> dict[str, float]:
    world = run_world(jobs, {}, spec(nodes, 4), chosen(select=select, place="best-fit"))
    return {row.job_id: row.start_time_s for row in attempts(world)}


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.sampled_from([1, 2, 4, 8, 16])),
        min_size=1,
        max_size=30,
    ),
    select=st.sampled_from(["fifo", "fjf", "sjf", "fair-share"]),
)
@example(rows=[(0, 1, 16), (0, 1, 16), (1, 0, 16)], select="sjf")
def test_what_another_policy_did_is_repeated_exactly(
    rows: list[tuple[int, int, int]], select: str
) -> None:
    """The record of a simulated cluster is one that the same cluster can serve."""
    jobs = [
        make_job(number, submit_s, time_s, gpus)
        for number, (submit_s, time_s, gpus) in enumerate(sorted(rows))
    ]
    recorded = starts(jobs, select)
    again = [job.replace(recorded_start_s=recorded[job.job_id]) for job in jobs]
    assert starts(again, "recorded") == recorded


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(1, 30), st.integers(1, 16)),
        min_size=1,
        max_size=30,
    )
)
def test_no_job_starts_before_it_did(rows: list[tuple[int, int, int, int]]) -> None:
    """On any cluster; a job starts when it did unless too few GPUs are free."""
    jobs = [
        make_job(number, submit_s, time_s, gpus, recorded_start_s=float(submit_s + wait_s))
        for number, (submit_s, wait_s, time_s, gpus) in enumerate(sorted(rows))
    ]
    done = starts(jobs, "recorded")
    assert done.keys() == {job.job_id for job in jobs}
    for job in jobs:
        late_s = done[job.job_id] - job.recorded_start_s
        assert late_s >= 0
        if late_s:
            held = sum(
                other.gpus
                for other in jobs
                if other is not job
                and done[other.job_id]
                <= job.recorded_start_s
                < done[other.job_id] + other.duration_s
            )
            same_time = sum(
                other.gpus
                for other in jobs
                if other is not job and other.recorded_start_s == job.recorded_start_s
            )
            # Best fit may leave GPUs free on nodes that are too small for a gang.
            assert held + same_time + job.gpus > 16 or job.gpus > 1


def test_late_jobs_go_first() -> None:
    jobs = [
        make_job(0, 0, 10, 16, recorded_start_s=0.0),
        make_job(1, 0, 10, 16, recorded_start_s=5.0),
        make_job(2, 0, 10, 16, recorded_start_s=4.0),
        make_job(3, 0, 10, 16, recorded_start_s=30.0),
    ]
    assert starts(jobs, "recorded") == {"0": 0.0, "2": 10.0, "1": 20.0, "3": 30.0}


def test_a_log_without_starts_is_refused(inside: Command, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("submit_time_s,duration_s,gpus,start_time_s\n0,5,1,2\n1,5,1,\n")
    inside("traces", "import", "csv", log, "--name", "some")
    jobs = store.find("some").tables["jobs"]
    assert jobs["start_time_s"] == pa.chunked_array([pa.array([2.0, None])])
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "name: s\n"
        "cluster: {gpu: any, gpus: 8, idle_power_w: 50, busy_power_w: 300}\n"
        "workload: {kind: trace, trace: some}\n"
        "variants: {today: {policies: {select: recorded}}}\n"
        "baseline: today\n"
    )
    refused = inside("run", scenario, "--out", tmp_path / "out", code=2)
    assert_states(refused.stderr, "1 of 2 jobs have no recorded start", "job 2", "today")


@pytest.mark.parametrize(
    ("rows", "relative"),
    [
        (["100,5,1,102", "101,5,1,107"], [2.0, 7.0]),
        (["2024-01-01 00:00:00,5,1,2024-01-01 00:00:02", "2024-01-01 00:00:01,5,1,"], [2.0, None]),
        (["100,5,1,99", "101,5,1,101"], [None, 1.0]),
    ],
)
def test_starts_count_from_the_first_submission(
    inside: Command, tmp_path: Path, rows: list[str], relative: list[float | None]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["submit_time_s,duration_s,gpus,start_time_s", *rows, ""]))
    inside("traces", "import", "csv", log, "--name", "some")
    trace = store.find("some")
    assert trace.tables["jobs"]["start_time_s"].to_pylist() == relative
    early = "started before they were submitted, so without a recorded start"
    assert trace.quality["doubts"] == ({early: 1} if relative[0] is None else {})


def test_jobs_that_a_policy_cannot_decide_on_are_dropped_in_all_variants(
    inside: Command, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "submit_time_s,duration_s,gpus,start_time_s,estimate_s\n0,5,1,2,9\n1,5,1,,9\n2,5,1,3,\n"
    )
    inside("traces", "import", "csv", log, "--name", "some")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "name: s\n"
        "cluster: {gpu: any, gpus: 8, idle_power_w: 50, busy_power_w: 300}\n"
        "workload: {kind: trace, trace: some, unusable: drop}\n"
        "variants:\n"
        "  today: {policies: {select: recorded}}\n"
        "  easy: {policies: {select: easy-backfill}}\n"
        "baseline: today\n"
    )
    done = inside("run", scenario, "--out", tmp_path / "out")
    assert_states(
        done.stdout + done.stderr,
        "recorded start that recorded needs",
        "estimate that easy-backfill needs",
    )
    jobs = pq.read_table(tmp_path / "out/jobs.parquet").to_pylist()
    assert [(row["variant"], row["job_id"]) for row in jobs] == [("today", "1"), ("easy", "1")]
