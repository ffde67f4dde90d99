"""Elastic trainings whose workers are killed end as if they had not been."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import assert_states
from tests.support.processes import until
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.sim.cluster.losses import NodeChange

pytest.importorskip("torch")

from tests.support.elastic_training import (
    BATCH,
    STEPS,
    check,
    living_of,
    moments,
    order,
    train,
    workers_of,
)


@pytest.mark.parametrize("replan", [pytest.param("oobleck", marks=pytest.mark.slow), "in-memory"])
def test_a_killed_worker_costs_no_finished_step(replan: str, tmp_path: Path) -> None:
    order(tmp_path, "kill at step 20")
    order(tmp_path, "kill at step 40")
    results = train(tmp_path, replan=replan)
    check(tmp_path, results)
    assert results.lost_steps == 0
    assert len(results.lost) == 2
    # A group may break again before its first step, while connections to the dead worker end.
    trained = [shape.moment for shape in results.shapes if shape.samples]
    assert trained.count("lost") == 2
    assert not any(shape.from_storage for shape in results.shapes)


@pytest.mark.parametrize("replan", ["in-memory", "varuna", "adaptive"])
def test_a_group_that_breaks_without_a_loss_forms_again(
    replan: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order(tmp_path, "cut at step 25")
    results = train(tmp_path, replan=replan)
    check(tmp_path, results)
    assert not results.lost
    assert not results.lost_steps
    assert moments(results) == [("start", 3), ("pause", 3)]
    assert not any(shape.from_storage for shape in results.shapes)
    assert_states(caplog.text, "nodes 0, 1, 2 broke after 2", "onnection")


def test_groups_that_break_but_keep_steps_do_not_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattkeeper.live.elastic.coordinator.MOST_FRUITLESS", 2)
    for step in (12, 14, 16, 18):
        order(tmp_path, f"cut at step {step}")
    results = train(tmp_path, steps=30, replan="varuna")
    check(tmp_path, results, 30)
    assert [moment for moment, _ in moments(results)] == ["start", *["pause"] * 4]
    assert not results.lost_steps


def test_varuna_says_which_steps_it_lost_and_trains_them_again(tmp_path: Path) -> None:
    order(tmp_path, "kill at step 27")
    results = train(tmp_path, replan="varuna")
    check(tmp_path, results)
    assert results.lost_steps == results.lost[0].lost_steps == 7
    assert [(shape.samples, shape.lost_samples) for shape in results.shapes[:2]] == [
        (20 * BATCH, 7 * BATCH),
        (40 * BATCH, 0),
    ]
    assert [shape.from_storage for shape in results.shapes] == [False, True]
    assert results.shapes[0].lost_s > 0
    assert results.shapes[0].write_s > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replan", "expected"),
    [
        ("in-memory", [("start", 3), ("lost", 2), ("boundary", 3)]),
        ("oobleck", [("start", 3), ("lost", 2)]),
    ],
)
def test_nodes_that_come_are_taken_up_as_the_policy_says(
    replan: str, expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    """`in-memory` takes them at the end of the step, `oobleck` at the next loss."""
    order(tmp_path, "kill at step 10")
    (tmp_path / "hold at step 40").touch()

    def go_on() -> None:
        until(lambda: len(workers_of(tmp_path)) == 4)
        time.sleep(0.3)  # it is ready
        (tmp_path / "hold at step 40").unlink()

    returned = threading.Thread(target=go_on)
    returned.start()
    results = train(tmp_path, replan=replan, away_s=0.5)
    returned.join()
    check(tmp_path, results)
    assert moments(results) == expected
    assert sum(decision.saw.startswith("('gained'") for decision in results.decisions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("replan", ["in-memory", "varuna"])
@pytest.mark.parametrize("place", ["load", "save", "make"])
def test_a_worker_is_killed_while_a_group_forms_or_a_checkpoint_is_written(
    replan: str, place: str, tmp_path: Path
) -> None:
    """`load` and `save`: while it takes a state over, sends its own, or writes it to storage."""

    def kill_then() -> None:
        until(lambda: not (tmp_path / "kill at step 12 0").exists())
        order(tmp_path, f"kill at {place}")

    order(tmp_path, "kill at step 12")
    second = threading.Thread(target=kill_then)
    second.start()
    results = train(tmp_path, replan=replan, away_s=0.0)
    second.join()
    check(tmp_path, results)
    assert not list(tmp_path.glob("kill at *"))
    assert len(results.lost) >= (1 if place == "make" else 2)


@pytest.mark.slow
def test_several_are_killed_at_once(tmp_path: Path) -> None:
    """Two of four, and then all but one."""
    order(tmp_path, "kill at step 20", 2)
    order(tmp_path, "kill at step 40", 3)
    (tmp_path / "hold at step 30").touch()

    def go_on() -> None:
        until(lambda: len(workers_of(tmp_path)) == 6)
        time.sleep(0.3)
        (tmp_path / "hold at step 30").unlink()

    returned = threading.Thread(target=go_on)
    returned.start()
    results = train(tmp_path, nodes=4, replan="in-memory")
    returned.join()
    check(tmp_path, results)
    assert len(results.lost) == 5
    assert results.lost_steps == 0
    assert min(shape.nodes for shape in results.shapes) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("replan", "lost_steps"), [("oobleck", 25), ("varuna", 5)])
def test_all_are_killed_and_it_says_what_is_lost(
    replan: str, lost_steps: int, tmp_path: Path
) -> None:
    """No worker is left that has the state: `oobleck` begins anew, `varuna` has its checkpoint."""
    order(tmp_path, "kill at step 25", 3)
    results = train(tmp_path, replan=replan)
    check(tmp_path, results)
    assert len(results.lost) == 3
    assert results.lost_steps == lost_steps
    assert "start" in [moment for moment, _ in moments(results)[1:]]


@pytest.mark.slow
def test_a_notice_saves_what_was_trained(tmp_path: Path) -> None:
    order(tmp_path, "notice at step 10")
    order(tmp_path, "kill at step 35")
    results = train(tmp_path, replan="on-notice")
    check(tmp_path, results)
    announced, other = results.lost
    assert (announced.announced, announced.lost_steps) == (True, 0)
    assert (other.announced, other.lost_steps) == (False, 15)
    assert results.shapes[0].write_s > 0


@pytest.mark.slow
def test_a_worker_that_stands_still_is_killed(tmp_path: Path) -> None:
    def stop() -> None:
        until(lambda: not (tmp_path / "kill at step 20 0").exists())
        os.kill(living_of(tmp_path)[0], signal.SIGSTOP)

    order(tmp_path, "kill at step 20")
    stopper = threading.Thread(target=stop)
    stopper.start()
    results = train(tmp_path, 1_000, patience_s=4.0)
    stopper.join()
    check(tmp_path, results, 1_000)
    assert len(results.lost) == 2


class Failing:
    """What makes replicas whose code is wrong."""

    def __init__(self, ends: bool) -> None:
        self.ends = ends

    def __call__(self) -> None:
        if self.ends:
            os._exit(3)
        raise ValueError("no such data")


@pytest.mark.slow
def test_trainings_that_cannot_go_on(tmp_path: Path) -> None:
    with pytest.raises(InputError) as wrong:
        train(tmp_path, make=partial(Failing(ends=False)))
    node = re.findall(r"node[ -](\d)", str(wrong.value))
    assert_states(str(wrong.value), "the worker of node", "ValueError: no such data", ".log")
    assert node in (["0", "0"], ["1", "1"], ["2", "2"])
    with pytest.raises(EnvironmentLacks) as gone:
        train(tmp_path, make=partial(Failing(ends=True)), away_s=0.0)
    assert_states(str(gone.value), "exit code 3", "3 in a row", "log")
    changes = [NodeChange(0.0, "down", node) for node in range(2)]
    with pytest.raises(EnvironmentLacks) as few:
        train(tmp_path, 100_000, least_nodes=2, changes=changes)
    assert_states(str(few.value), "needs 2 nodes", "there are 1", "no others come back")
    assert not living_of(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"steps": 0}, ["steps=0", "at least 1"]),
        ({"microbatch": 5}, ["batch=32", "microbatch=5", "multiple"]),
        ({"nodes": 9}, ["nodes=9", "1 to", "8"]),
        ({"least_nodes": 4}, ["least_nodes=4", "nodes=3"]),
        ({"away_s": float("nan")}, ["away_s=nan", "0 or more"]),
        ({"patience_s": 0}, ["patience_s=0", "above 0"]),
        ({"replan": "nobody"}, ["'nobody'", "oobleck"]),
        ({"changes": [NodeChange(1, "degraded", 0)]}, ["'degraded'", "down, up, notice"]),
        ({"changes": [NodeChange(1, "down", 3)]}, ["node 3", "0 to 2"]),
        ({"make": lambda: None}, ["pickled", "function of a module"]),
    ],
)
def test_arguments_that_are_refused(
    arguments: dict[str, Any], facts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as wrong:
        train(tmp_path, **{"steps": STEPS} | arguments)
    assert_states(str(wrong.value), *facts)
