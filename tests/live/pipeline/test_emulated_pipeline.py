"""Pipelines of processes on emulated devices, whose clock does not depend on the host's load."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.live_pipelines import load_results, made_up_table, run_pipeline, start_pipeline
from tests.support.messages import assert_states
from tests.support.processes import until
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.traces.pipelines import read_pipeline

pytestmark = pytest.mark.slow

RANKS, MICROBATCHES, CLOCKS = 3, 4, 11
PROFILING = 2 * CLOCKS
"""Iterations: one that warms up and one that is measured at each clock."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training in which the middle stage is slow for a while."""
    pytest.importorskip("torch")
    pytest.importorskip("scipy")
    folder = tmp_path_factory.mktemp("pipeline")
    run_pipeline(
        folder,
        "--ranks",
        f"{RANKS}",
        "--microbatches",
        f"{MICROBATCHES}",
        "--iterations",
        "45",
        "--tune",
        '{"kind": "perseus", "unit_time_s": 0.005}',
        "--slow",
        "1:6-13:1.4",
    )
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return load_results(folder / "results")


def task_of(profile: PipelineProfile) -> PipelineTask:
    return PipelineTask(profile, PipelineSchedule("1f1b", len(profile.stages), MICROBATCHES))


def plans_of(results: dict[str, Any]) -> list[ClockPlan]:
    return [tuple(map(tuple, plan)) for plan in results["plans"]]


def test_the_profile_is_that_of_the_emulated_devices(folder: Path, results: dict[str, Any]) -> None:
    measured = read_pipeline(folder / "results" / "profile.csv").stages
    for stage, expected in zip(measured, made_up_table(RANKS).stages, strict=True):
        for points, table in zip(stage[:2], expected[:2], strict=True):
            assert len(points) == CLOCKS
            for point, made_up in zip(points, table, strict=True):
                assert point == pytest.approx(made_up, rel=1e-7)
    assert results["blocking_power_w"] == pytest.approx(75, rel=1e-7)
    assert "made up" in results["origin"]


