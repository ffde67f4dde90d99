"""Each partition of a log has a queue of its own, in which it is as if it were alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.partition_logs import PartitionJob, draw_jobs, write_log
from wattkeeper.scenarios.log_study.partitions import Partitions, explain_one_queue, find_partitions
from wattkeeper.traces.tables import jobs_table

PARTITIONS = (("short", "a100", 8), ("large", "h100", 16), ("old", "v100", 8))
NODES = {"a100": 1, "h100": 2, "v100": 1}
"""Nodes of 8 GPUs by type."""
STUDIED = ("fifo", "fjf", "easy-backfill", "sjf", "recorded")
OTHERS = ("srtf", "las", "dlas-gpu", "gittins", "fair-share")


def study(
    inside: Command, folder: Path, jobs: Collection[PartitionJob], *types: str, name: str = "all"
) -> str:
    """Study a log of these jobs on the nodes of some GPU types; returns what is said."""
    write_log(folder / "log.txt", jobs)
    groups = [{"gpu": gpu, "count": NODES[gpu], "gpus": 8} for gpu in types or NODES]
    (folder / "nodes.yaml").write_text(yaml.safe_dump({"nodes": groups}), encoding="utf-8")
    said = inside(
        "study", "slurm", "log.txt", "--nodes", "nodes.yaml", "--out", name, "--workers", "1"
    )
    return said.stdout


def scenario_of(folder: Path, name: str = "all") -> dict[str, Any]:
    scenario: dict[str, Any] = yaml.safe_load((folder / name / "scenario.yaml").read_text())
    return scenario


def waits(file: Path, variant: str) -> pd.DataFrame:
    """Wait until the first start and time from it to the end, s, by job; and its preemptions."""
    table = pd.read_parquet(file)
    rows = table[table.variant == variant].set_index("job_id").sort_index()
    return pd.DataFrame(
        {
            "wait_s": rows.start_time_s - rows.submit_time_s,
            "run_s": rows.finish_time_s - rows.start_time_s,
            "preemptions": rows.preemptions,
        }
    )


def test_jobs_of_a_partition_do_not_wait_behind_those_of_another(
    inside: Command, tmp_path: Path
) -> None:
    jobs = [
        PartitionJob(1, "h100", "h100", 16, 0, 36_000, 720),
        PartitionJob(2, "h100", "h100", 16, 60, 7_200, 720),
        PartitionJob(3, "a100", "a100", 4, 120, 3_600, 720),
    ]
    said = study(inside, tmp_path, jobs, "a100", "h100")
    assert_states(said, "2 queues", "a100 (a100); h100 (h100)")
    for variant in ("fifo", "easy-backfill", "fjf"):
        found = waits(tmp_path / "all/results/jobs.parquet", variant)["wait_s"]
        assert found.tolist() == [0, 35_940, 0]


@pytest.mark.parametrize("count", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_three_partitions_are_as_each_alone(inside: Command, tmp_path: Path, count: int) -> None:
    jobs = draw_jobs(PARTITIONS, count)
    study(inside, tmp_path, jobs)
    partitions = {name: [gpu] for name, gpu, _ in PARTITIONS}
    assert scenario_of(tmp_path)["cluster"]["partitions"] == partitions
    more = {name: {"policies": {"select": name}} for name in OTHERS}
    for part, gpu, _ in PARTITIONS:
        study(inside, tmp_path, [job for job in jobs if job.partition == part], gpu, name=part)
        assert "partitions" not in scenario_of(tmp_path, part)["cluster"]
    for name in ("all", *partitions):
        scenario = scenario_of(tmp_path, name)
        scenario |= {"variants": more, "baseline": OTHERS[0]}
        (tmp_path / name / "others.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
        inside("run", f"{name}/others.yaml", "--out", f"{name}/others")
    for variant in (*STUDIED, *OTHERS):
        tables = "others" if variant in OTHERS else "results"
        together = waits(tmp_path / f"all/{tables}/jobs.parquet", variant)
        assert len(together) == count
        for part in partitions:
            alone = waits(tmp_path / f"{part}/{tables}/jobs.parquet", variant)
            assert (alone.wait_s.mean() > 300) or variant not in ("fifo", "fjf", "easy-backfill")
            assert alone.preemptions.any() == (variant in ("srtf", "las", "dlas-gpu", "gittins"))
            pd.testing.assert_frame_equal(together.loc[alone.index], alone, check_exact=True)


def test_partitions_with_nodes_of_one_type_share_a_queue(inside: Command, tmp_path: Path) -> None:
    """The jobs of `debug` and `a100` run on the same nodes; a partition of all types joins all."""
    jobs = [
        PartitionJob(1, "a100", "a100", 8, 0, 3_600, 720),
        PartitionJob(2, "a100", "a100", 8, 60, 3_600, 720),
        PartitionJob(3, "debug", "a100", 1, 120, 60, 10),
        PartitionJob(4, "h100", "h100", 16, 180, 3_600, 720),
    ]
    said = study(inside, tmp_path, jobs, "a100", "h100")
    assert_states(said, "2 queues", "a100, debug (a100); h100 (h100)")
    found = waits(tmp_path / "all/results/jobs.parquet", "fifo")["wait_s"]
    assert found.tolist() == [0, 3_540, 7_080, 0]
    every = [PartitionJob(5, "every", gpu, 1, 240, 60, 10) for gpu in ("a100", "h100")]
    said = study(
        inside,
        tmp_path,
        [*jobs, every[0], every[1]._replace(number=6)],
        "a100",
        "h100",
        name="joined",
    )
    assert "queues" not in said
    assert "partitions" not in scenario_of(tmp_path, "joined")["cluster"]


def test_jobs_without_a_type_run_on_the_nodes_of_their_partition(
    inside: Command, tmp_path: Path
) -> None:
    """Where none of a partition names a type, all jobs wait in one queue, which is said."""
    jobs = [
        PartitionJob(1, "h100", "h100", 16, 0, 36_000, 720),
        PartitionJob(2, "h100", "", 8, 60, 7_200, 720),
        PartitionJob(3, "a100", "a100", 4, 120, 3_600, 720),
        PartitionJob(4, "a100", "", 4, 180, 3_600, 720),
    ]
    said = study(inside, tmp_path, jobs, "a100", "h100")
    assert_states(said, "2 jobs of the log name no GPU type, and run on those of their partition")
    file = tmp_path / "all/results/jobs.parquet"
    assert waits(file, "fifo")["wait_s"].tolist() == [0, 35_940, 0, 0]
    types = pd.read_parquet(file).groupby("job_id")["gpu_type"].unique()
    assert [list(each) for each in types] == [["h100"], ["h100"], ["a100"], ["a100"]]
    more = PartitionJob(5, "debug", "", 1, 240, 60, 10)
    said = study(inside, tmp_path, [*jobs, more], "a100", "h100", name="unknown")
    assert_states(said, "3 jobs of the log name no GPU type, and run on any", "wait in one queue")
    assert "partitions" not in scenario_of(tmp_path, "unknown")["cluster"]
    (tmp_path / "sinfo.txt").write_text(
        "PARTITION|TIMELIMIT|GRES\na100*|1-00:00:00|gpu:a100:8\nh100|1-00:00:00|gpu:h100:8\n"
        "debug|1:00:00|gpu:a100:8\n",
        encoding="utf-8",
    )
    inside(
        "study",
        "slurm",
        "log.txt",
        "--nodes",
        "nodes.yaml",
        "--out",
        "stated",
        "--workers",
        "1",
        "--partitions",
        "sinfo.txt",
    )
    stated = {"a100": ["a100"], "debug": ["a100"], "h100": ["h100"]}
    assert scenario_of(tmp_path, "stated")["cluster"]["partitions"] == stated


def test_a_pool_has_one_queue(inside: Command, tmp_path: Path) -> None:
    jobs = [job._replace(gpu_type="a100", gpus=1) for job in draw_jobs(PARTITIONS, 20)]
    study(inside, tmp_path, jobs, "a100")
    assert "partitions" not in scenario_of(tmp_path)["cluster"]
    nameless = [job._replace(partition="") for job in draw_jobs(PARTITIONS, 20)]
    study(inside, tmp_path, nameless, name="nameless")
    assert "partitions" not in scenario_of(tmp_path, "nameless")["cluster"]


@pytest.mark.parametrize(
    ("jobs", "found"),
    [
        # A type that nobody names is where jobs run that name none.
        ([("gpu", "a100"), ("gpu", None)], {}),
        (
            [("gpu", "a100"), ("gpu", None), ("x", "v100")],
            {"gpu": ("a100", "h100"), "x": ("v100",)},
        ),
        # One that no node has does not make a partition vanish.
        ([("y", "k80"), ("y", None), ("x", "a100")], {}),
        (
            [("y", "v100"), ("x", "a100"), ("x", "k80"), ("z", "h100")],
            {"x": ("a100",), "y": ("v100",), "z": ("h100",)},
        ),
    ],
)
def test_types_of_a_partition_are_those_on_which_its_jobs_can_run(
    jobs: Sequence[tuple[str, str | None]], found: Partitions
) -> None:
    table = jobs_table(
        {
            "job_id": [str(number) for number in range(len(jobs))],
            "submit_time_s": [0.0] * len(jobs),
            "duration_s": [1.0] * len(jobs),
            "gpus": [1] * len(jobs),
            "queue": [queue for queue, _ in jobs],
            "gpu_type": [gpu for _, gpu in jobs],
        }
    )
    assert find_partitions(table, ("a100", "h100", "v100")) == found


def table_of(*rows: tuple[str, str | None, float]) -> pa.Table:
    """Jobs by partition, GPU type and duration, s."""
    return jobs_table(
        {
            "job_id": [str(number) for number in range(len(rows))],
            "submit_time_s": [0.0] * len(rows),
            "duration_s": [row[2] for row in rows],
            "gpus": [1] * len(rows),
            "queue": [row[0] for row in rows],
            "gpu_type": [row[1] for row in rows],
        }
    )


def test_a_stray_job_does_not_join_the_queues_of_two_partitions() -> None:
    """It asks for a type of another partition; where that is no accident, a note says why."""
    types = ("a100", "h100")
    most = [("a", "a100", 900.0), ("h", "h100", 900.0)]
    stray = table_of(*most, ("h", "a100", 10.0))
    assert find_partitions(stray, types) == {"a": ("a100",), "h": ("h100",)}
    often = table_of(*most, ("h", "a100", 100.0))
    assert find_partitions(often, types) == {}
    assert_states(explain_one_queue(often, types), "one queue", "a100 (a, h)")
    assert not explain_one_queue(table_of(most[0]), types)
    untyped = table_of(*most, ("x", None, 900.0))
    assert_states(explain_one_queue(untyped, types), "one queue", "name no GPU type")
