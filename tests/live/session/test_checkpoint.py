"""Sessions that are stopped, and continue with the state that they saved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.clocks import ManualTime
from tests.support.processes import finish, lines, until
from tests.support.sessions import TERMS, history, session
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.store import SessionStore
from wattkeeper.policies.errors import InputError

PLAIN = Path(__file__).parents[2] / "support/session_plain.py"


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (50, True),
        pytest.param(0, True, marks=pytest.mark.slow),
        pytest.param(50, False, marks=pytest.mark.slow),
    ],
)
def test_sigterm_stops_a_session_and_the_next_one_resumes(
    device: SyntheticDevice, tmp_path: Path, steps: int, kept: bool
) -> None:
    log = tmp_path / "log"
    given = {**TERMS, "job": "mine", "log": str(log), "steps": steps, "kept": kept}
    given |= {"max_epochs": 6, "per_epoch": 0.2, "target": 1.15}
    slow = [sys.executable, str(PLAIN), json.dumps({**given, "epoch_s": 0.5, "marked": True})]
    process = subprocess.Popen(slow, stderr=subprocess.PIPE)
    until(lambda: len(lines(log, "step")) > 2 * max(steps, 1))
    process.terminate()
    finish(process, -signal.SIGTERM)
    assert device.limit_w() == 200.0
    (row,) = history()
    assert row["status"] == "stopped"
    done = row["epochs"]
    assert done >= 2

    fast = [sys.executable, str(PLAIN), json.dumps({**given, "epoch_s": 0.01})]
    finish(subprocess.Popen(fast, stderr=subprocess.PIPE), 0)
    (row,) = history()
    assert (row["cause"], row["attempt"]) == ("reached", 1)
    first = lines(log, "begun")[1:] and lines(log, "epoch")[done]
    assert first[2] == str(done + 1 if kept and steps else 1)
    assert (row["time_s"] > 1.0) == bool(kept and steps)
    assert not list(tmp_path.glob("state/*.checkpoints/*")), "the state is removed in the end"


STOPPED_AT_ONCE = """
import os, signal
from tests.support.sessions import session
from wattkeeper.live.session.heartbeat import Heartbeat

begin = Heartbeat.begin

def stop(heartbeat):
    os.kill(os.getpid(), signal.SIGTERM)
    begin(heartbeat)

Heartbeat.begin = stop
with session():
    raise AssertionError("it goes on")
"""


def test_sigterm_while_a_session_begins_ends_its_process(device: SyntheticDevice) -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPED_AT_ONCE], stderr=subprocess.PIPE)
    finish(process, -signal.SIGTERM)
    assert device.limit_w() == 200.0
    (row,) = history()
    assert (row["status"], row["epochs"]) == ("stopped", 0)


class Place:
    """How far a training came."""

    def __init__(self) -> None:
        self.epoch = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


@pytest.mark.parametrize("again", ["before its first epoch", "in the middle of a step"])
def test_a_stop_keeps_the_state_of_an_earlier_stop(again: str, clock: ManualTime) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        place = Place()
        with session(eta=0, max_epochs=6) as first:
            first.keep(place=place)
            for epoch in first.epochs(steps=1):
                first.step()
                if epoch.number == 3:
                    stop()
                    first.step()
                place.epoch = epoch.number
                clock.sleep(0.01)
        assert (first.outcome.cause, first.outcome.epochs) == ("stopped", 2)
        with session(eta=0, max_epochs=6) as second:
            second.keep(place=Place())
            if again == "before its first epoch":
                stop()
            for epoch in second.epochs():
                if epoch.number == 4:
                    stop()
        assert (second.outcome.cause, second.outcome.epochs) == ("stopped", 2)
        assert second.outcome.time_s >= first.outcome.time_s
    finally:
        signal.signal(signal.SIGTERM, before)
    place = Place()
    with session(eta=0, max_epochs=6) as third:
        assert third.keep(place=place)
        assert place.epoch == 2
        assert [epoch.number for epoch in third.epochs()] == [3, 4, 5, 6]
    assert third.outcome.time_s >= second.outcome.time_s


def test_the_state_of_torch_objects_is_restored(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.support import session_torch

    log, store = tmp_path / "log", str(tmp_path / "store")
    passed_on: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: passed_on.append(number))
    try:

        def stop() -> None:
            until(lambda: len(lines(log, "epoch")) >= 2)
            os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=stop)
        thread.start()
        session_torch.main(store, log, 0.2)
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert passed_on == [signal.SIGTERM], "whoever handled it before does so in the end"
    (row,) = SessionStore(store).history("net")
    assert row["status"] == "stopped"
    session_torch.main(store, log, 0.0)
    _, again = lines(log, "begun")
    assert int(again[1]) == row["epochs"] >= 1
    assert int(again[2]) >= 4 * row["epochs"], "the optimizer goes on"
    assert [line[1] for line in lines(log, "ended")] == ["stopped", "epochs"]
    assert lines(log, "epoch")[-1][1] == "8"


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    from wattkeeper.live.session import checkpoint

    class Bad:
        def state_dict(self) -> Any:
            return {1, 2}

        def load_state_dict(self, state: Any) -> None:
            raise KeyError("x")

    code = (
        "from pathlib import Path; from wattkeeper.live.session.checkpoint import save\n"
        "class Bad:\n def state_dict(self): return {1}\n"
        "save(Path('x'), {'bad': Bad()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "the state of bad is not of JSON values" in done.stderr
    (tmp_path / "state.json").write_text('{"other": 1}')
    with pytest.raises(InputError, match=r"does not fit .* remove the file"):
        checkpoint.restore(tmp_path / "state.json", {"bad": Bad()})
