"""Who a job of a Slurm log is: clusters, requeues, numbers used again, resizes, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.slurm_records import Log, logs, write_json, write_text
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.library import store
from wattkeeper.traces.library.local_times import TWICE
from wattkeeper.traces.readers.base import ImportOptions
from wattkeeper.traces.trace import Trace

HEAD = "JobID|Cluster|User|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES"
COLUMNS = tuple(HEAD.split("|"))
Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(*lines: str, name: str = "sacct.txt") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([*lines, ""]))
        return path

    return write


def row(job: str, submit: str, start: str, end: str, hours: float, gpus: int, **more: str) -> str:
    """A line; times are ``MM-DDTHH`` or with a year before."""

    def date(text: str) -> str:
        return f"{text if len(text) > 8 else '2026-' + text}:00:00"

    values = {
        "job": job,
        "cluster": "alpha",
        "user": "ann",
        "partition": "gpu",
        "submit": date(submit),
        "start": date(start),
        "end": date(end),
        "elapsed": str(round(3600 * hours)),
        "limit": "1440",
        "state": "COMPLETED",
        "tres": f"cpu=8,gres/gpu={gpus},node=1",
    }
    return "|".join((values | more).values())


def store_trace(path: Path, **more: Any) -> Trace:
    folder = path.with_name("trace")
    store.add("slurm", [path], folder=folder, replace=True, **more)
    return store.find(f"{folder}")


def column(trace: Trace, name: str) -> Any:
    return trace.tables["jobs"][name].to_pylist()


def gpu_hours(trace: Trace) -> float:
    jobs = trace.tables["jobs"]
    gpus, milli, run_s = (np.asarray(jobs[name]) for name in ("gpus", "gpu_milli", "duration_s"))
    return float((gpus * milli / 1000 * run_s).sum() / 3600)


def longest_wait_h(trace: Trace) -> float:
    jobs = trace.tables["jobs"]
    return float(
        (np.asarray(jobs["start_time_s"]) - np.asarray(jobs["submit_time_s"])).max() / 3600
    )


@settings(
    max_examples=examples(300, few=12),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(logs(), st.sampled_from(["dates", "compact", "pretty"]))
def test_the_records_of_jobs_are_read_back_into_these_jobs(
    tmp_path: Path, log: Log, form: str
) -> None:
    """Whether they are written as text with seconds, with dates, or as JSON."""
    seconds = import_trace("slurm", [write_text(log, tmp_path / "s.txt", dates=False)])
    if form == "dates":
        path = write_text(log, tmp_path / "d.txt", dates=True)
    else:
        path = write_json(log, tmp_path / "p.json", indent=2 if form == "pretty" else None)
    other = import_trace("auto", [path])
    assert seconds.tables == other.tables
    assert seconds.notes == other.notes
    assert seconds.quality["doubts"] == other.quality["doubts"]
    origin = min(job.arrival_s for job in log.jobs)
    found = sorted(
        seconds.tables["jobs"].to_pylist(), key=lambda job: (job["submit_time_s"], job["user"])
    )
    expected = sorted(log.jobs, key=lambda job: (job.arrival_s, job.user))
    assert len(found) == len(expected) == len({job["job_id"] for job in found})
    for job, truth in zip(found, expected, strict=True):
        assert job["user"] == truth.user
        assert job["submit_time_s"] == truth.arrival_s - origin
        assert job["start_time_s"] == truth.start_s - origin
        assert (job["tries"] or 1) == truth.tries
        held = job["gpus"] * job["gpu_milli"] * job["duration_s"]
        assert held == pytest.approx(truth.gpu_milli_s, rel=1e-12)
        assert job["duration_s"] == truth.run_s or truth.resized
        assert job["duration_s"] <= truth.run_s


def test_one_number_in_two_clusters_is_two_jobs(put: Put) -> None:
    lines = [
        row("101", "01-05T08", "01-05T08", "01-05T18", 10, 4),
        row("102", "01-05T09", "01-05T09", "01-05T10", 1, 1, user="bob"),
        row("101", "01-06T08", "01-06T08", "01-06T10", 2, 2, cluster="beta"),
        row("103", "01-06T09", "01-06T09", "01-06T10", 1, 1, cluster="beta", user="bob"),
    ]
    trace = import_trace("slurm", [put(HEAD, *lines)])
    assert (gpu_hours(trace), longest_wait_h(trace)) == (46, 0)
    assert column(trace, "job_id") == ["alpha/101", "alpha/102", "beta/101", "beta/103"]
    assert column(trace, "queue") == ["alpha/gpu"] * 2 + ["beta/gpu"] * 2
    (note,) = trace.notes
    assert_states(note, "2 clusters: alpha (2 records), beta (2 records)", "sacct --clusters NAME")
    alone = import_trace("slurm", [put(HEAD, *lines[:2])])
    assert (column(alone, "job_id"), column(alone, "queue")) == (["101", "102"], ["gpu"] * 2)
    assert alone.notes == ()


@pytest.mark.parametrize("submit", ["01-05T08", "01-05T18"])
def test_what_looks_like_a_requeue_in_another_cluster_is_another_job(put: Put, submit: str) -> None:
    path = put(
        HEAD,
        row("101", "01-05T08", "01-05T08", "01-05T18", 10, 4, state="NODE_FAIL"),
        row("101", submit, "01-05T19", "01-05T20", 1, 2, cluster="beta"),
    )
    trace = import_trace("slurm", [path])
    assert gpu_hours(trace) == 42
    assert column(trace, "job_id") == ["alpha/101", "beta/101"]


def test_two_exports_of_one_cluster_need_not_both_name_it(put: Put) -> None:
    whole = row("101", "01-05T08", "01-05T08", "01-05T18", 10, 4)
    before = [line.replace("|alpha", "").replace("|Cluster", "") for line in (HEAD, whole)]
    paths = [put(*before, name="a.txt"), put(HEAD, whole, name="b.txt")]
    assert column(import_trace("slurm", paths), "job_id") == ["101"]


@pytest.mark.parametrize("user", ["ann", "bob"])
@pytest.mark.parametrize("state", ["COMPLETED", "NODE_FAIL", "PREEMPTED"])
@pytest.mark.parametrize("later", ["2025-06-06T08", "2024-01-05T20", "2024-01-07T08"])
def test_a_number_that_is_used_again_is_another_job(
    put: Put, user: str, state: str, later: str
) -> None:
    end = f"{later[:-2]}{int(later[-2:]) + 2:02}"
    path = put(
        HEAD,
        row("101", "2024-01-05T08", "2024-01-05T08", "2024-01-05T18", 10, 4, state=state),
        row("102", "2024-01-05T09", "2024-01-05T09", "2024-01-05T10", 1, 1, user="bob"),
        row("101", later, later, end, 2, 2, user=user),
    )
    trace = import_trace("slurm", [path])
    assert (gpu_hours(trace), longest_wait_h(trace)) == (45, 0)
    assert column(trace, "job_id") == ["101", "102", "101#2"]
    assert_states(trace.notes[0], "1 jobs have a number that an earlier job", "NUMBER#2")


@pytest.mark.parametrize(
    ("state", "tries"),
    [
        ("COMPLETED", 1),
        ("CANCELLED", 1),
        ("CANCELLED by 1000", 1),
        ("REQUEUED", 2),
        ("NODE_FAIL", 2),
        ("PREEMPTED", 2),
        ("FAILED", 2),
        ("TIMEOUT", 2),
        ("SPECIAL_EXIT", 2),
    ],
)
def test_a_job_that_is_over_is_not_requeued(put: Put, state: str, tries: int) -> None:
    path = put(
        HEAD,
        row("10", "01-05T08", "01-05T08", "01-05T09", 1, 4, state=state),
        row("10", "01-05T09", "01-05T10", "01-05T12", 2, 2),
    )
    trace = import_trace("slurm", [path])
    assert column(trace, "job_id") == (["10"] if tries == 2 else ["10", "10#2"])
    assert gpu_hours(trace) == (4 if tries == 2 else 8)


def test_runs_that_overlap_are_no_tries_of_one_job(put: Put) -> None:
    path = put(
        HEAD,
        row("101", "01-05T08", "01-05T08", "01-05T18", 10, 4, state="NODE_FAIL"),
        row("101", "01-05T12", "01-05T12", "01-05T14", 2, 2),
        row("101", "01-05T18", "01-05T19", "01-05T20", 1, 4),
    )
    trace = import_trace("slurm", [path])
    assert column(trace, "tries") == [1, 2]
    assert column(trace, "job_id") == ["101#2", "101"]
    assert gpu_hours(trace) == 8


def test_a_job_that_ran_at_the_export_may_have_been_requeued_later(put: Put) -> None:
    running = row("7", "01-30T08", "01-30T08", "01-30T09", 40, 4, state="RUNNING", limit="10000")
    again = row("7", "02-04T08", "02-04T09", "02-04T11", 2, 4)
    paths = [put(HEAD, running, name="jan.txt"), put(HEAD, again, name="feb.txt")]
    assert column(import_trace("slurm", paths), "tries") == [2]
    late = row("7", "04-04T08", "04-04T09", "04-04T11", 2, 4)
    trace = import_trace("slurm", [paths[0], put(HEAD, late, name="apr.txt")])
    assert column(trace, "job_id") == ["7", "7#2"]


@pytest.mark.parametrize("submit", ["01-05T08", "01-05T18"])
def test_records_of_a_resized_job_are_parts_of_one(put: Put, submit: str) -> None:
    path = put(
        HEAD,
        row("201", "01-05T08", "01-05T08", "01-05T18", 10, 8, state="RESIZING"),
        row("201", submit, "01-05T18", "01-05T23", 5, 4),
        row("202", "01-05T09", "01-05T09", "01-05T10", 1, 1, user="bob"),
    )
    trace = import_trace("slurm", [path])
    assert column(trace, "job_id") == ["201", "202"]
    assert longest_wait_h(trace) == 0
    assert column(trace, "duration_s")[0] == 12.5 * 3600
    assert column(trace, "gpus")[0] == 8  # 100 GPU hours
    assert column(trace, "status")[0] == "COMPLETED"
    assert "tries" not in trace.tables["jobs"].column_names or column(trace, "tries")[0] is None
    assert_states(trace.notes[0], "1 jobs were resized", "the most GPUs", "the same GPU time")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([("gpu=1", 10), ("gpu=2", 6)], (2, 1000, 22.0)),
        ([("gpu=2", 6), ("gpu=1", 10)], (2, 1000, 22.0)),
        ([("gpu:1g.5gb=1", 5), ("gpu=1", 1)], (1, 1000, 1.715)),
        ([("gpu:1g.5gb=3", 5), ("gpu:3g.20gb=2", 1)], (2, 429, 3.003)),
        ([("gpu=3", 1), ("gpu=1", 1), ("gpu=2", 5)], (3, 1000, 14.0)),
    ],
)
def test_a_resized_job_keeps_its_gpu_time(
    put: Put, sizes: list[tuple[str, int]], expected: tuple[int, int, float]
) -> None:
    lines, hour = [], 1
    for number, (gpus, hours) in enumerate(sizes):
        state = "RESIZING" if number < len(sizes) - 1 else "COMPLETED"
        lines.append(
            row(
                "1",
                "01-05T01",
                f"01-05T{hour:02}",
                f"01-05T{hour + hours:02}",
                hours,
                0,
                tres=f"gres/{gpus}",
                state=state,
            )
        )
        hour += hours
    trace = import_trace("slurm", [put(HEAD, *lines)])
    assert (*column(trace, "gpus"), *column(trace, "gpu_milli")) == expected[:2]
    assert gpu_hours(trace) == pytest.approx(expected[2], rel=1e-12)


def test_a_job_that_was_resized_and_runs_still_has_no_duration(put: Put) -> None:
    path = put(
        HEAD,
        row("1", "01-05T08", "01-05T08", "01-05T18", 10, 8, state="RESIZING"),
        row("1", "01-05T08", "01-05T18", "01-05T19", 5, 4, state="RUNNING"),
    )
    trace = import_trace("slurm", [path])
    assert (column(trace, "duration_s"), column(trace, "gpus")) == ([None], [8])
    assert_states(trace.notes[0], "1 jobs were resized")
    assert "hours" not in trace.notes[0]


def test_a_resized_job_may_be_requeued(put: Put) -> None:
    path = put(
        HEAD,
        row("1", "01-05T08", "01-05T09", "01-05T10", 1, 8, state="RESIZING"),
        row("1", "01-05T10", "01-05T10", "01-05T12", 2, 2, state="NODE_FAIL"),
        row("1", "01-05T12", "01-05T13", "01-05T14", 1, 2),
    )
    trace = import_trace("slurm", [path])
    assert (column(trace, "tries"), column(trace, "gpus")) == ([2], [2])  # of the last try
    assert longest_wait_h(trace) == 5
    assert_states(trace.notes[0], "12.0 GPU hours, which are left out")


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo", "Europe/Berlin"])
def test_who_a_job_is_does_not_depend_on_the_zone_of_its_log(put: Put, zone: str) -> None:
    """Resized jobs, lost nodes, jobs that ran at the export, and those without counted GPUs."""
    plain = {"tres": "cpu=8,node=1"}
    path = put(
        HEAD,
        row("1", "01-05T08", "01-05T08", "01-05T09", 1, 1, **plain),
        row("2", "01-05T08", "01-05T09", "01-05T10", 1, 1),
        row("3", "01-05T10", "01-05T10", "01-05T13", 3, 4, state="RESIZING"),
        row("3", "01-05T13", "01-05T13", "01-05T14", 1, 2),
        row("4", "01-05T08", "01-05T08", "01-05T10", 2, 2, state="NODE_FAIL"),
        row("4", "01-05T10", "01-05T11", "01-05T12", 1, 2),
        row("5", "01-05T08", "01-05T08", "01-05T09", 9, 2, state="RUNNING", limit="120"),
        row("5", "01-05T10", "01-05T11", "01-05T12", 1, 2),
        row("6", "01-05T08", "01-05T08", "01-05T10", 2, 2, user="bob"),
        row("6", "01-05T15", "01-05T16", "01-05T17", 1, 2, user="bob"),
    )
    without, found = (store_trace(path, options=ImportOptions(zone=each)) for each in (None, zone))
    assert found.tables == without.tables
    assert found.notes == without.notes
    assert found.quality["dropped"] == without.quality["dropped"]
    assert found.quality["doubts"] == without.quality["doubts"]
    assert column(found, "job_id") == ["2", "3", "4", "5", "6", "6#2"]


def test_times_of_a_job_follow_each_other_as_clocks_are_set_back(put: Put) -> None:
    """02:20 is an hour after 01:20, and once more an hour later."""
    path = put(
        ELIGIBLE.replace("|End", ""),
        "1|ann|gpu|2024-10-27T01:00:00|2024-10-27T02:50:00|2024-10-27T02:20:00|3600|60|COMPLETED|"
        "gres/gpu=1",
        "2|ann|gpu|2024-10-27T01:00:00|2024-10-27T02:20:00|2024-10-27T02:50:00|3600|60|COMPLETED|"
        "gres/gpu=1",
    )
    trace = store_trace(path, options=ImportOptions(zone="Europe/Berlin"))
    assert set(trace.quality["doubts"]) == {TWICE}
    starts, arrivals = column(trace, "start_time_s"), column(trace, "submit_time_s")
    assert [start - at for start, at in zip(starts, arrivals, strict=True)] == [1800, 1800]
    (doubt,) = store_trace(path).quality["doubts"]
    assert_states(doubt, "Start before Eligible")


ELIGIBLE = HEAD.replace("|Start", "|Eligible|Start").replace("|Cluster", "")


def waits(*times: tuple[str, str, str]) -> list[str]:
    """Lines of jobs that ran for an hour: submission, eligibility and start."""
    return [
        f"{n}|ann|gpu|{submit}|{eligible}|{start}|{start.replace(':00:00', ':59:59')}|3599|1440|"
        "COMPLETED|gres/gpu=1"
        for n, (submit, eligible, start) in enumerate(times)
    ]


def test_waits_count_from_eligibility(put: Put) -> None:
    first, second, third = (f"2026-01-0{day}T08:00:00" for day in (5, 6, 7))
    rows = waits(
        (first, first, first),
        (first, second, second),
        (first, second, third),
        (first, "Unknown", second),
        (second, first, third),
        (first, third, second),
    )
    trace = import_trace("slurm", [put(ELIGIBLE, *rows)])
    start, arrival = (
        np.asarray(trace.tables["jobs"][name]) for name in ("start_time_s", "submit_time_s")
    )
    assert ((start - arrival) / 3600).tolist() == [0, 0, 24, 24, 24, 24]
    (doubt,) = trace.quality["doubts"]
    assert_states(doubt, "Start before Eligible")
    assert trace.quality["doubt_examples"] == {doubt: "sacct.txt, line 7"}


@pytest.mark.parametrize(
    ("tres", "gpus", "milli", "kind"),
    [
        ("gres/gpu:a100_3g.20gb=1,gres/gpu=1", 1, 429, "a100"),
        ("gres/gpu:1g.5gb=7,gres/gpu=7", 7, 143, None),
        ("gres/gpu:nvidia_h100_80gb_hbm3_1g.10gb=2", 2, 143, "nvidia_h100_80gb_hbm3"),
        ("gres/gpu:1g.5gb+me=1", 1, 143, None),
        ("gres/gpu:a30_2g.12gb=1", 1, 500, "a30"),
        ("gres/gpu:mig-7g.80gb=1", 1, 1000, None),
        ("gres/gpu:a100_40gb=1", 1, 1000, "a100_40gb"),
        ("gres/gpu:gh200_144g_hbm3e=1", 1, 1000, "gh200_144g_hbm3e"),
        ("gres/gpu=4,gres/gpu:a100=2", 4, 1000, "a100"),
        ("gres/mps=50", 1, 500, None),
        ("gres/mps:a100=200", 2, 1000, None),
    ],
)
def test_slices_are_parts_of_gpus(
    put: Put, tres: str, gpus: int, milli: int, kind: str | None
) -> None:
    line = row("1", "01-05T08", "01-05T08", "01-05T09", 1, 1, tres=f"cpu=4,{tres},node=1")
    trace = import_trace("slurm", [put(HEAD, line)])
    (found,) = trace.tables["jobs"].select(["gpus", "gpu_milli", "gpu_type"]).to_pylist()
    assert found == {"gpus": gpus, "gpu_milli": milli, "gpu_type": kind}
    assert any("gres/mps" in doubt for doubt in trace.quality["doubts"]) == ("mps" in tres)


@pytest.mark.parametrize(
    ("tres", "why"),
    [
        ("gres/gpu:1g.5gb=1,gres/gpu:2g.10gb=1", "different parts"),
        ("gres/gpu:1g.5gb=1,gres/gpu=3", "different parts"),
        ("gres/mps=150", "different parts"),
        ("gres/shard=2", "parts that are not recorded"),
    ],
)
def test_parts_of_which_a_trace_has_no_measure_are_left_out(put: Put, tres: str, why: str) -> None:
    lines = [
        row("1", "01-05T08", "01-05T08", "01-05T09", 1, 1),
        row("2", "01-05T08", "01-05T08", "01-05T09", 1, 1, tres=tres),
    ]
    trace = import_trace("slurm", [put(HEAD, *lines)])
    assert column(trace, "job_id") == ["1"]
    ((reason, count),) = trace.quality["dropped"].items()
    assert why in reason
    assert count == 1


def test_slices_and_whole_gpus_in_lists_of_each_node(put: Put) -> None:
    head = "JobID|Submit|Start|End|NNodes|AllocTRES|ReqGRES"
    common = "2026-01-05T08:00:00|2026-01-05T08:00:00|2026-01-05T09:00:00"
    path = put(
        head,
        f"1|{common}|2|cpu=4,node=2|gpu:a100:4(S:0-1)",
        f"2|{common}|1|cpu=4,gres/gpu=3,node=1|gpu:a100_1g.5gb:3",
    )
    trace = import_trace("slurm", [path])
    assert column(trace, "gpus") == [8, 3]
    assert column(trace, "gpu_milli") == [1000, 143]
    assert column(trace, "gpu_type") == ["a100", "a100"]


def test_jobs_from_before_gpus_were_counted_are_a_doubt(put: Put) -> None:
    plain = {"tres": "cpu=8,node=1"}
    early = [
        row(str(n), f"01-0{n}T08", f"01-0{n}T08", f"01-0{n}T09", 1, 0, **plain) for n in (1, 2, 3)
    ]
    later = [row(str(n), f"03-0{n}T08", f"03-0{n}T08", f"03-0{n}T09", 1, 2) for n in (4, 5, 6)]
    trace = import_trace("slurm", [put(HEAD, *early, *later)])
    ((doubt, count),) = trace.quality["doubts"].items()
    assert count == 3
    assert_states(doubt, "before the first job of its partition that does", "AccountingStorageTRES")
    assert trace.quality["doubt_examples"][doubt] == "sacct.txt, line 2"
    for others in (
        [line.replace("|gpu|", "|cpu|") for line in early],  # a partition without GPUs
        [line.replace("2026-01", "2026-04") for line in early],  # later: they need none
    ):
        assert import_trace("slurm", [put(HEAD, *others, *later)]).quality["doubts"] == {}


@pytest.mark.parametrize(("cluster", "partition"), [("alpha", ""), ("beta", "gpu"), ("", "")])
def test_uncounted_gpus_are_told_by_partition_of_each_cluster(
    put: Put, cluster: str, partition: str
) -> None:
    """Where another one has GPUs from the beginning, and later jobs without."""
    place = {"cluster": cluster, "partition": partition}
    lines = [
        row("1", "01-01T08", "01-01T08", "01-01T09", 1, 0, tres="cpu=8,node=1", **place),
        row("2", "03-01T08", "03-01T08", "03-01T09", 1, 2, **place),
        row("3", "01-01T07", "01-01T07", "01-01T08", 1, 2, cluster="gamma"),
        *[
            row(str(n), "03-02T08", "03-02T08", "03-02T09", 1, 0, tres="cpu=8", cluster="gamma")
            for n in range(4, 9)
        ],
    ]
    ((doubt, place_of_first),) = (
        import_trace("slurm", [put(HEAD, *lines)]).quality["doubt_examples"].items()
    )
    assert_states(doubt, "before the first job of its partition")
    assert place_of_first == "sacct.txt, line 2"


def test_run_times_and_limits_that_contradict_others_are_doubts(put: Put) -> None:
    good = row("1", "01-05T08", "01-05T08", "01-05T09", 1, 1)
    head = f"{HEAD}|Suspended"
    for line, facts in (
        (row("2", "01-05T08", "01-05T08", "01-05T09", 10, 1), "ElapsedRaw is not End - Start"),
        (row("2", "01-05T08", "01-05T08", "01-05T10", 1, 1), "ElapsedRaw is not End - Start"),
        (row("2", "01-05T08", "01-05T08", "01-05T09", 1000, 1), "ElapsedRaw is not End - Start"),
        (row("2", "01-05T08", "01-05T08", "01-05T09", 1, 1, limit="86400"), "seconds"),
        (
            row("2", "01-05T08", "01-05T08", "01-05T09", 1, 1, limit="3600", state="TIMEOUT"),
            "seconds",
        ),
    ):
        trace = import_trace("slurm", [put(head, f"{good}|", f"{line}|")])
        ((doubt, place),) = trace.quality["doubt_examples"].items()
        assert_states(doubt, facts)
        assert place == "sacct.txt, line 3"
    suspended = row("2", "01-05T08", "01-05T08", "01-05T10", 1, 1)
    timeout = row("3", "01-05T08", "01-05T08", "01-05T09", 1, 1, limit="60", state="TIMEOUT")
    trace = import_trace("slurm", [put(head, f"{suspended}|01:00:00", f"{timeout}|00:00:00")])
    assert trace.quality["doubts"] == {}


@pytest.mark.parametrize(("share", "warned"), [(1, True), (1.5, False)])
def test_limits_of_which_no_job_used_a_sixtieth_are_a_warning(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, warned: bool
) -> None:
    """Limits in seconds, in the column of minutes: 7200 for two hours."""
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    jobs = [row(str(n), "01-05T08", "01-05T08", "01-05T09", 1, 1, limit="7200") for n in range(4)]
    longest = row("99", "01-05T08", "01-05T08", "01-05T09", 2 * share, 1, limit="7200")
    added = store.add("slurm", [put(HEAD, *jobs, longest)], "mine")
    assert bool(added.outlived.warn()) == warned
    if warned:
        assert_states(added.outlived.warn(), "none of 5 jobs", "sixtieth", "minutes")


def import_faults(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        import_trace("slurm", [path])
    return str(caught.value)


def test_separators_at_the_end_of_lines(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    lines = [HEAD, row("1", "01-05T08", "01-05T08", "01-05T09", 1, 1)]
    expected = import_trace("slurm", [put(*lines)])
    ended = [f"{line}|" for line in lines]
    assert import_trace("slurm", [put(*ended)]).tables == expected.tables
    commas = [line.replace("|", ",") + "," for line in (HEAD, lines[1].replace("cpu=8,", ""))]
    commas = [line.replace(",node=1", "") for line in commas]
    assert column(import_trace("slurm", [put(*commas)]), "gpus") == [1]
    store.add("slurm", [put(*ended[1:])], "bare", options=ImportOptions(columns=COLUMNS))
    assert store.find("bare").tables["jobs"] == expected.tables["jobs"]
    broken = import_faults(put(*lines, lines[1] + "||"))
    assert_states(broken, "line 3: has 13 values, must have 11")


@pytest.mark.parametrize(
    ("form", "header", "resources"),
    [
        ("slurm", True, "billing=8+"),
        ("auto", True, "billing=8+"),
        ("slurm", False, "billing=8+"),
        ("slurm", False, "cpu=8,gres/gpu=4,node=1"),
    ],
)
def test_a_table_for_the_screen_is_refused_once(
    put: Put, form: str, header: bool, resources: str
) -> None:
    lines = [
        "       JobID     User               Submit               Start  AllocTRES ",
        "------------ -------- ------------------- ------------------- ---------- ",
        *[f"1              ann 2024-04-05T10:00:00 2024-04-05T10:00:00 {resources} "] * 30,
    ]
    path = put(*(lines if header else lines[2:]))
    with pytest.raises(TraceError) as caught:
        import_trace(form, [path])
    (problem,) = caught.value.problems
    assert_states(str(problem), "line 1", "sacct --parsable2")
    assert "--columns" not in str(problem)


@pytest.mark.parametrize("form", ["slurm", "auto"])
@pytest.mark.parametrize("names", ["JobID JobName Partition Account", "User JobID Submit"])
def test_a_table_without_the_needed_columns_is_a_table_of_sacct(
    put: Put, form: str, names: str
) -> None:
    words = names.split()
    lines = (" ".join(f"{word:>12}" for word in row) for row in (words, ["-" * 12] * len(words)))
    with pytest.raises(TraceError) as caught:
        import_trace(form, [put(*lines)])
    assert_states(str(caught.value), "line 1", "sacct --parsable2")


@pytest.mark.parametrize("end", ["", "|"])
def test_logs_that_were_joined_repeat_the_header(put: Put, tmp_path: Path, end: str) -> None:
    lines = [row(str(n), "01-05T08", "01-05T08", "01-05T09", 1, 1) for n in range(3)]
    text = [f"{line}{end}" for line in (HEAD, lines[0], HEAD, lines[1], HEAD, lines[2])]
    path = put(*text)
    assert_states(
        import_faults(path), "line 3: repeats the header", "and 1 more row", "2 of 5 rows"
    )
    trace = store_trace(path, skip_bad=True)
    assert column(trace, "job_id") == ["0", "1", "2"]
    columns = (*COLUMNS, "x") if end else COLUMNS
    bare = put(*([f"{line}x" for line in text[1:]] if end else text[1:]))
    named = ImportOptions(columns=columns)
    assert column(store_trace(bare, skip_bad=True, options=named), "job_id") == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            '{"jobs": [{"job_id": 1}, {"job_id": 2}]}',
            "line 1: time is absent|squeue|and 1 more row",
        ),
        ('{"jobs": [{"time": {"start": 5}}]}', "line 1: Submit is empty"),
        ('{"jobs": [1]}', "line 1: no job starts here: found '1', expected '{'|sacct --json"),
        ('{"jobs": [\n{"time": 3}]}', "line 2: time is 3, must be an object"),
        (
            '{"jobs": [{"time": {}, "tres": {"allocated": [{"count": "x"}]}}]}',
            "count is 'x', must be a number",
        ),
        ('{"jobs": [{"time": {}, "user": 7}]}', "user is 7, must be a text"),
        ('{"jobs": [{"time": {}, "user": "\\ud800"}]}', "user is '\\ud800', must be a text"),
        ('{"jobs": [{"time": {}, "state": {"current": [[]]}}]}', "state.current is []"),
        ('{"jobs": [\n{"job_id": 1},', "line 3: no job starts here|end of the file|--parsable2"),
        ('{"jobs": [\n{"job_id": 1', "line 2: the job that starts here is broken|--parsable2"),
        ('{"jobs": 3}', "JSON without 'jobs'"),
        ('{"jobs": [{"job_id": 1} {"job_id": 2}]}', "line 1: the array goes on wrongly"),
        ('{"jobs": [{"job_id": 1},]}', "line 1: no job starts here: found ']'"),
        ('{"jobs": [], }', "line 1: the object ends with a comma"),
        ('{"jobs": [] "meta": {}}', "line 1: the object goes on wrongly"),
        ('{"jobs": []}\nslurm says', "line 2: no job starts here: found 's'|sacct --json"),
        ('{"jobs": []}]', "no job starts here: found ']'"),
        ('{"kind": "Pod"}', "JSON without 'jobs'"),
        ('{"meta": {}}', "JSON without 'jobs'|sacct --json"),
        ('{"jobs": []}', "has no rows"),
        ('{"jobs": [' + '{"a":' * 100_000, "the job that starts here is broken"),
    ],
)
def test_what_is_no_json_of_sacct(put: Put, text: str, facts: str) -> None:
    assert_states(import_faults(put(text)), *facts.split("|"))


def json_job(number: int) -> dict[str, Any]:
    return {
        "job_id": number,
        "user": "ann",
        "partition": "gpu",
        "state": {"current": ["COMPLETED"]},
        "time": {
            "submission": 1000,
            "start": 1010,
            "eligible": 1000,
            "end": 4610,
            "elapsed": 3600,
            "limit": {"set": True, "number": 60},
        },
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]},
    }


@pytest.mark.parametrize("form", ["slurm", "auto"])
@pytest.mark.parametrize(
    "write",
    [
        lambda jobs: "\n".join(json.dumps({"jobs": [job], "meta": {}}) for job in jobs),
        lambda jobs: json.dumps({"plugins": {"type": "x"}, "jobs": jobs}, indent=1),
        lambda jobs: json.dumps(jobs, indent=2),
        lambda jobs: "\n".join(map(json.dumps, jobs)),
        lambda jobs: "".join(json.dumps(job, indent=2) for job in jobs),
    ],
)
def test_jobs_of_sacct_in_json_need_not_be_one_document(
    put: Put, form: str, write: Callable[[list[dict[str, Any]]], str]
) -> None:
    """Exports that follow each other, `jq .jobs`, `jq -c '.jobs[]'`, and `jq '.jobs[]'`."""
    trace = import_trace(form, [put(write([json_job(n) for n in (1, 2, 3)]))])
    assert column(trace, "job_id") == ["1", "2", "3"]
    assert gpu_hours(trace) == 6


def test_a_job_of_many_steps_is_read_from_json(put: Put) -> None:
    job = json_job(1)
    job["steps"] = [
        {"step": {"id": f"1.{n}", "name": "x" * 300}, "statistics": {"energy": {"consumed": 5}}}
        for n in range(20_000)
    ]
    text = json.dumps({"jobs": [job]})
    assert len(text) > 7_000_000
    assert column(import_trace("slurm", [put(text)]), "energy_j") == [100_000]


def test_older_json_has_plain_numbers_and_codes(put: Put) -> None:
    job = {
        "job_id": 10,
        "array": {"job_id": 9, "task_id": 4},
        "user": "ann",
        "partition": "gpu",
        "het": {"job_id": 0, "job_offset": 4294967294},
        "state": {"current": "COMPLETED"},
        "time": {
            "submission": 1000,
            "start": 1010,
            "eligible": 1000,
            "end": 4610,
            "elapsed": 3600,
            "limit": 4294967295,
        },
        "tres": {
            "allocated": [
                {"type": "gres", "name": "gpu:a100", "count": 2},
                {"type": "energy", "name": "", "count": -2},
            ]
        },
        "steps": [
            {
                "step": {"id": {"job_id": 10, "step_id": "batch"}},
                "statistics": {"energy": {"consumed": 900}},
            }
        ],
    }
    waiting = {**job, "array": {"job_id": 9, "task_id": 4294967294, "task": "5-7"}}
    waiting["time"] = {"submission": 1000, "start": 0, "eligible": 0, "end": 0, "elapsed": 0}
    trace = import_trace("slurm", [put(json.dumps({"meta": {}, "jobs": [job, waiting]}))])
    (found,) = trace.tables["jobs"].to_pylist()
    assert (found["job_id"], found["gpus"], found["gpu_type"]) == ("9_4", 2, "a100")
    assert (found["duration_s"], found["estimate_s"], found["energy_j"]) == (3600, None, 900)
    assert trace.quality["dropped"] == {"is a step of a job": 2, "never started": 1}
