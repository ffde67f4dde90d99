"""Profiles from step times and learning curves of Pollux."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.traces.formats.pollux import CONSTANTS

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,64,0.5,0.1
1,16,0.2,0.0
2,32,0.3,0.1
2,64,0.5,0.2
3,64,0.5,0.2
11,16,9,1
"""
CURVE = "progress,iteration,metric\n391,300,0.5\n782,{last},0.95\n"
TWO_ROWS = CURVE.format(last=782)
FILES = {
    "cifar10/placements.csv": PLACEMENTS,
    "cifar10/scalability.csv": "not read",
    "cifar10/validation-32.csv": CURVE.format(last=1563),
    "cifar10/validation-128.csv": TWO_ROWS,
    "cifar10/validation-256.csv": CURVE.format(last=400).replace("0.95", "0.9399"),
    "deepspeech2/placements.csv": PLACEMENTS,
    "deepspeech2/validation-64.csv": "iteration,metric\n111,30\n112,25\n113,20\n",
    "yolov3/placements.csv": PLACEMENTS,
    "yolov3/validation-16.csv": "iteration,metric\n1034,9\n2070,8\n3000,7\n",
    "yolov3/validation-32.csv": "iteration,metric\n1000,9\n1100,8\n",
    "philly.csv": "not read",
}


def write(root: Path, files: Mapping[str, str] = FILES) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(root: Path, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(root / f"{table}.parquet").to_pylist()
    return rows


def test_step_times_become_times_of_an_epoch(tmp_path: Path, inside: Command) -> None:
    said = inside("traces", "import", "pollux", write(tmp_path / "traces")).stdout
    rows = read(tmp_path / "library/pollux", "profiles")
    assert {row["gpu_type"] for row in rows} == {"T4"}
    assert not any(row["power_limit_w"] or row["average_power_w"] for row in rows)
    step_s = {
        (row["gpus"], row["batch_size"]): row["time_per_epoch_s"] * row["batch_size"] / 50_000  # type: ignore[operator]
        for row in rows
        if row["workload"] == "cifar10"
    }
    # A third of the way from 16 to 64; two and four parts of 64, of which the last synchronises;
    # 64 on each of two; two parts of 64 on each of two. Two GPUs measured nothing below 32 each,
    # and three share none of the batch sizes evenly.
    assert step_s == pytest.approx(
        {(1, 32): 0.3, (1, 128): 0.5 + 0.4, (1, 256): 0.5 + 3 * 0.4, (2, 128): 0.5, (2, 256): 0.8}
    )
    assert_states(
        said, "No power", "yolov3", "smaller than any measured one: cifar10 32 on 2, yolov3 16 on 2"
    )


def test_curves_become_epochs(tmp_path: Path, inside: Command) -> None:
    inside("traces", "import", "pollux", write(tmp_path / "traces"))
    library = tmp_path / "library/pollux"
    epochs = {
        (row["workload"], row["batch_size"]): (row["target"], row["epochs"])
        for row in read(library, "convergence")
    }
    assert epochs == {
        ("cifar10", 32): (0.94, 1),  # step 1,563 begins at sample 49,984
        ("cifar10", 128): (0.94, 2),  # step 391 at 49,920, step 782 at 99,968
        ("cifar10", 256): (0.94, None),
        ("deepspeech2", 64): (25.0, 1),  # an error falls; step 112 at 7,104
        ("yolov3", 16): (2.0, 3),  # row 2, the end of the shortest curve; step 2,070 at 33,104
        ("yolov3", 32): (2.0, 3),
    }
    workloads = {row.pop("workload"): row for row in read(library, "workloads")}
    assert workloads["cifar10"] == {
        "dataset": "cifar10",
        "network": "resnet18",
        "optimizer": "sgd",
        "target": 0.94,
        "higher_is_better": True,
        "max_epochs": 3,  # of batch size 256
        "default_batch_size": 32,
        "samples_per_epoch": 50_000,
    }


def test_files_folders_and_the_whole_are_the_same(tmp_path: Path, inside: Command) -> None:
    root = write(tmp_path / "traces")
    names = [name for name in FILES if name.count("/") and "scalability" not in name]
    folders = [root / name for name in ("cifar10", "deepspeech2", "yolov3")]
    given = {"whole": [root], "folders": folders, "files": [root / name for name in names]}
    for name, paths in given.items():
        inside("traces", "import", "pollux", *paths, "--name", name)
        for table in ("profiles", "convergence", "workloads"):
            rows = read(tmp_path / "library" / name, table)
            assert rows == read(tmp_path / "library/whole", table)


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("resnet/placements.csv", PLACEMENTS, "'resnet'|bert, cifar10"),
        ("bert/placements.csv", PLACEMENTS, "bert: has placements.csv|validation-<batch size>.csv"),
        ("bert/validation-12.csv", TWO_ROWS, "bert: has validation-12.csv|needs placements.csv"),
        ("cifar10/validation-0.csv", TWO_ROWS, "validation-0.csv: is not one of placements.csv"),
        ("cifar10/placements.csv", PLACEMENTS + "4,8,1,1\n", "row 7: sync_time is 1.0|step_time"),
        ("cifar10/placements.csv", PLACEMENTS + "1,16,1,0\n", "row 7: repeats row 2"),
        ("cifar10/placements.csv", PLACEMENTS + "1,8,0,0\n", "row 7: step_time is 0.0"),
        ("cifar10/validation-32.csv", "iteration,metric\n5,1\n4,1\n", "row 2: iteration is 4|(5)"),
        ("cifar10/validation-32.csv", "iteration,metric\n5,nan\n", "row 1: metric"),
        ("cifar10/validation-9999999.csv", "iteration,metric\n1,1\n99999,1\n", "row 2|1000000"),
        ("cifar10/validation-32.csv", "steps,metric\n5,1\n", "validation-32.csv|iteration"),
    ],
)
def test_wrong_files(tmp_path: Path, inside: Command, name: str, text: str, facts: str) -> None:
    root = write(tmp_path / "traces", {**FILES, name: text})
    said = inside("traces", "import", "pollux", root, code=2).stderr
    assert_states(said, *facts.split("|"))


