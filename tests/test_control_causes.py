"""Trainings that crash, fail, hang or never report are outcomes, and what cannot run is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.live_runs import REHEARSED, decisions, manifest, rows, run, scenario
from wattkeeper.scenarios.cli import main

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

how, mark = sys.argv[1], Path(sys.argv[1])
first = not mark.exists()
mark.touch()
if first and how == "silent":
    time.sleep(1e6)
from wattkeeper.live import Session

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9, eta=0) as session:
    for epoch in session.epochs():
        session.report(epoch.number)
        if first and epoch.number == 2:
            if how == "crashed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hung":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "failed":
                raise ValueError("no such data")
"""

TRAINED: dict[str, Any] = {
    "name": "trained",
    "cluster": {"gpu": "cpu", "gpus": 4, "gpus_per_node": 1, "idle_power_w": 0},
    "workload": {"kind": "recurring", "recurrences": 1},
    "objective": {"eta": 0},
    "variants": {"zeus": {"policies": {"configure": "zeus"}}},
    "baseline": "zeus",
}
CAUSES = ("crashed", "failed", "hung", "silent")


def trained(folder: Path, workloads: dict[str, Any], **live: Any) -> Path:
    path = scenario(folder, TRAINED | {"live": {"lease_s": 6, "workloads": workloads, **live}})
    (folder / "train.py").write_text(SCRIPT)
    return path


def workload(*command: str) -> dict[str, Any]:
    return {
        "command": list(command),
        "batch_sizes": [8, 16],
        "default_batch_size": 8,
        "target": 3,
        "max_epochs": 5,
    }


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose four trainings are each lost once."""
    folder = tmp_path_factory.mktemp("lost")
    path = trained(folder, {how: workload("python", "train.py", how) for how in CAUSES})
    run(path, "--out", "live", "--live", cwd=folder, WATTKEEPER_DEVICE="none")
    return folder / "live"


@pytest.mark.parametrize("how", CAUSES)
def test_a_lost_attempt_is_tried_again_as_it_was(lost: Path, how: str) -> None:
    causes = [(one["job_id"], one["attempt"], one["cause"]) for one in
              manifest(lost)["live"]["attempts"]]  # fmt: skip
    assert (f"{how}/1", 1, how) in causes
    attempts = [row for row in rows(lost, "jobs") if row["job_id"] == f"{how}/1"]
    assert [row["reached_target"] for row in attempts] == [False] * (len(attempts) - 1) + [True]
    assert not any(row["early_stopped"] for row in attempts)
    assert {row["batch_size"] for row in attempts} == {8}
    chosen = [one for one in decisions(lost) if one[0] == "configure" and one[2] == f"{how}/1"]
    assert len(chosen) == 1, "no policy was asked again"
    assert attempts[-1]["epochs"] == 3


def test_energy_that_nobody_measured_is_absent(lost: Path) -> None:
    assert all(row["energy_j"] is None for row in rows(lost, "jobs"))
    assert manifest(lost)["live"]["energy"] == ["absent"]


def test_a_failed_script_says_why(lost: Path) -> None:
    (message,) = [one["message"] for one in manifest(lost)["live"]["attempts"]
                  if one["cause"] == "failed"]  # fmt: skip
    assert message == "ValueError: no such data"


def test_a_command_without_a_session_ends_the_run(tmp_path: Path) -> None:
    path = trained(tmp_path, {"none": workload("python", "-c", "print('done')")})
    said = run(path, "--live", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none").stderr
    assert "before it made a Session" in said
    assert ".err" in said


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"variants": {"zeus": {"policies": {"configure": "oracle"}}}}, 2, "needs to know the fut"),
        ({"profiling": "foreknown"}, 2, "leave out foreknown"),
        ({"live": {"speed": 2, "workloads": {"image": workload("true")}}}, 2, "speed up a real"),
        ({"live": {"workloads": {"imago": workload("true")}}}, 2, "no workload 'imago' recurs"),
        ({"live": {"workloads": {"image": workload("trainify")}}}, 2, "'trainify' is not there"),
        ({"live": {"workloads": {"image": workload("true") | {"default_batch_size": 3}}}}, 2,
         "default_batch_size: 3 is not among"),
        ({"live": {"workloads": {"image": workload("true")}}}, 3, "nothing here measures energy"),
        ({"workload": {"kind": "search", "models": 2}, "variants": {"zeus": {}}}, 2,
         "leave out --live"),
    ],
)  # fmt: skip
def test_what_cannot_run_live_is_refused(
    change: dict[str, Any], code: int, message: str, tmp_path: Path, monkeypatch: Any
) -> None:
    content = REHEARSED | {"live": {}} | change
    path, out = tmp_path / "refused.yaml", tmp_path / "results"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("WATTKEEPER_DEVICE", "none")
    done = CliRunner().invoke(main, ["run", str(path), "--live", "--out", str(out)])
    assert done.exit_code == code
    assert message in done.stderr
    assert not out.exists()


def test_a_workload_without_profiles_cannot_be_simulated(tmp_path: Path) -> None:
    path = trained(tmp_path, {"some": workload("true")})
    assert "wattkeeper record" in run(path, cwd=tmp_path, code=2).stderr


def test_an_unfinished_run_of_another_scenario_is_kept(tmp_path: Path) -> None:
    path = trained(tmp_path, {"none": workload("python", "-c", "pass")})
    run(path, "--live", "--out", "out", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none")
    again = run(path, "--live", "--out", "out", "--set", "max_attempts=3", cwd=tmp_path, code=2,
                WATTKEEPER_DEVICE="none")  # fmt: skip
    assert "unfinished run of another scenario" in again.stderr


TOGETHER = """
import os
import torch
from wattkeeper.live import Session

torch.distributed.init_process_group("gloo")
with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9, eta=0) as session:
    rank = int(os.environ["RANK"])
    for epoch in session.epochs():
        session.report(epoch.number)
open(f"rank-{rank}", "w").write(str(session.batch_size))
"""


@pytest.mark.slow
def test_torchrun_starts_a_process_a_gpu_and_one_of_them_reports(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "together.py").write_text(TOGETHER)
    cluster = TRAINED["cluster"] | {"gpus": 2, "gpus_per_node": 2}
    live = {"runner": "torchrun", "workloads": {"both": workload("python", "together.py")}}
    path = scenario(tmp_path, TRAINED | {"cluster": cluster, "live": live}, gpus=2)
    run(path, "--live", "--out", "live", cwd=tmp_path, WATTKEEPER_DEVICE="none")
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)] == ["8", "8"]
    (attempt,) = rows(tmp_path / "live", "jobs")
    assert (attempt["gpus"], attempt["epochs"], attempt["reached_target"]) == (2, 3, True)
