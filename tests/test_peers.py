"""The peers of the benchmark do wattkeeper's work: all make its schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.peers import simpy_callbacks, simpy_processes
from benchmarks.peers.work import Work, read_work, write_work
from tests.conftest import Command

GPUS = 16


@pytest.fixture
def work() -> Work:
    rng = np.random.default_rng(1)
    demand, run_s = rng.integers(1, 9, 150), rng.integers(1, 600, 150)
    submit_s = np.sort(rng.integers(0, int((demand * run_s).sum() / GPUS), 150))
    submit_s -= submit_s[0]
    return Work(GPUS, submit_s.tolist(), run_s.tolist(), demand.tolist())


@pytest.mark.parametrize("simulate", [simpy_callbacks.simulate, simpy_processes.simulate])
def test_peers_make_the_same_schedule(
    work: Work, inside: Command, tmp_path: Path, simulate: Callable[[Work], Sequence[float]]
) -> None:
    write_work(tmp_path / "work.csv", work)
    assert tuple(map(list, read_work(tmp_path / "work.csv", GPUS)[1:])) == work[1:]
    inside("traces", "import", "csv", "work.csv", "--name", "work")
    inside(
        "run",
        "scheduler-pool",
        "--set",
        "workload.trace=work",
        "--set",
        f"cluster.gpus={GPUS}",
        "--out",
        "out",
    )
    rows = pq.read_table(tmp_path / "out/jobs.parquet").sort_by("start_time_s")
    starts = dict(zip(rows["job_id"].to_pylist(), rows["start_time_s"].to_pylist(), strict=True))
    found = simulate(work)
    assert [starts[str(number)] for number in range(len(found))] == list(found)
    assert sum(found) > sum(work.submit_s), "some wait"
