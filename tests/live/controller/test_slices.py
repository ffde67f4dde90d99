"""Slices of live runs whose processes are killed: the run goes on, and nothing counts twice."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    decisions,
    environment,
    kill,
    manifest,
    processes,
    rows,
    run,
    scenario,
)
from tests.support.messages import assert_states
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

FRUGAL = {"variants": {"zeus": {"policies": {"configure": "frugal"}}}}


def logged(folder: Path) -> list[tuple[str, int, str, dict[str, Any]]]:
    """The events of the log of a live run: job, attempt, kind and payload."""
    (path,) = folder.glob("live.live/**/log.sqlite")
    query = "SELECT job_id, attempt, kind, payload FROM events ORDER BY number"
    with closing(sqlite3.connect(path)) as db:
        events = db.execute(query).fetchall()
    return [(job_id, attempt, kind, json.loads(text)) for job_id, attempt, kind, text in events]


@pytest.mark.slow
def test_slices_go_on_after_kills(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED | FRUGAL, workloads=["image"], recurrences=4)
    rng, code = random.Random(5), None
    killed = Counter[str]()
    while code != 0:
        assert code in {None, -9}, "a controller failed by itself"
        controller = subprocess.Popen(
            command("run", path, "--live", "--out", "live"),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
        )
        while (code := controller.poll()) is None:
            time.sleep(rng.uniform(0.01, 0.2))
            sessions = [pid for pid, guard in processes(tmp_path).items() if not guard]
            who = rng.choice(["session", "controller"])
            if sum(killed.values()) >= 12 or not sessions:
                continue
            killed[who] += kill(rng.choice(sessions) if who == "session" else controller.pid)
            if who == "controller":
                controller.wait()
    assert killed["session"] >= 2
    assert killed["controller"] >= 2
    jobs = rows(tmp_path / "live", "jobs")
    assert sum(row["reached_target"] for row in jobs) == 4
    spent: dict[tuple[str, int], list[float]] = {}
    for job_id, attempt, kind, payload in logged(tmp_path):
        if kind == "profiled":
            found = spent.setdefault((job_id, attempt), [])
            found += [measured[5] for measured in payload["measurements"]]
    for row in jobs:
        mine = spent.get((row["job_id"], row["attempt"]), [])
        assert row["slices"] == len(mine)
        assert row["slice_time_s"] == pytest.approx(sum(mine))
        assert row["slice_time_s"] <= row["time_s"] * (1 + 1e-9)
        assert row["slice_energy_j"] <= row["energy_j"] * (1 + 1e-9)
    loaded = load(str(path), ())
    (again,) = live_run.replay(loaded, read_inputs(loaded, live=True).runs, tmp_path / "live.live")
    for name in ("decisions", "jobs"):
        recorded = pq.read_table(tmp_path / "live" / f"{name}.parquet")
        assert again.tables[name].cast(recorded.schema).equals(recorded)


@pytest.mark.slow
def test_preempted_slices_are_those_of_the_simulator(tmp_path: Path) -> None:
    one = {"cluster": REHEARSED["cluster"] | {"gpus": 1}, "policies": {"select": "las"}}
    path = scenario(
        tmp_path, REHEARSED | FRUGAL | one, workloads=["image", "language"], recurrences=2
    )
    run(path, "--out", "sim", cwd=tmp_path)
    run(path, "--out", "live", "--live", cwd=tmp_path)
    found, expected = (rows(tmp_path / name, "jobs") for name in ("live", "sim"))
    assert sum(row["preemptions"] for row in expected) > 0
    assert sum(row["discarded_time_s"] for row in expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        for name in ("job_id", "preemptions", "slices", "epochs", "batch_size", "power_limit_w"):
            assert mine[name] == theirs[name], (name, mine, theirs)
        assert mine["time_s"] == pytest.approx(theirs["time_s"], rel=0.01)
    told = [row[:-1] for row in decisions(tmp_path / "live")]
    assert told == [row[:-1] for row in decisions(tmp_path / "sim")]


def test_a_slice_of_another_batch_size_that_is_preempted_is_the_simulators_last(
    tmp_path: Path,
) -> None:
    one = {
        "cluster": REHEARSED["cluster"] | {"gpus": 1},
        "policies": {"select": {"kind": "las", "quantum_gpu_s": 1.0}},
    }
    content = REHEARSED | FRUGAL | one
    path = scenario(tmp_path, content, workloads=["image"], recurrences=1)
    run(path, "--out", "alone", cwd=tmp_path)
    asked_s = [
        row["time_s"]
        for row in rows(tmp_path / "alone", "decisions")
        if "slice_batch_size" in row["chose"]
    ]
    every_s = asked_s[0] + 1.0
    path = scenario(tmp_path, content, workloads=["image"], recurrences=2, every_s=every_s)
    run(path, "--out", "sim", cwd=tmp_path)
    run(path, "--out", "live", "--live", cwd=tmp_path)
    found, expected = (rows(tmp_path / name, "jobs") for name in ("live", "sim"))
    assert [row["preemptions"] for row in expected] == [1, 1]
    assert expected[0]["discarded_time_s"] == 0
    for mine, theirs in zip(found, expected, strict=True):
        for name in ("job_id", "preemptions", "slices", "epochs", "reached_target"):
            assert mine[name] == theirs[name], (name, mine, theirs)
        for name in ("time_s", "energy_j", "finish_time_s"):
            assert mine[name] == pytest.approx(theirs[name], rel=0.01)
    told = [row[:-1] for row in decisions(tmp_path / "live")]
    assert told == [row[:-1] for row in decisions(tmp_path / "sim")]


POLICY = '''\
"""Measures the highest limit in a slice, then another batch size in two."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running, Slice
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class Measure(Tune):
    """See `MeasureConfig`."""

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """See `MeasureConfig`."""
        limits = running.start.options.limits(32)
        if running.moment == "reached":
            others = [measured for measured in running.measured if measured.batch_size == 16]
            return Knobs(slice=Slice(limits[0], 16, 2, 4, 0.0)) if len(others) < 2 else None
        if running.moment == "profiled":
            return Knobs(limits[1])
        return Knobs(slice=Slice(limits[-1], None, 5, 20, 0.0))


