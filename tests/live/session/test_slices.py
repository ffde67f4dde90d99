"""Slices in sessions: measured, charged, journalled, and lost with their process."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.clocks import ManualTime
from tests.support.live_runs import environment
from tests.support.messages import assert_states
from tests.support.sessions import DRAWN, history, session
from wattkeeper.live import Session
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session import local_coordinator
from wattkeeper.live.session.store import SessionStore, states
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.tune.zeus_jit import ZeusJitConfig

SAMPLES = 16_000
JIT = ZeusJitConfig(profile="slices")
STEP_S = {100.0: 0.3, 150.0: 0.12, 200.0: 0.1}
"""Seconds a step of 32 samples, by power limit."""


class Weights:
    """What a training changes."""

    def __init__(self) -> None:
        self.steps = [0]

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class Training:
    """A training in virtual time, and the limits at which it made its steps."""

    def __init__(self, clock: ManualTime, device: SyntheticDevice, **terms: Any) -> None:
        clock.sleep(1e6)  # beyond the host's time, at which the guard of limits looks at the device
        self.clock, self.device, self.weights = clock, device, Weights()
        self.seen: list[float] = []
        self.probed: list[int] = []
        given: dict[str, Any] = {
            "target": 3.0,
            "power_limits_w": tuple(DRAWN),
            "samples_per_epoch": SAMPLES,
        }
        given |= {"max_epochs": 9} | terms
        self.samples = given["samples_per_epoch"]
        self.session = session(**given)

    def step(self, size: int) -> None:
        self.clock.sleep(STEP_S[self.device.limit_w()] * (0.5 + size / 64))
        self.weights.steps[0] += 1

    def probe(self, size: int) -> Iterator[None]:
        self.clock.sleep(2.0)
        self.probed.append(size)
        while True:
            self.step(size)
            yield

    def run(self, probe: bool = True) -> Session:
        with self.session as found:
            found.keep(weights=self.weights)
            size = found.batch_size
            loader = range(self.samples // size)
            for epoch in found.epochs(loader, probe=self.probe if probe else None):
                for _ in epoch:
                    self.step(size)
                    self.seen.append(self.device.limit_w())
                found.report(epoch.number)
                self.clock.sleep(7.0)  # validation, which no slice measures
        return found


def learnt() -> list[tuple[str, dict[str, Any]]]:
    """What policies learnt, by decision point."""
    query = sa.select(states.c.point, states.c.state)
    rows = SessionStore().run(lambda db: db.execute(query).all(), 5.0)
    return [(point, json.loads(state)) for point, state in rows]


def chosen(point: str = "tune") -> list[str]:
    return [row["chose"] for row in SessionStore().journal("mine") if row["point"] == point]


def test_limits_are_measured_in_slices(clock: ManualTime, device: SyntheticDevice) -> None:
    training = Training(clock, device, tune=JIT, configure="fixed")
    found = training.run()
    runs = [training.seen[0]]
    counts = [0]
    for limit_w in training.seen:
        if limit_w != runs[-1]:
            runs.append(limit_w)
            counts.append(0)
        counts[-1] += 1
    assert runs == [200.0, 150.0, 100.0, 200.0]
    assert counts[:3] == [5 + 20] * 3, "20 steps take 2 s and more"
    assert found.power_limit_w == 200.0
    assert chosen() == ["slice_w=200.0", "slice_w=150.0", "slice_w=100.0", "power_limit_w=200.0"]
    (row,) = history()
    assert (row["slices"], row["discarded_time_s"]) == (3, 0.0)
    assert row["slice_time_s"] == pytest.approx(25 * sum(STEP_S.values()))
    spent_j = sum(25 * STEP_S[limit_w] * DRAWN[limit_w] for limit_w in STEP_S)
    assert row["slice_energy_j"] == pytest.approx(spent_j)
    steps = len(training.seen)
    assert steps == 3 * SAMPLES // 32, "slices are a part of the training"
    lasted_s = sum(STEP_S[limit_w] for limit_w in training.seen) + 3 * 7.0
    assert row["time_s"] == pytest.approx(lasted_s)
    again = Training(clock, device, tune=JIT, configure="fixed").run()
    assert (again.assignment.slice, again.power_limit_w) == (None, 200.0)


def measured_epochs() -> dict[int, dict[float, float]]:
    """Time of an epoch (s) that `frugal` learnt, by batch size and power limit."""
    ((_, state),) = learnt()
    ((_, costs),) = state["mine"]["learnt"]
    return {
        size: {limit_w: math.exp(log_time) for limit_w, _, log_time, _ in points}
        for size, points in costs["points"]
    }


def test_a_slice_leaves_out_what_is_between_epochs(
    clock: ManualTime, device: SyntheticDevice
) -> None:
    samples = 40 * 32
    Training(clock, device, configure="frugal", samples_per_epoch=samples).run(probe=False)
    found = measured_epochs()[32]
    assert found == {limit_w: pytest.approx(40 * STEP_S[limit_w]) for limit_w in (200.0, 150.0)}


def test_epochs_without_steps_are_slices(clock: ManualTime, device: SyntheticDevice) -> None:
    limits = []
    with Training(clock, device, tune=JIT, max_epochs=4, target=None).session as found:
        for _ in found.epochs():
            limits.append(device.limit_w())
            clock.sleep(STEP_S[limits[-1]])
    assert limits == [200.0, 150.0, 100.0, 200.0]


def test_other_batch_sizes_are_measured_once_the_target_is_reached(
    clock: ManualTime, device: SyntheticDevice
) -> None:
    training = Training(clock, device, configure="frugal")
    found = training.run()
    assert training.probed == [16]
    assert training.weights.steps == [3 * SAMPLES // 32], "put back"
    assert device.limit_w() == 200.0
    assert chosen()[-2:] == ["reached: slice_w=150.0 slice_batch_size=16", "reached: nothing"]
    assert measured_epochs()[16] == {150.0: pytest.approx(STEP_S[150.0] * 0.75 * SAMPLES / 16)}
    (row,) = history()
    step_s, steps = STEP_S[150.0] * 0.75, 5 + math.ceil(2.0 / (STEP_S[150.0] * 0.75))
    assert row["discarded_time_s"] == pytest.approx(2.0 + step_s * steps)
    lasted_s = sum(STEP_S[limit_w] for limit_w in training.seen) + 3 * 7.0
    assert row["time_s"] == pytest.approx(lasted_s + row["discarded_time_s"])
    assert found.outcome.time_s == row["time_s"]
    cost = Objective(0.5).cost(row["energy_j"], row["time_s"], 200.0)
    assert row["cost"] == pytest.approx(cost)
    ((point, state),) = learnt()
    assert point == "configure", "one state of both"
    ((_, own),) = state["mine"]["learnt"]
    assert (own["paid"], own["recurrences"]) == (pytest.approx(own["default"]), 1)
    again = Training(clock, device, configure="frugal").run()
    assert (again.assignment.slice, again.power_limit_w) != (None, None)


def test_without_a_callback_no_other_batch_size_is_measured(
    clock: ManualTime, device: SyntheticDevice
) -> None:
    Training(clock, device, configure="frugal").run(probe=False)
    assert not [text for text in chosen() if "reached" in text]
    assert set(measured_epochs()) == {32}


def test_a_slice_that_fails_is_the_last_one(
    clock: ManualTime, device: SyntheticDevice, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(clock, device, configure="frugal")

    def probe(size: int) -> Iterator[None]:
        training.step(size)
        yield
        raise RuntimeError("CUDA out of memory")

    training.probe = probe  # type: ignore[method-assign]
    found = training.run()
    assert found.reached
    assert "batch size 16 failed" in caplog.text
    assert training.weights.steps == [3 * SAMPLES // 32]
    (row,) = history()
    assert (row["cause"], row["discarded_time_s"]) == ("reached", 0.0)


def test_a_host_without_power_limits_measures_at_its_own(
    clock: ManualTime, device: SyntheticDevice
) -> None:
    training = Training(clock, device, configure="frugal", power_control="off")
    found = training.run()
    assert set(training.seen) == {200.0}
    assert found.outcome.limit_set is False
    assert measured_epochs() == {
        32: {200.0: pytest.approx(STEP_S[200.0] * SAMPLES / 32)},
        16: {200.0: pytest.approx(STEP_S[200.0] * 0.75 * SAMPLES / 16)},
    }


def test_a_loader_of_another_length_is_refused(clock: ManualTime, device: SyntheticDevice) -> None:
    training = Training(clock, device, configure="frugal")
    training.samples = 4000
    with pytest.raises(InputError) as refused:
        training.run()
    assert_states(str(refused.value), "125 steps", "batch size 32", "samples_per_epoch=16000")


@pytest.mark.parametrize(
    ("terms", "facts"),
    [
        ({"tune": "zeus-jit"}, ["frugal", "leave tune out"]),
        ({"samples_per_epoch": None}, ["frugal", "samples_per_epoch=len(data)"]),
        ({"samples_per_epoch": 0}, ["samples_per_epoch=0", "at least 1"]),
    ],
)
def test_arguments_that_slices_cannot_have_are_refused(
    clock: ManualTime, device: SyntheticDevice, terms: dict[str, Any], facts: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        Training(clock, device, configure="frugal", **terms).run()
    assert_states(str(refused.value), *facts)


KILLED = """
import os, signal, sys, time

