"""Who pays with time: differences to the baseline by size, queue and user."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from wattkeeper.scenarios.analysis.times.job_times import compare_times

JOBS = pa.table(
    {
        "job_id": ["a", "b", "c", "d"],
        "submit_time_s": [0.0, 10.0, 20.0, 30.0],
        "gpus": pa.array([1, 1, 16, 16], pa.int32()),
        "queue": ["x", "x", "y", "y"],
        "user": ["u", "v", "v", None],
        "serves": pa.nulls(4, pa.int32()),
    }
)
BASELINES = {"usual": "usual", "slow": "usual"}


def attempts(ends: dict[str, list[float]]) -> pa.Table:
    rows = [(job, end) for job, times in ends.items() for end in times]
    return pa.table({"job_id": [job for job, _ in rows], "finish_time_s": [end for _, end in rows]})


USUAL = attempts({"a": [100.0], "b": [110.0], "c": [120.0], "d": [130.0]})
SLOW = attempts({"d": [40.0, 430.0], "c": [150.0], "b": [110.0], "a": [90.0]})
"""d was preempted: the time goes on until its last attempt ends."""


def test_extra_times_by_size_queue_and_user() -> None:
    times = compare_times(JOBS, {"usual": USUAL, "slow": SLOW}, BASELINES)
    assert times is not None
    extra = {part["part"]: part["runs"]["slow"]["extra_mean_s"] for part in times["parts"]}
    assert extra == {"": 80.0, "1 GPU": -5.0, "9 to 64 GPUs": 165.0, "x": -5.0, "y": 165.0}
    whole = times["parts"][0]["runs"]
    assert whole["usual"] == {
        "mean_s": 100.0,
        "p95_s": 100.0,
        "extra_mean_s": 0.0,
        "extra_p95_s": 0.0,
    }
    assert whole["slow"]["p95_s"] == pytest.approx(130 + 0.85 * 270)
    assert times["owner"] == "user"
    assert times["losers"] == {"slow": [{"name": "v", "jobs": 2, "extra_s": 30.0}]}


@pytest.mark.parametrize(("users", "owner"), [([None] * 4, "account"), (["w"] * 4, "user")])
def test_accounts_stand_for_users(users: list[Any], owner: str) -> None:
    jobs = JOBS.set_column(4, "user", pa.array(users, pa.string()))
    jobs = jobs.append_column("account", pa.array(["g"] * 4))
    times = compare_times(jobs, {"usual": USUAL, "slow": SLOW}, BASELINES)
    assert times is not None
    assert times["owner"] == owner
    assert [(loser["jobs"], loser["extra_s"]) for loser in times["losers"]["slow"]] == [(4, 320.0)]


def test_only_jobs_of_all_variants_count() -> None:
    part = SLOW.slice(0, 3)  # c and d alone
    times = compare_times(JOBS, {"usual": USUAL, "slow": part}, BASELINES)
    assert times is not None
    assert times["parts"][0]["jobs"] == 2
    assert compare_times(JOBS, {"slow": SLOW}, BASELINES) is None
    assert compare_times(JOBS, {"usual": USUAL}, BASELINES) is None
    assert compare_times(JOBS, {"usual": USUAL, "slow": SLOW.slice(0, 0)}, BASELINES) is None
