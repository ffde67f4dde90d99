"""Trainings that are told to stop, as they are preempted or interrupted, go on later."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    decisions,
    environment,
    manifest,
    processes,
    rows,
    run,
    scenario,
)
from tests.support.processes import until
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

LAS = {"kind": "las", "quantum_gpu_s": 37.0}

TRAIN = """
import sys, time
from pathlib import Path
from wattkeeper.live import Session

class Nothing:
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=1, eta=0) as session:
    if "keep" in sys.argv:
        session.keep(nothing=Nothing())
    for epoch in session.epochs() if "idle" not in sys.argv else ():
        time.sleep(1 if Path("slow").exists() else 0.2)
        with Path("epochs").open("a") as file:
            print(session.assignment.job_id, epoch.number, file=file)
        session.report(epoch.number)
"""
EPOCHS = 12


def trained(folder: Path, how: str, *jobs: str, **more: Any) -> Path:
    """A scenario of trainings on one GPU, of which each preempts the other once."""
    (folder / "train.py").write_text(TRAIN)
    workload = {
        "command": ["python", "train.py", how],
        "batch_sizes": [8],
        "default_batch_size": 8,
        "max_epochs": EPOCHS,
    }
    policies = {"configure": "zeus", "select": LAS | {"quantum_gpu_s": 1.5}}
    return scenario(
        folder,
        {
            "name": "stopped",
            "cluster": {"gpu": "cpu", "gpus": 1, "idle_power_w": 0},
            "workload": {"kind": "recurring", "recurrences": 1},
            "objective": {"eta": 0},
            "live": {"lease_s": 6, "workloads": dict.fromkeys(jobs, workload)},
            "variants": {"las": {"policies": policies}},
            "baseline": "las",
            **more,
        },
    )


def seen(folder: Path) -> list[str]:
    """The epochs that were done, in order."""
    path = folder / "epochs"
    return path.read_text().splitlines() if path.exists() else []


def test_preempted_rehearsals_give_the_simulators_journal_and_results(tmp_path: Path) -> None:
    policies = REHEARSED["variants"]["zeus"]["policies"] | {"select": LAS}
    content = REHEARSED | {
        "cluster": REHEARSED["cluster"] | {"gpus": 1},
        "variants": {"zeus": {"policies": policies}},
    }
    path = scenario(tmp_path, content, recurrences=3)
    run(path, "--out", "sim", cwd=tmp_path)
    run(path, "--out", "live", "--live", cwd=tmp_path)
    expected, found = decisions(tmp_path / "sim"), decisions(tmp_path / "live")
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    pairs = list(zip(rows(tmp_path / "live", "jobs"), rows(tmp_path / "sim", "jobs"), strict=True))
    assert sum(theirs["preemptions"] for _, theirs in pairs) > 3
    for mine, theirs in pairs:
        for name in ("energy_j", "time_s", "cost", "start_time_s", "finish_time_s"):
            assert mine[name] == pytest.approx(theirs[name], rel=0.01), (name, mine, theirs)
        for name in ("job_id", "attempt", "epochs", "preemptions", "reached_target"):
            assert mine[name] == theirs[name], (name, mine, theirs)
    loaded = load(str(path), ())
    (again,) = live_run.replay(loaded, read_inputs(loaded, live=True).runs, tmp_path / "live.live")
    recorded = pq.read_table(tmp_path / "live" / "decisions.parquet")
    assert again.tables["decisions"].cast(recorded.schema).equals(recorded)


@pytest.mark.parametrize("how", ["keep", pytest.param("lose", marks=pytest.mark.slow)])
def test_a_preempted_training_resumes_or_starts_over(how: str, tmp_path: Path) -> None:
    run(
        trained(tmp_path, how, "a", "b"),
        "--live",
        "--out",
        "live",
        cwd=tmp_path,
        WATTKEEPER_DEVICE="none",
    )
    attempts = {row["job_id"]: row for row in rows(tmp_path / "live", "jobs")}
    assert {(row["attempt"], row["epochs"]) for row in attempts.values()} == {(1, EPOCHS)}
    preemptions = attempts["a/1"]["preemptions"]  # on a slow machine more than one
    assert preemptions
    done = [line for line in seen(tmp_path) if line.startswith("a/1 ")]
    starts = done.count("a/1 1")
    assert starts == 1 if how == "keep" else 1 < starts <= 1 + preemptions
    assert done[-1] == f"a/1 {EPOCHS}"
    assert manifest(tmp_path / "live")["live"]["attempts"] == []


def test_a_script_without_epochs_is_given_up(tmp_path: Path) -> None:
    path = trained(tmp_path, "idle", "a", max_attempts=3)
    run(path, "--live", "--out", "live", cwd=tmp_path, WATTKEEPER_DEVICE="none")
    lost = manifest(tmp_path / "live")["live"]["attempts"]
    assert [one["cause"] for one in lost] == ["stopped"] * 3
    assert lost[0]["message"] == "its script did no epoch"
    assert not any(row["early_stopped"] for row in rows(tmp_path / "live", "jobs"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_resumes(number: signal.Signals, tmp_path: Path) -> None:
    path = trained(tmp_path, "keep", "a")
    arguments = (path, "--live", "--out", "live")
    slow = tmp_path / "slow"
    slow.touch()
    controller = subprocess.Popen(
        command("run", *arguments),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path, WATTKEEPER_DEVICE="none"),
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # ignored in the background
    )
    until(lambda: len(seen(tmp_path)) >= 2 or controller.poll() is not None)
    controller.send_signal(number)
    said = controller.communicate(timeout=60)[1]
    assert controller.returncode == 130, said
    assert "trainings save their state" in said
    assert not processes(tmp_path)
    before = len(seen(tmp_path))
    assert before < EPOCHS
    slow.unlink()
    run(*arguments, cwd=tmp_path, WATTKEEPER_DEVICE="none")
    (attempt,) = rows(tmp_path / "live", "jobs")
    assert (attempt["attempt"], attempt["epochs"]) == (1, EPOCHS)
    assert seen(tmp_path) == [f"a/1 {epoch + 1}" for epoch in range(EPOCHS)]
