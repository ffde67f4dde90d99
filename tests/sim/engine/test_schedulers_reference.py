"""Schedulers agree with the published simulators, job by job, through the shipped scenario."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command

COLUMNS = (
    "--map",
    "submit_time_s=submit_time",
    "--map",
    "duration_s=duration",
    "--map",
    "gpus=num_gpus",
)

MEANS = {
    ("1k", 256, "fifo"): (13281.23, 7340.25),
    ("1k", 256, "fjf"): (13159.98, 7219.00),
    ("1k", 256, "sjf"): (12452.40, 6511.42),
    ("1k", 256, "dlas-gpu"): (8176.97, 2235.99),
    ("10k", 512, "fifo"): (17740.73, 7249.35),
    ("10k", 512, "fjf"): (17227.95, 6736.56),
    ("10k", 512, "sjf"): (13529.35, 3037.96),
    ("10k", 512, "dlas-gpu"): (11078.56, 587.18),
}
"""Published mean job completion time and mean wait, s, by slice, GPUs and policy."""


def run_pool(inside: Command, shared: Path, size: str, gpus: int, policy: str) -> None:
    file = shared / f"data/philly/slices/philly_{size}.csv"
    inside("traces", "import", "csv", file, "--name", "slice", *COLUMNS)
    settings = ("workload.trace=slice", f"cluster.gpus={gpus}", f"policies.select={policy}")
    inside("run", "scheduler-pool", *(x for s in settings for x in ("--set", s)), "--out", "out")


@pytest.mark.parametrize(("size", "gpus", "policy"), MEANS)
def test_every_job(
    inside: Command, shared: Path, tmp_path: Path, size: str, gpus: int, policy: str
) -> None:
    run_pool(inside, shared, size, gpus, policy)
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    jct_s = jobs["finish_time_s"] - jobs["submit_time_s"]
    wait_s = jct_s - jobs["time_s"]
    assert (round(jct_s.mean(), 2), round(wait_s.mean(), 2)) == MEANS[size, gpus, policy]
    published = shared / f"reference/schedulers/philly_{size}.g{gpus}.{policy}.csv.gz"
    if not published.is_file():
        assert (size, policy) == ("10k", "dlas-gpu"), "only its means are published"
        return
    with gzip.open(published) as file:
        expected = pd.read_csv(file, dtype={"job_id": str}).set_index("job_id")
    found = jobs.set_index("job_id").loc[expected.index]
    assert len(found) == len(expected) == len(jobs)
    np.testing.assert_array_equal(found["start_time_s"], expected["start_time"])
    np.testing.assert_array_equal(found["finish_time_s"], expected["finish_time"])
    if "preempts" in expected:
        np.testing.assert_array_equal(found["preemptions"], expected["preempts"])
