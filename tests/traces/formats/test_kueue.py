"""Workloads of Kueue: slices, requeues, cleared admissions, priorities, variants."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubernetes import (
    Json,
    admitted,
    condition,
    hours,
    import_objects,
    jobs,
    workload,
)
from wattkeeper.traces.formats.kubernetes.jobs import RESIZED
from wattkeeper.traces.formats.kubernetes.log import RESCALED
from wattkeeper.traces.formats.kubernetes.objects import NO_START, READY_START

EL = ("Job", "el", "j-el")
FOR, FIRST = (f"kueue.x-k8s.io/workload-slice-{each}" for each in ("replacement-for", "name"))
REPLACED = "WorkloadSliceReplaced"


def gpu_hours(row: Json) -> float:
    return float(row["gpus"] * row["duration_s"] / 3600)


def test_slices_of_an_elastic_workload_are_one_job_with_their_gpu_hours(tmp_path: Path) -> None:
    slices = [
        workload("el-s1", admitted("09:00", "10:00", REPLACED), gpus=4, owner=EL),
        workload("el-s2", admitted("10:00", "12:00"), gpus=8, owner=EL),
    ]
    for order in permutations(slices):
        trace = import_objects(tmp_path / "x", order)
        ((name, row),) = jobs(trace).items()
        assert (name, row["gpus"], row["tries"], row["status"]) == ("ml/el", 8, 1, "Succeeded")
        assert (row["submit_time_s"], row["start_time_s"]) == (0, 3600)
        assert gpu_hours(row) == 4 * 1 + 8 * 2
        assert trace.quality["doubts"] == {RESIZED: 1}


CHAIN = [
    workload("a", admitted("09:00", "10:00", REPLACED), gpus=2, owner=("", "", "")),
    workload(
        "b",
        admitted("10:00", "11:00", REPLACED),
        gpus=4,
        created="09:30",
        owner=("", "", ""),
        annotations={FOR: "ml/a"},
    ),
    workload(
        "c",
        admitted("11:00", "12:00"),
        gpus=8,
        created="10:30",
        owner=("", "", ""),
        annotations={FOR: "ml/b", FIRST: "a"},
    ),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_slices_without_an_owner_are_joined_by_what_they_replace(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    rows = jobs(import_objects(tmp_path / "x", [CHAIN[number] for number in order]))
    assert list(rows) == ["ml/a"]
    assert (rows["ml/a"]["gpus"], gpu_hours(rows["ml/a"])) == (8, 2 + 4 + 8)


def test_slices_that_replace_each_other_end(tmp_path: Path) -> None:
    pair = [
        workload("a", admitted("09:00", "10:00"), owner=("", "", ""), annotations={FOR: "ml/b"}),
        workload("b", admitted("10:00", "11:00"), owner=("", "", ""), annotations={FOR: "ml/a"}),
    ]
    assert len(jobs(import_objects(tmp_path / "x", pair))) == 1


def test_an_old_slice_holds_its_gpus_until_the_new_one_is_admitted(tmp_path: Path) -> None:
    """The log shows the old slice as still admitted, as an export between the two does."""
    slices = [
        workload("el-s1", admitted("09:00"), gpus=4, owner=EL),
        workload(
            "el-s2",
            admitted("10:00", "12:00"),
            gpus=8,
            owner=EL,
            created="09:30",
            annotations={FOR: "ml/el-s1"},
        ),
    ]
    (row,) = jobs(import_objects(tmp_path / "x", slices)).values()
    assert (row["start_time_s"], row["gpus"], gpu_hours(row)) == (3600, 8, 20)


def test_a_slice_that_waits_leaves_the_job_as_it_runs(tmp_path: Path) -> None:
    waits = [condition("QuotaReserved", "09:30", "Pending", holds=False)]
    slices = [
        workload("el-s1", admitted("09:00"), gpus=4, owner=EL),
        workload("el-s2", waits, gpus=8, owner=EL, created="09:30", annotations={FOR: "ml/el-s1"}),
    ]
    trace = import_objects(tmp_path / "x", slices)
    assert hours(trace) == {"ml/el": (4, 0.0, 1.0, None)}
    assert trace.quality["doubts"] == {}
    assert "never started" not in trace.quality["dropped"]


def test_a_workload_that_was_scaled_down_between_exports_is_a_doubt(tmp_path: Path) -> None:
    """Kueue lowers the counts of a workload in its place."""
    states = [
        workload("w", admitted("09:00"), gpus=8, owner=EL),
        workload("w", admitted("09:00"), gpus=2, owner=EL),
        workload("w", admitted("09:00", "11:00"), gpus=2, owner=EL),
    ]
    trace = import_objects(tmp_path / "x", states)
    assert hours(trace) == {"ml/el": (2, 0.0, 1.0, 3.0)}
    assert trace.quality["doubts"] == {RESCALED: 1}


def test_slices_of_one_size_are_no_doubt(tmp_path: Path) -> None:
    slices = [
        workload("el-s1", admitted("09:00", "10:00", REPLACED), owner=EL),
        workload("el-s2", admitted("10:00", "12:00"), owner=EL),
    ]
    trace = import_objects(tmp_path / "x", slices)
    assert hours(trace) == {"ml/el": (8, 0.0, 1.0, 4.0)}
    assert trace.quality["doubts"] == {}


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 9)), min_size=2, max_size=6))
def test_gpu_hours_of_slices_add_up(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    slices, hour = [], 0
    for number, (gpus, length) in enumerate(steps):
        start, hour = hour, hour + length
        ends = REPLACED if number + 1 < len(steps) else "Succeeded"
        begin, end = (f"{10 + each // 24}T{each % 24:02}:00" for each in (start, hour))
        slices.append(
            workload(f"s{number}", admitted(begin, end, ends), gpus=gpus, owner=EL, created="00:00")
        )
    (row,) = jobs(import_objects(tmp_path_factory.mktemp("x") / "x", slices)).values()
    assert gpu_hours(row) == pytest.approx(sum(gpus * length for gpus, length in steps))
    assert row["gpus"] == max(gpus for gpus, _ in steps)


@pytest.mark.parametrize("end", ["10:00", None])
def test_a_workload_that_was_made_anew_is_another_try_of_its_job(
    tmp_path: Path, end: str | None
) -> None:
    """Kueue makes a new workload if the job changed, and deletes or finishes the old one."""
    both = [
        workload("w1", admitted("09:00", end, "OutOfSync"), gpus=4, owner=EL),
        workload("w2", admitted("13:00", "15:00"), gpus=8, owner=EL, created="12:00"),
    ]
    trace = import_objects(tmp_path / "x", both)
    assert hours(trace) == {"ml/el": (8, 0.0, 5.0, 7.0)}
    assert (jobs(trace)["ml/el"]["tries"], trace.quality["doubts"]) == (2, {})


def test_owners_of_one_name_and_groups_of_one_owner_are_jobs_of_their_own(tmp_path: Path) -> None:
    again = [
        workload("w1", admitted("09:00", "10:00"), owner=("Job", "el", "j-1")),
        workload("w2", admitted("13:00", "15:00"), owner=("Job", "el", "j-2"), created="12:00"),
    ]
    assert set(jobs(import_objects(tmp_path / "x", again))) == {"ml/el/u-w1", "ml/el/u-w2"}
    groups = [
        workload(
            f"leaderworkerset-l-{number}",
            admitted("09:00", "10:00"),
            owner=("LeaderWorkerSet", "l", "o"),
        )
        for number in range(2)
    ]
    assert [row["gpus"] for row in jobs(import_objects(tmp_path / "x", groups)).values()] == [8, 8]


def test_variants_of_a_workload_count_once(tmp_path: Path) -> None:
    parent = workload("w", admitted("09:00", "10:00"))
    variant = workload("w-variant-spot", admitted("09:00", "10:00"), owner=("Workload", "w", "u-w"))
    trace = import_objects(tmp_path / "x", [variant, parent])
    assert hours(trace) == {"ml/w": (8, 0.0, 1.0, 2.0)}
    assert trace.quality["dropped"] == {"is a variant of another workload, which counts": 1}


CLEARED = [
    condition("QuotaReserved", "11:00", "Succeeded", holds=False),
    condition("Admitted", "11:00", "NoReservation", holds=False),
]
FINISHED = condition("Finished", "11:00", "Succeeded")
READY = condition("PodsReady", "09:01", "Started")


@pytest.mark.parametrize(
    ("conditions", "run", "doubt"),
    [
        ([*CLEARED, READY, FINISHED], (3660, 7140), READY_START),
        ([*CLEARED, FINISHED], (None, None), NO_START),
        ([CLEARED[0], READY, FINISHED], (3660, 7140), READY_START),
        ([*admitted("09:00", "11:00"), READY], (3600, 7200), ""),
    ],
)
def test_workloads_whose_admission_was_cleared_as_they_finished_ran(
    tmp_path: Path, conditions: list[Json], run: tuple[float | None, float | None], doubt: str
) -> None:
    trace = import_objects(tmp_path / "x", [workload("w", conditions)])
    (row,) = jobs(trace).values()
    assert (row.get("start_time_s"), row["duration_s"]) == run
    assert (row["gpus"], row["status"]) == (8, "Succeeded")
    assert trace.quality["doubts"] == ({doubt: 1} if doubt else {})


@pytest.mark.parametrize(
    "conditions",
    [
        [condition("QuotaReserved", "08:00", "Pending", holds=False), FINISHED],
        [condition("QuotaReserved", "11:00", "Succeeded", holds=False), FINISHED],
        [
            *(each | {"lastTransitionTime": "2026-01-10T10:00:00Z"} for each in CLEARED),
            condition("Evicted", "10:00", "Preempted"),
        ],
        [FINISHED],
    ],
)
def test_workloads_that_were_never_admitted_or_wait_again_did_not_run(
    tmp_path: Path, conditions: list[Json]
) -> None:
    other = workload("other", admitted("09:00", "10:00"))
    trace = import_objects(tmp_path / "x", [workload("w", conditions), other])
    assert list(jobs(trace)) == ["ml/other"]
    assert trace.quality["dropped"] == {"never started": 1}


def test_priorities_of_each_version(tmp_path: Path) -> None:
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    pair = [
        workload(
            "old",
            admitted("09:00", "10:00"),
            version="v1beta1",
            spec={"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io"},
        ),
        workload("new", admitted("09:00", "10:00"), spec={"priorityClassRef": reference}),
        workload("none", admitted("09:00", "10:00")),
    ]
    rows = jobs(import_objects(tmp_path / "x", pair))
    assert [row["qos"] for row in rows.values()] == ["high", "high", None]
