"""Jobs of plain traces get workloads: the best clusters, in order, deviations kept."""

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.mapping import cluster_means, map_workloads
from wattkeeper.traces.schema import JOBS
from wattkeeper.traces.tables import jobs_table, validate

MEANS = {"long": 900.0, "short": 10.0, "middle": 60.0}
CHANGED = {"workload", "group_id", "time_scale"}


def spread(values: np.ndarray, clusters: np.ndarray) -> float:
    parts = (values[clusters == n] for n in np.unique(clusters))
    return float(sum(((part - part.mean()) ** 2).sum() for part in parts))


def least_spread(values: np.ndarray, k: int) -> float:
    """Over all ways to cut the sorted values."""
    values = np.sort(values)
    n = len(values)
    return min(
        sum(float(((part - part.mean()) ** 2).sum()) for part in np.split(values, cuts))
        for cuts in combinations(range(1, n), min(k, n) - 1)
    )


@given(st.lists(st.integers(0, 60) | st.floats(0, 1e5), min_size=1, max_size=11), st.integers(1, 5))
def test_the_clusters_are_the_best(values: list[float], k: int) -> None:
    means = np.array(values, dtype=float)
    found = cluster_means(means, k)
    best = least_spread(means, k)
    assert spread(means, found) <= best + 1e-9 * (1 + float((means**2).sum()))
    assert set(found.tolist()) == set(range(min(k, len(set(values)))))
    ordered = found[np.argsort(means)]
    assert (np.diff(ordered) >= 0).all()
    assert all(len(set(found[means == value].tolist())) == 1 for value in means)


def test_groups_are_nearest_to_their_own_cluster_mean() -> None:
    rng = np.random.default_rng(1)
    means = np.concatenate([rng.lognormal(at, 0.3, 20_000) for at in (3, 5, 7, 9)])
    found = cluster_means(means, 4)
    centres = np.array([means[found == n].mean() for n in range(4)])
    nearest = np.abs(means[:, None] - centres).argmin(axis=1)
    assert (nearest == found).all()  # no value is nearer to another centre: a fixed point


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_clusters_of_hundreds_against_the_plain_recurrence(k: int) -> None:
    values = np.sort(np.random.default_rng(k).lognormal(6, 2, 120))
    costs = {
        (i, j): spread(values[i : j + 1], np.zeros(j - i + 1))
        for j in range(120)
        for i in range(j + 1)
    }
    best = [costs[0, j] for j in range(120)]
    for _ in range(k - 1):
        best = [
            min([best[j]] + [best[i - 1] + costs[i, j] for i in range(1, j + 1)])
            for j in range(120)
        ]
    assert spread(values, cluster_means(values, k)) == pytest.approx(best[-1], rel=1e-9)


row = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ann", "bob", "a, user=b", None]),
        "queue": st.sampled_from(["q1", "q2"]),
        "gpus": st.sampled_from([1, 2, 8]),
        "gpu_milli": st.sampled_from([1000, 1000, 1000, 500]),
        "duration_s": st.none() | st.sampled_from([0.0, 1.0, 30.0]) | st.floats(1e-3, 1e6),
        "time_scale": st.sampled_from([1.0, 2.0]),
    }
)


def table(rows: list[dict]) -> pa.Table:
    columns = {name: [row.get(name) for row in rows] for name in rows[0]} if rows else {}
    return jobs_table(
        columns
        | {
            "job_id": [f"j{n}" for n in range(len(rows))],
            "submit_time_s": [float(97 * n % 31) for n in range(len(rows))],
        }
    )


def can_be_mapped(job: dict, by: list[str]) -> bool:
    ready = job["gpus"] in (1, 2) and job["gpu_milli"] == 1000 and job["duration_s"]
    return bool(ready and all(job[name] for name in by))


