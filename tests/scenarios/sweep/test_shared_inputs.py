"""What a sweep reads once for all its points and workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.trace import Trace

SCENARIO = """\
name: pool
cluster: {gpu: GPU, gpus: 64, gpus_per_node: 8, idle_power_w: 50, busy_power_w: 250}
workload: {kind: trace, trace: a, gpu_types: ignore}
variants: {fifo: {}, sjf: {policies: {select: sjf}}}
baseline: fifo
seeds: 2
"""


@pytest.fixture
def pool(inside: Command, tmp_path: Path) -> Command:
    """`inside` with a scenario and two traces."""
    for seed, name in enumerate("ab", start=1):
        inside(
            "traces",
            "generate",
            "jobs",
            "--jobs",
            "20",
            "--load",
            "0.9",
            "--gpus",
            "64",
            "--seed",
            str(seed),
            "--name",
            name,
        )
    (tmp_path / "pool.yaml").write_text(SCENARIO)
    return inside


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_trace_is_read_once_for_a_sweep(
    pool: Command, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its points have inputs of their own, and those with one trace do not follow."""
    reads: Counter[str] = Counter()
    read = folders._read

    def count(folder: Path) -> Trace:
        reads[folder.name] += 1
        return read(folder)

    monkeypatch.setattr(folders, "_read", count)
    axes = ("--sweep", "cluster.gpus=64,72,80", "--sweep", "workload.trace=a,b")
    pool(command, "pool.yaml", *axes)
    assert reads == {"a": 1, "b": 1}
    pool(command, "pool.yaml", *axes, *(("--out", "other") if command == "run" else ()))
    assert reads == {"a": 2, "b": 2}  # nothing is kept for another command


@pytest.mark.slow  # `test_what_a_sweep_leaves_behind` compares one process with workers, too
def test_workers_need_no_traces(pool: Command, tmp_path: Path) -> None:
    """They get their inputs from one file, and results are those of one process."""
    axes = ("--sweep", "cluster.gpus=64,72")
    pool("run", "pool.yaml", *axes, "--out", "one")
    pool("run", "pool.yaml", *axes, "--out", "two", "--workers", "2")
    for point in ("0001", "0002"):
        for name in ("jobs.parquet", "summary.json"):
            paths = [tmp_path / folder / "points" / point / name for folder in ("one", "two")]
            assert paths[0].read_bytes() == paths[1].read_bytes()


def test_small_runs_share_a_row_group(pool: Command, tmp_path: Path) -> None:
    pool("run", "pool.yaml", "--out", "runs")
    for name in ("jobs", "decisions", "timeline", "metrics"):
        assert pq.read_metadata(tmp_path / "runs" / f"{name}.parquet").num_row_groups == 1