from wattkeeper.live import Session

where = sys.argv[1]


def probe(size):
    for number in range(100):
        if where == "other" and number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)
        yield


with Session(
    "mine", batch_sizes=(16, 32), default_batch_size=32, max_epochs=5, target=4.0,
    configure="frugal", samples_per_epoch=32 * 600,
) as session:
    for epoch in session.epochs(range(19200 // session.batch_size), probe=probe):
        for number in epoch:
            if where == "own" and number == 40:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.002)
        session.report(epoch.number)
"""


def run_script(folder: Path, where: str) -> int:
    environ = environment(folder, WATTKEEPER_DEVICE="synthetic:SYN-250W", WATTKEEPER_SPEED="100")
    done = subprocess.run([sys.executable, "-c", KILLED, where], env=environ, check=False)
    return done.returncode


@pytest.mark.slow
def test_slices_survive_kills(tmp_path: Path) -> None:
    assert run_script(tmp_path, "own") == -signal.SIGKILL
    assert run_script(tmp_path, "other") == -signal.SIGKILL
    assert run_script(tmp_path, "nowhere") == 0
    own, other, last = history()
    assert [(row["recurrence"], row["attempt"]) for row in (own, other, last)] == [
        (1, 1),
        (1, 2),
        (2, 1),
    ]
    assert (own["cause"], own["learnt"], own["slices"]) == ("crashed", False, 1)
    assert own["slice_time_s"] <= own["time_s"]
    assert (other["cause"], other["learnt"], other["epochs"]) == ("reached", True, 4)
    assert (last["cause"], last["reached"]) == ("reached", True)
    ((_, state),) = learnt()
    ((_, account),) = state["mine"]["learnt"]
    assert account["recurrences"] == 2, "also the one whose first attempt was lost"
    assert account["paid"] == pytest.approx(account["default"], rel=0.2)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_lost_run_is_awaited_while_it_may_be_tried_again(
    clock: ManualTime, device: SyntheticDevice, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    monkeypatch.setattr(local_coordinator, "ATTEMPTS", attempts)
    training = Training(clock, device, configure="frugal")

    def fail(size: int) -> None:
        raise OSError("the data is gone")

    training.step = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the data is gone"):
        training.run()
    (row,) = history()
    assert (row["cause"], row["learnt"]) == ("failed", False)
    ((_, state),) = learnt()
    assert len(state["mine"]["under_way"]) == attempts - 1
