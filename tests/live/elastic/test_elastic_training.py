"""Elastic trainings whose workers are killed end as if they had not been."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.messages import assert_states
from tests.support.processes import until
from wattkeeper.live.host.process_identity import start_ticks
from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.sim.cluster.losses import NodeChange

pytest.importorskip("torch")

from tests.support.elastic_training import BATCH, MICROBATCH, fragile
from wattkeeper.live import train_elastic
from wattkeeper.live.elastic.records import ElasticResults
from wattkeeper.live.elastic.replica import train_alone

STEPS = 60


def train(folder: Path, steps: int = STEPS, **arguments: Any) -> ElasticResults:
    """Train the fragile network on three nodes; results are in the folder `out`."""
    stated: dict[str, Any] = {
        "job": "small", "steps": steps, "batch": BATCH, "microbatch": MICROBATCH, "nodes": 3,
        "away_s": 0.2, "output": folder / "out",
    }  # fmt: skip
    return train_elastic(fragile(folder), **stated | arguments)


def order(folder: Path, place: str, number: int = 0) -> None:
    """Let a process end itself at a place."""
    (folder / f"kill at {place} {number}").touch()


def pids(folder: Path) -> list[int]:
    """The processes of all workers that were ever there."""
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


def check(folder: Path, results: ElasticResults, steps: int = STEPS) -> None:
    """The training ended as an undisturbed one, its tables agree, and nothing is left behind."""
    replica, losses = train_alone(fragile(folder), steps, BATCH, MICROBATCH)
    assert list(results.losses) == losses
    trained = fragile(folder)()
    results.restore(trained)
    weights, expected = trained.state_dict()["model"], replica.state_dict()["model"]
    assert all(weights[name].equal(expected[name]) for name in expected)
    rows = pq.read_table(folder / "out" / "shapes.parquet").to_pylist()
    assert sum(row["samples"] for row in rows) == steps * BATCH
    assert sum(row["lost_samples"] for row in rows) == results.lost_steps * BATCH
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        spent_s = row["pause_s"] + row["steps_s"] + row["write_s"]
        assert row["until_s"] - row["time_s"] == pytest.approx(spent_s, abs=1e-6)
        assert 0 <= row["lost_s"] <= row["steps_s"]
        assert following is None or row["until_s"] <= following["time_s"]
    assert not [pid for pid in pids(folder) if pid != os.getpid() and start_ticks(pid)]
    left = {path.name for path in (folder / "out" / "checkpoints").iterdir()}
    assert left <= {"lock"}


def moments(results: ElasticResults) -> list[tuple[str, int]]:
    return [(shape.moment, shape.nodes) for shape in results.shapes]


@pytest.mark.parametrize("replan", ["oobleck", "in-memory"])
def test_a_killed_worker_costs_no_finished_step(replan: str, tmp_path: Path) -> None:
    order(tmp_path, "step 20")
    order(tmp_path, "step 40")
    results = train(tmp_path, replan=replan)
    check(tmp_path, results)
    assert results.lost_steps == 0
    assert len(results.lost) == 2
    assert [moment for moment, _ in moments(results)].count("lost") == 2
    assert not any(shape.from_storage for shape in results.shapes)


def test_varuna_says_which_steps_it_lost_and_trains_them_again(tmp_path: Path) -> None:
    order(tmp_path, "step 27")
    results = train(tmp_path, replan="varuna")
    check(tmp_path, results)
    assert results.lost_steps == results.lost[0].lost_steps == 7
    assert [(shape.samples, shape.lost_samples) for shape in results.shapes[:2]] == [
        (20 * BATCH, 7 * BATCH), (40 * BATCH, 0),
    ]  # fmt: skip
    assert [shape.from_storage for shape in results.shapes] == [False, True]
    assert results.shapes[0].lost_s > 0
    assert results.shapes[0].write_s > 0


def test_nodes_that_come_are_taken_up_as_the_policy_says(tmp_path: Path) -> None:
    """`in-memory` takes them at the end of the step, `oobleck` at the next loss."""
    for replan, expected in (
        ("in-memory", [("start", 3), ("lost", 2), ("boundary", 3)]),
        ("oobleck", [("start", 3), ("lost", 2)]),
    ):
        folder = tmp_path / replan
        folder.mkdir()
        order(folder, "step 10")
        (folder / "hold at step 40").touch()
        returned = threading.Thread(target=go_on_after, args=(folder, "step 40", 4))
        returned.start()
        results = train(folder, replan=replan, away_s=0.5)
        returned.join()
        check(folder, results)
        assert moments(results) == expected
        asked = [eval(decision.saw)[0] for decision in results.decisions]
        assert asked.count("gained") == 1


def go_on_after(folder: Path, place: str, workers: int) -> None:
    """Let a training that waits at a place go on once so many workers were there, and are ready."""
    until(lambda: len(pids(folder)) >= workers)
    time.sleep(0.3)
    (folder / f"hold at {place}").unlink()


@pytest.mark.parametrize("replan", ["oobleck", "varuna"])
@pytest.mark.parametrize("place", ["load", "save", "make"])
def test_a_worker_is_killed_while_a_group_forms_or_a_checkpoint_is_written(
    replan: str, place: str, tmp_path: Path
) -> None:
    """`load` and `save`: while it takes a state over, sends its own, or writes it to storage."""
    order(tmp_path, "step 10")
    order(tmp_path, "step 30", 1)
    late = {"load": "step 10", "save": "step 10", "make": "step 30"}[place]
    watcher = threading.Thread(target=order_after, args=(tmp_path, late, place))
    watcher.start()
    results = train(tmp_path, replan={"oobleck": "in-memory"}.get(replan, replan))
    watcher.join()
    check(tmp_path, results)
    assert len(results.lost) >= 2


def order_after(folder: Path, first: str, place: str) -> None:
    """Order a kill at a place once another one was carried out."""
    number = 1 if first == "step 30" else 0
    while (folder / f"kill at {first} {number}").exists():
        time.sleep(0.001)
    order(folder, place)


def test_two_are_killed_at_once_and_then_all_but_one(tmp_path: Path) -> None:
    changes = [NodeChange(0.2, "down", node) for node in (0, 2)]
    changes += [NodeChange(0.6, "up", node) for node in (0, 2)]
    results = train(tmp_path, 600, changes=changes, nodes=4, replan="in-memory")
    check(tmp_path, results, 600)
    assert {each.node for each in results.lost} == {0, 2}
    assert results.lost_steps == 0
    folder = tmp_path / "again"
    folder.mkdir()
    changes = [NodeChange(0.2, "down", node) for node in (0, 1, 3)]
    results = train(folder, 300, changes=changes, nodes=4)
    check(folder, results, 300)
    assert results.lost_steps == 0
    assert results.shapes[-1].nodes == 1


def test_all_are_killed_and_it_says_what_is_lost(tmp_path: Path) -> None:
    """No worker is left that has the state: `oobleck` begins anew, `varuna` has its checkpoint."""
    changes = [NodeChange(0.3, "down", node) for node in range(3)]
    changes += [NodeChange(0.5, "up", node) for node in range(3)]
    for replan in ("oobleck", "varuna"):
        folder = tmp_path / replan
        folder.mkdir()
        results = train(folder, 400, changes=changes, replan=replan)
        check(folder, results, 400)
        assert ("start" in [moment for moment, _ in moments(results)[1:]])
        if replan == "oobleck":
            undone = min(shape.samples for shape in results.shapes)
            assert undone == -results.lost_steps * BATCH < 0
        else:
            assert results.lost_steps < 30


def test_a_notice_saves_what_was_trained(tmp_path: Path) -> None:
    changes = [NodeChange(0.3, "notice", 1, deadline_s=0.8), NodeChange(0.8, "down", 1)]
    changes += [NodeChange(1.2, "down", 2)]
    results = train(tmp_path, 500, changes=changes, replan="on-notice")
    check(tmp_path, results, 500)
    announced, other = results.lost
    assert announced.announced
    assert announced.lost_steps <= 1
    assert not other.announced
    assert other.lost_steps > 1
    assert results.shapes[0].write_s > 0


def test_a_worker_that_stands_still_is_killed(tmp_path: Path) -> None:
    def stop() -> None:
        while (tmp_path / "kill at step 20 0").exists():
            time.sleep(0.001)
        living = [pid for pid in pids(tmp_path) if pid != os.getpid() and start_ticks(pid)]
        os.kill(living[0], signal.SIGSTOP)

    order(tmp_path, "step 20")
    stopper = threading.Thread(target=stop)
    stopper.start()
    results = train(tmp_path, patience_s=4.0)
    stopper.join()
    check(tmp_path, results)
    assert len(results.lost) == 2