@given(st.lists(row, min_size=1, max_size=40), st.sampled_from([["user"], ["queue", "gpus"]]))
def test_invariants_of_mappings(rows: list[dict], by: list[str]) -> None:
    jobs = table(rows)
    if not any(can_be_mapped(job, by) for job in rows):
        with pytest.raises(InputError, match="no job can be given a workload"):
            map_workloads(jobs, MEANS, by, {1, 2})
        return
    done = map_workloads(jobs, MEANS, by, {1, 2})
    validate(done.jobs, JOBS, "mapped")
    assert done.jobs.drop_columns(list(CHANGED)).equals(jobs.drop_columns(list(CHANGED)))
    again = map_workloads(jobs, dict(reversed(MEANS.items())), by, [2, 1])
    assert again.jobs.equals(done.jobs)
    assert again.table == done.table

    kept = map_workloads(jobs, MEANS, by, {1, 2}, keep=True)
    assert kept.table == done.table
    for job in kept.jobs.to_pylist():
        if job["workload"] is not None:
            seconds = job["time_scale"] * MEANS[job["workload"]]
            assert seconds == pytest.approx(job["duration_s"], rel=1e-12)
    others = kept.jobs.drop_columns(["time_scale"])
    assert others.equals(done.jobs.drop_columns(["time_scale"]))

    after = done.jobs.to_pylist()
    groups: dict[str, list[dict]] = {}
    for before, job in zip(jobs.to_pylist(), after, strict=True):
        assert (job["workload"] is not None) == can_be_mapped(before, by)
        if job["workload"] is None:
            assert job == before
        else:
            groups.setdefault(job["group_id"], []).append(job)
    for group in groups.values():
        assert np.mean([job["time_scale"] for job in group]) == pytest.approx(1, abs=1e-9)
        assert len({job["workload"] for job in group}) == 1
        assert len({tuple(job[name] for name in by) for job in group}) == 1
        mean = np.mean([job["duration_s"] for job in group])
        for job in group:
            assert job["time_scale"] * mean == pytest.approx(job["duration_s"], rel=1e-9)
    ready_keys = {tuple(job[name] for name in by) for job in after if job["workload"]}
    assert len(groups) == len(ready_keys)

    assert sum(each["jobs"] for each in done.table) == sum(map(len, groups.values()))
    assert sum(each["groups"] for each in done.table) == len(groups)
    assert sum(done.left_out.values()) == len(rows) - sum(map(len, groups.values()))
    times = [(each["cluster_mean_s"], each["workload_mean_s"]) for each in done.table]
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(times))
    assert [each["workload"] for each in done.table] == ["short", "middle", "long"][: len(times)]


def test_recorded_groups_go_before_columns() -> None:
    jobs = table(
        [
            {"group_id": "a", "user": "u", "gpus": 1, "duration_s": 10.0},
            {"group_id": "a", "user": "v", "gpus": 1, "duration_s": 30.0},
            {"group_id": "b", "user": "u", "gpus": 1, "duration_s": 5000.0},
            {"group_id": None, "user": "u", "gpus": 1, "duration_s": 5000.0},
            {"group_id": "b", "user": "u", "gpus": 4, "duration_s": 5000.0},
            {"group_id": "b", "user": "u", "gpus": 1, "duration_s": 0.0},
            {"group_id": "b", "user": "u", "gpus": 1, "duration_s": None},
        ]
    )
    done = map_workloads(jobs, MEANS, ["user"], [1])
    assert done.jobs["workload"].to_pylist() == ["short", "short", "middle"] + [None] * 4
    assert done.jobs["time_scale"].to_pylist() == [0.5, 1.5, 1, 1, 1, 1, 1]
    assert done.jobs["group_id"].equals(jobs["group_id"])
    assert done.table == (
        {
            "workload": "short",
            "groups": 1,
            "jobs": 2,
            "cluster_mean_s": 20.0,
            "workload_mean_s": 10.0,
        },
        {
            "workload": "middle",
            "groups": 1,
            "jobs": 1,
            "cluster_mean_s": 5000.0,
            "workload_mean_s": 60.0,
        },
    )
    assert done.left_out == {
        "on a number of GPUs without profiles (there are: 1)": 1,
        "without a recorded duration": 1,
        "of no duration": 1,
        "without group_id": 1,
    }


def test_wrong_arguments_are_refused() -> None:
    jobs = table([{"user": "u", "queue": None, "gpus": 1, "duration_s": 10.0}])
    for args, text in (
        ((jobs, MEANS, [], [1]), "name columns to group jobs by; allowed are user, queue"),
        ((jobs, MEANS, ["job_id"], [1]), "cannot be grouped by job_id"),
        ((jobs, MEANS, ["user", "user"], [1]), "each once"),
        ((jobs, {}, ["user"], [1]), "no workloads"),
        ((jobs, {"w": 0.0}, ["user"], [1]), "'w' is 0.0, must be > 0"),
        ((jobs, {"w": float("nan")}, ["user"], [1]), "must be > 0"),
        ((jobs, MEANS, ["user"], []), "1 on a number of GPUs without profiles .there are: none"),
        ((jobs, MEANS, ["queue"], [1]), "1 without queue"),
        ((map_workloads(jobs, MEANS, ["user"], [1]).jobs, MEANS, [], [1]), "already have"),
    ):
        with pytest.raises(InputError, match=text):
            map_workloads(*args)


def test_a_recorded_cluster(shared: Path) -> None:
    file = pacsv.read_csv(shared / "data/philly/philly.csv", pacsv.ReadOptions(use_threads=False))
    rows = file.num_rows
    jobs = jobs_table(
        {
            "job_id": pa.array([str(n) for n in range(rows)]),
            "queue": file["cluster"],
            "submit_time_s": pa.array(np.arange(rows, dtype=float)),
            "duration_s": file["duration"].cast(pa.float64()),
            "gpus": file["num_gpus"].cast(pa.int32()),
        }
    )
    done = map_workloads(jobs, MEANS, ["queue", "gpus"], [1])
    assert sum(each["jobs"] for each in done.table) + sum(done.left_out.values()) == rows
    assert done.jobs["workload"].null_count == sum(done.left_out.values())
    assert [each["workload"] for each in done.table] == ["short", "middle", "long"]