class MeasureConfig(PolicyConfig):
    """Slices, whatever they cost."""

    point: ClassVar[Point] = "tune"
    kind: Literal["measure"] = "measure"
    policy = Measure
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "reached")

    @property
    def slices(self) -> bool:
        """Always."""
        return True
'''

SCRIPT = """
import os, signal, time
from pathlib import Path

from wattkeeper.live import Session


def die(when):
    if not Path(when).exists():
        Path(when).mkdir()
        os.kill(os.getpid(), signal.SIGKILL)


class Weights:
    steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def probe(size):
    for number in range(100):
        if number == 5 and session.assignment.recurrence == 2:
            die("other")
        weights.steps += 1
        time.sleep(0.01)
        yield


weights = Weights()
with Session("counts", batch_sizes=(32,), default_batch_size=32, max_epochs=1) as session:
    session.keep(weights=weights)
    for epoch in session.epochs(range(60), probe=probe):
        for number in epoch:
            weights.steps += 1
            if number == 15:
                die("own")
            time.sleep(0.01)
        session.report(epoch.number)
print(weights.steps, flush=True)
"""


def trained(folder: Path, **workload: Any) -> Path:
    """A scenario with a script that is killed in a slice of each kind, once."""
    about = folder / "site" / "measure-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "site" / "measure.py").write_text(POLICY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: measure\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[wattkeeper.policies]\nmeasure = measure\n")
    (folder / "train.py").write_text(SCRIPT)
    training = {
        "command": ["python", "train.py"],
        "batch_sizes": [16, 32],
        "default_batch_size": 32,
        "max_epochs": 50,
        "target": 3.0,
    }
    content = {
        "name": "script",
        "cluster": {"gpu": "SYN-250W", "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {"kind": "recurring", "recurrences": 3},
        "live": {"workloads": {"counts": training | workload}},
        "variants": {"measure": {"policies": {"tune": "measure"}}},
        "baseline": "measure",
    }
    return scenario(folder, content)


def test_scripts_are_killed_in_slices(tmp_path: Path) -> None:
    path = trained(tmp_path, samples_per_epoch=32 * 60)
    run(
        path,
        "--live",
        "--out",
        "live",
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "site"),
        WATTKEEPER_DEVICE="synthetic:SYN-250W",
    )
    jobs = rows(tmp_path / "live", "jobs")
    names = ("job_id", "attempt", "slices", "reached_target")
    assert [tuple(row[name] for name in names) for row in jobs] == [
        ("counts/1", 1, 0, False),  # killed in its own slice
        ("counts/1", 2, 3, True),
        ("counts/2", 1, 1, True),  # killed in one of the other batch size
        ("counts/3", 1, 3, True),
    ]
    causes = manifest(tmp_path / "live")["live"]["causes"]
    assert causes == {"crashed": 1, "reached": 3}
    for row in jobs[1:]:
        assert row["power_limit_w"] == 125.0
        assert row["epochs"] == 3
        assert row["slice_time_s"] - row["discarded_time_s"] == pytest.approx(0.25, rel=0.3)
        assert row["time_s"] - row["discarded_time_s"] == pytest.approx(1.8, rel=0.3)
    others = [row["discarded_time_s"] for row in jobs[1:]]
    assert others == [pytest.approx(0.12, rel=0.5), 0.0, pytest.approx(0.12, rel=0.5)]
    chose = [row[2:5:2] for row in decisions(tmp_path / "live") if row[0] == "tune"]
    other = "reached: slice_w=100.0 slice_batch_size=16"
    assert chose == [
        ("counts/1", "slice_w=250.0"),
        ("counts/1", "slice_w=250.0"),
        ("counts/1", "power_limit_w=125.0"),
        ("counts/1", other),
        ("counts/1", other),
        ("counts/1", "reached: nothing"),
        ("counts/2", "slice_w=250.0"),
        ("counts/2", "power_limit_w=125.0"),
        ("counts/2", other),
        ("counts/3", "slice_w=250.0"),
        ("counts/3", "power_limit_w=125.0"),
        ("counts/3", other),
        ("counts/3", other),
        ("counts/3", "reached: nothing"),
    ]
    outputs = [file.read_text().split() for file in tmp_path.glob("live.live/**/*.out")]
    assert sorted(outputs) == [[], [], ["180"], ["180"]], "the weights are put back"


def test_a_workload_without_samples_is_refused(tmp_path: Path) -> None:
    said = run(
        trained(tmp_path),
        "--live",
        cwd=tmp_path,
        code=2,
        PYTHONPATH=str(tmp_path / "site"),
        WATTKEEPER_DEVICE="synthetic:SYN-250W",
    ).stderr
    assert_states(said, "variant 'measure'", "measure", "live.workloads.counts.samples_per_epoch")
