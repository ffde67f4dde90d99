"""Fifty kills of workers at any time, and kills of the coordinator."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import until
from wattkeeper.live.host.process_identity import start_ticks
from wattkeeper.traces.files.atomic import is_leftover

pytest.importorskip("torch")

from tests.support.elastic_training import check, fragile, living_of, order, train
from wattkeeper.live.elastic.worker import StepCount
from wattkeeper.live.session.checkpoint import restore

pytestmark = pytest.mark.slow

KILLS, NODES, DISTANCE = 50, 4, 40
STEPS = (KILLS + 1) * DISTANCE


def kill_workers(folder: Path, seed: int) -> None:
    """Let the training go on whenever all nodes are there, and kill a worker a little later.

    That is while it forms a group with nodes that came, trains, or writes a checkpoint.
    """
    draw = random.Random(seed)
    for number in range(1, KILLS + 1):
        mark = folder / f"mark at step {number * DISTANCE} 0"
        until(lambda: not mark.exists() and len(living_of(folder)) == NODES)  # noqa: B023
        time.sleep(0.2)  # they are ready
        (folder / f"hold at step {number * DISTANCE}").unlink()
        time.sleep(draw.uniform(0.0, 0.04))
        os.kill(draw.choice(sorted(living_of(folder))), signal.SIGKILL)


@pytest.mark.parametrize("replan", ["in-memory", "oobleck", "varuna"])
def test_fifty_kills_leave_the_losses_as_they_are(replan: str, tmp_path: Path) -> None:
    for number in range(1, KILLS + 1):
        (tmp_path / f"hold at step {number * DISTANCE}").touch()
        order(tmp_path, f"mark at step {number * DISTANCE}")
    make = fragile(tmp_path, pause_s=0.001)
    killer = threading.Thread(target=kill_workers, args=(tmp_path, 5))
    killer.start()
    results = train(tmp_path, STEPS, make=make, replan=replan, nodes=NODES, away_s=0.1)
    killer.join()
    check(tmp_path, results, STEPS)
    undone = -sum(min(0.0, shape.samples) for shape in results.shapes)
    if replan == "varuna":
        assert 0 < results.lost_steps < KILLS * 10
        assert results.lost_steps == sum(loss.lost_steps for loss in results.lost)
    else:
        assert results.lost_steps == undone == 0
    pauses = [shape for shape in results.shapes[1:] if shape.is_predicted]
    assert len(pauses) > KILLS / 2
    measured_s = sum(shape.pause_s for shape in pauses)
    predicted_s = sum(shape.predicted_pause_s for shape in pauses)
    print(
        f"{replan}: {len(results.lost)} losses, {results.lost_steps} steps lost, "
        f"{len(pauses)} pauses, {measured_s:.3f} s, predicted {predicted_s:.3f} s"
    )
    assert predicted_s == pytest.approx(measured_s, rel=0.1)


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    children = [int(child) for child in listed]
    return children + [each for child in children for each in descendants(child)]


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_coordinator_leaves_nothing_half_written(
    signal_number: int, tmp_path: Path
) -> None:
    options = ["--nodes", "3", "--kills", "0", "--replan", '{"kind": "varuna", "every_steps": 1}']
    command = [sys.executable, "-m", "wattkeeper.live.examples.elastic", *options]
    endless = [*command, "--output", "out", "--steps", "1000000"]
    folder = tmp_path / "out" / "checkpoints"
    run = subprocess.Popen(endless, cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: list(folder.glob("step-*.pt")))
    below = descendants(run.pid)
    assert len(below) >= 3
    run.send_signal(signal_number)
    run.wait(timeout=60)
    until(lambda: not any(map(start_ticks, below)))
    left = list(folder.iterdir())
    for path in left:
        if path.suffix == ".pt":
            steps = StepCount(0)
            restore(path, {"steps": steps})
            assert path.name == f"step-{steps.steps}.pt"
        else:
            assert path.name == "lock" or is_leftover(path.name)
    assert (tmp_path / "out" / "shapes.parquet").exists() == (signal_number == signal.SIGINT)
    if signal_number == signal.SIGKILL:
        subprocess.run([*command, "--output", "out", "--steps", "5"], cwd=tmp_path, check=True)
        assert {path.name for path in folder.iterdir()} <= {"lock"}