def test_each_instruction_runs_at_the_clock_of_the_plan_in_force(
    folder: Path, results: dict[str, Any]
) -> None:
    graph, plans = task_of(made_up_table(RANKS)).graph, plans_of(results)
    highest = {rank: [1410] * len(graph.positions[rank]) for rank in range(RANKS)}
    for rank, positions in enumerate(graph.positions):
        with (folder / "devices" / f"rank-{rank}" / "gpu-0.log").open() as log:
            rows = list(csv.DictReader(log))
        by_iteration = [
            (number, [int(row["clock_mhz"]) for row in group])
            for number, group in itertools.groupby(rows, lambda row: int(row["iteration"]))
        ]
        assert [int(row["instruction"]) for row in rows[: len(positions)]] == [*positions]
        assert by_iteration[0] == (1, highest[rank])
        assert len(by_iteration) == len(results["iterations"])
        for (number, clocks), record in zip(by_iteration, results["iterations"], strict=True):
            if number <= PROFILING:
                expected = [1410 - 60 * ((number - 1) // 2)] * len(positions)
            else:
                expected = list(plans[record["plan"] - 1][rank])
            assert clocks == expected


def clock_of(folder: Path, rank: int) -> int:
    """What a rank's device is locked to, MHz; 0: it is not."""
    return SyntheticDevice(folder / "devices" / f"rank-{rank}" / "gpu-0").state().clock_mhz


def test_clocks_are_unlocked_at_the_end(folder: Path) -> None:
    assert [clock_of(folder, rank) for rank in range(RANKS)] == [0] * RANKS


def test_an_iteration_takes_the_time_and_energy_of_its_plan(results: dict[str, Any]) -> None:
    task = task_of(made_up_table(RANKS))
    highest = results["iterations"][1]
    assert highest["time_s"] == pytest.approx(task.fastest.time_s)
    assert sum(highest["energy_j"]) == pytest.approx(task.fastest.energy_j)
    expected = task.execute(plans_of(results)[0])
    planned = results["iterations"][PROFILING]
    assert planned["time_s"] == pytest.approx(expected.time_s)
    assert sum(planned["energy_j"]) == pytest.approx(expected.energy_j)
    assert planned["time_s"] < 1.01 * highest["time_s"]
    assert sum(planned["energy_j"]) < 0.95 * sum(highest["energy_j"])


def test_a_stage_that_becomes_slow_changes_the_plan_and_back(results: dict[str, Any]) -> None:
    first, slow, last = plans_of(results)
    assert last == first != slow
    records = [record for record in results["iterations"] if not record["measures"]]
    assert [record["plan"] for record in records[:8]] == [1] * 7 + [2]
    assert records[6]["slow"] == pytest.approx([1, 1.4, 1])
    assert records[7]["slow"] == pytest.approx([1, 1.4, 1])
    before, after = records[6], records[7]
    assert after["time_s"] <= before["time_s"] * 1.001
    assert sum(after["energy_j"]) < 0.98 * sum(before["energy_j"])
    assert records[-1]["plan"] == 3
    assert records[-1]["energy_j"] == pytest.approx(records[0]["energy_j"])


SCENARIO = """
name: recorded
cluster: {{gpu: emulated, gpus: {ranks}, gpus_per_node: {ranks}, idle_power_w: 50}}
workload:
  kind: pipeline
  profile: {profile}
  microbatches: {microbatches}
  iterations: 100
  blocking_power_w: {power_w}
  jobs: [{{name: mlp}}]
  stragglers: {stragglers}
objective: {{eta: 1}}
variants: {{live: {{policies: {{tune: {tune}}}}}}}
baseline: live
"""


def simulate(
    inside: Command, folder: Path, results: dict[str, Any], factors: Sequence[float] = ()
) -> list[tuple[str, str, str]]:
    """What is decided in a simulation of a recording, with stragglers one after the other."""
    stragglers = [
        {"at_s": 10.0 * (number + 1), "job": "mlp", "factor": factor}
        for number, factor in enumerate(factors)
    ]
    schedule = results["schedule"]
    text = SCENARIO.format(
        ranks=schedule["ranks"],
        profile=folder / "profile.csv",
        tune=json.dumps(results["tune"]),
        microbatches=schedule["microbatches"],
        power_w=results["blocking_power_w"],
        stragglers=json.dumps(stragglers),
    )
    Path("recorded.yaml").write_text(text)
    inside("run", "recorded.yaml", "--out", "out")
    rows = pq.read_table("out/decisions.parquet").to_pylist()
    of_policies = [row for row in rows if row["point"] in ("configure", "tune")]
    return [(row["point"], row["policy"], row["chose"]) for row in of_policies]


def decided(results: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What was decided live."""
    return [(row["point"], row["policy"], row["chose"]) for row in results["decisions"]]


def test_a_simulation_of_the_recording_decides_alike(
    folder: Path, results: dict[str, Any], inside: Command
) -> None:
    assert simulate(inside, folder / "results", results) == decided(results)[:2]


def test_the_command_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    page = Path(__file__).resolve().parents[3] / "docs" / "live-pipeline.md"
    line = re.search(r"^\$ python (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    done = subprocess.run(
        [sys.executable, *shlex.split(line[1])],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert len(plans_of(load_results(tmp_path / "results/pipeline"))) == 3
    assert_states(done.stdout, "emulated", "highest clocks", "plan 3", "Results: results/pipeline")


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--ranks", "0"], ["--ranks is 0", "at least 1"]),
        (["--replicas", "-1"], ["--replicas is -1"]),
        (["--microbatches", "0"], ["--microbatches is 0"]),
        (["--iterations", "22"], ["iterations=22", "22 of them"]),
        (["--blocking-power-w", "nan"], ["blocking_power_w=nan", "0 or more"]),
        (["--slow", "1:9"], ["'1:9'", "RANK:FIRST-LAST:FACTOR"]),
        (["--slow", "4:1-2:1.5"], ["'4:1-2:1.5'", "0 to 3"]),
        (["--slow", "1:9-3:1.5"], ["'1:9-3:1.5'", "not after"]),
        (["--slow", "1:1-3:0.5"], ["'1:1-3:0.5'", "above 1"]),
        (["--slow", "1:19-30:1.5"], ["'1:19-30:1.5'", "18 iterations"]),
        (["--tune", "{"], ["'{'", "JSON"]),
        (["--tune", '{"clock_mhz": 3}'], ["no kind"]),
        (["--tune", "nobody"], ["'nobody'", "pipeline-exact"]),
        (["--table", "absent.csv"], ["absent.csv"]),
    ],
)
def test_options_that_are_refused(
    options: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from wattkeeper.live.examples.pipeline import main

    assert main(options) == 2
    assert_states(capsys.readouterr().err, *facts)


def test_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = ["-m", "wattkeeper.live.examples.pipeline", "--ranks=2", "--iterations=24"]
    subprocess.run([*run, *example, "--output=results"], cwd=tmp_path, check=True)
    ran = load_results(tmp_path / "results")
    assert ran["ended"] == "done"
    assert [record["plan"] for record in ran["iterations"]] == [0] * PROFILING + [1] * 2


@pytest.mark.parametrize(("microbatches", "iterations"), [(4, 3), (8, 3)])
def test_the_published_plan_saves_as_much_in_processes(
    microbatches: int, iterations: int, shared: Path, tmp_path: Path
) -> None:
    """BERT on four A40 (Perseus, SOSP '24), emulated from its points; u = 5 ms."""
    pytest.importorskip("torch")
    pytest.importorskip("scipy")
    points = str(shared / "data/perseus/bert_a40_pp4_inst_profile.csv")
    with (shared / "reference/perseus/summary.csv").open() as file:
        row = next(r for r in csv.DictReader(file) if r["microbatches"] == str(microbatches))
    for tune, column in (
        ('{"kind": "perseus", "unit_time_s": 0.005}', "perseus_fast"),
        ("max-power", "maxfreq"),
    ):
        ran = run_pipeline(
            tmp_path / column,
            "--microbatches",
            f"{microbatches}",
            "--iterations",
            f"{iterations}",
            "--table",
            points,
            "--profile",
            points,
            "--blocking-power-w",
            "75.5",
            "--tune",
            tune,
        )
        for record in ran["iterations"]:
            assert record["time_s"] == pytest.approx(float(row[f"{column}_time"]), abs=1e-4)
            assert sum(record["energy_j"]) == pytest.approx(float(row[f"{column}_J"]), abs=0.01)


def test_replicas_wait_for_the_slowest_on_a_slower_plan(tmp_path: Path, inside: Command) -> None:
    """The second of two pipelines is slow for a while, and the first one slows down with it."""
    pytest.importorskip("torch")
    run = start_pipeline(
        tmp_path, "--ranks", "2", "--replicas", "2", "--iterations", "45", "--slow", "3:6-13:1.25"
    )
    _, error = run.communicate(timeout=300)
    assert run.returncode == 0, error
    waiting, slow = (load_results(tmp_path / f"results/replica-{n}") for n in (0, 1))
    first, slower, last = plans_of(waiting)
    assert first == last
    assert sum(map(sum, slower)) < sum(map(sum, first))
    records = [record for record in waiting["iterations"] if not record["measures"]]
    fastest_s = waiting["iterations"][1]["time_s"]
    imposed = max(record["slowdown"] for record in records)
    assert imposed * fastest_s == pytest.approx(records[7]["time_s"], rel=1e-3)
    assert records[5]["pipeline_s"] < 0.9 * records[5]["time_s"], "it waits"
    followed = next(record for record in records if record["plan"] == 2)
    assert followed["pipeline_s"] <= followed["time_s"] == pytest.approx(records[5]["time_s"])
    assert sum(followed["energy_j"]) < 0.9 * sum(records[5]["energy_j"])
    assert len(plans_of(slow)) == 3, "its own slow stage alone moves the slow one"
    chose = [each["chose"] for each in waiting["decisions"]]
    assert [text.startswith("straggler: plan=") for text in chose] == [False, False, True, True]
    simulated = simulate(inside, tmp_path / "results/replica-0", waiting, [imposed, 1.0])
    assert simulated == decided(waiting), "a simulation with the measured factor decides alike"


def test_a_stage_that_is_told_to_stop_ends_the_others(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, ranks = start_endless(tmp_path)
    os.kill(ranks[1], signal.SIGTERM)
    _, error = run.communicate(timeout=60)
    assert run.returncode == 1, error
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert not any(clock_of(tmp_path, rank) for rank in range(3))


def start_endless(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a pipeline that goes on; its process and those of its ranks."""
    run = start_pipeline(folder, "--ranks", "3", "--iterations", "100000")
    log = folder / "devices" / "rank-2" / "gpu-0.log"
    until(lambda: log.exists() and log.read_text().count("\n") > 20)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    ranks = [int(pid) for pid in children.read_text().split()]
    assert len(ranks) == 3
    return run, ranks


def test_a_killed_stage_ends_the_others(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, ranks = start_endless(tmp_path)
    assert all(clock_of(tmp_path, rank) for rank in range(3))
    os.kill(ranks[1], signal.SIGKILL)
    began_s = time.monotonic()
    _, error = run.communicate(timeout=60)
    assert time.monotonic() - began_s < 20
    assert run.returncode == 1
    assert "rank 1 ended with exit code -9" in error
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert load_results(tmp_path / "results")["ended"].startswith("failed")
    until(lambda: not any(clock_of(tmp_path, rank) for rank in range(3)))