def test_nothing_to_replay(tmp_path: Path, inside: Command) -> None:
    several = "placement,local_bsz,step_time,sync_time\n12,16,9,1\n"
    write(tmp_path / "traces", {"bert/placements.csv": several, "bert/validation-12.csv": TWO_ROWS})
    (tmp_path / "empty").mkdir()
    for paths, facts in (
        (["traces"], ("traces", "one node")),
        (["empty"], ("empty", "no folder of a workload")),
        (["traces", "traces/bert"], ("a second placements.csv of 'bert'",)),
    ):
        said = inside("traces", "import", "pollux", *paths, code=2).stderr
        assert_states(said, *facts)


def test_the_recorded_curves_count_the_samples_of_an_epoch(
    tmp_path: Path, shared: Path, inside: Command
) -> None:
    """A row of the initial batch size is an epoch."""
    inside("traces", "import", "pollux", shared / "data/pollux")
    for row in read(tmp_path / "library/pollux", "workloads"):
        workload, batch_size = row["workload"], row["default_batch_size"]
        curve = (shared / f"data/pollux/{workload}/validation-{batch_size}.csv").read_text()
        *_, last = rows = curve.splitlines()[1:]
        steps = len(rows) * CONSTANTS[str(workload)].samples_per_epoch / int(str(batch_size))
        assert abs(int(last.split(",")[1]) - steps) < 1.5, workload


def test_the_recorded_traces_replay(tmp_path: Path, shared: Path, inside: Command) -> None:
    """Policies for recurring jobs find the optimum of each workload; the oracle begins with it."""
    inside("traces", "import", "pollux", shared / "data/pollux")
    (tmp_path / "pollux.yaml").write_text(
        "name: pollux\n"
        "cluster: {gpu: T4, gpus: 12, gpus_per_node: 2, idle_power_w: 12}\n"
        "workload: {kind: recurring, profiles: pollux, recurrences: 40, gpus: 2}\n"
        "objective: {eta: 0}\n"
        "variants:\n"
        "  default: {}\n"
        "  zeus: {policies: {configure: zeus, tune: zeus-jit}}\n"
        "  frugal: {policies: {configure: frugal}}\n"
        "  oracle: {policies: {configure: oracle}}\n"
        "baseline: default\n"
    )
    inside("validate", "pollux.yaml")
    assert "Nothing measured energy" in inside("run", "pollux.yaml", "--out", "out").stdout
    jobs = pq.read_table(tmp_path / "out/jobs.parquet").to_pandas()
    assert set(jobs["workload"]) == set(CONSTANTS)
    time_s = jobs.groupby(["variant", "workload"])["time_s"].sum().unstack("workload")
    assert (time_s >= time_s.loc["oracle"] - 1e-6).all().all()
    assert (time_s.loc["oracle"] <= time_s.loc["default"]).all()
    assert time_s.loc["frugal"].sum() < time_s.loc["zeus"].sum()
