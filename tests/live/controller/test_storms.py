"""Storms of signals on controllers and sessions of live runs: no observation is lost.

`WATTKEEPER_STORM_KILLS` and `WATTKEEPER_STORM_SEED` make other ones.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    environment,
    learnt,
    manifest,
    processes,
    run,
    scenario,
)
from tests.support.processes import until

SEED = int(os.environ.get("WATTKEEPER_STORM_SEED", "17"))
KILLS = int(os.environ.get("WATTKEEPER_STORM_KILLS", "200"))
AT_PLACE = Path(__file__).resolve().parents[2] / "support" / "at_place"
HANG_S = 30
"""A signal may take no longer to end a process; for a busy machine it counts from the signal on."""
SIGNALS = {
    "controller": (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGABRT),
    "session": (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT),
}
PLACES = {"controller": 2400, "session": 230}
"""About so many events of either are audited from the start of its work to its end."""


def prepare(folder: Path, recurrences: int) -> Path:
    """A rehearsal whose simulated results are in `sim`.

    Nothing is profiled: who is killed after it was profiled is not profiled again, and costs less
    than the simulator knows.
    """
    policies = {"configure": "zeus", "tune": {"kind": "fixed-power", "power_limit_w": 150.0}}
    content = REHEARSED | {"variants": {"zeus": {"policies": policies}}, "max_attempts": 1000}
    path = scenario(folder, content, recurrences=recurrences, workloads=["recommendation"])
    run(path, "--out", "sim", cwd=folder)
    return path


def start(path: Path, folder: Path, errors: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start the live run, or go on with it."""
    with errors.open("ab") as file:
        return subprocess.Popen(
            command("run", path, "--live", "--out", "live"),
            cwd=folder,
            stderr=file,
            stdout=subprocess.DEVNULL,
            env=environment(folder, **more),
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )


def check(folder: Path, errors: Path) -> None:
    """Check what is left: all observations once, no traceback, no process."""
    assert "Traceback" not in errors.read_text(), errors.read_text()[-3000:]
    assert learnt(folder / "live") == learnt(folder / "sim")
    causes = set(manifest(folder / "live")["live"]["causes"])
    assert causes <= {"reached", "bound", "crashed", "stopped", "failed"}
    until(lambda: not processes(folder))


def works(pid: int) -> bool:
    """Whether a controller has opened its log: before, Python itself may be starting."""
    try:
        return any(
            file.readlink().name == "log.sqlite" for file in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:  # it opens or closes files, or has ended
        return False


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether the process was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("who", ["controller", "session"])
def test_signals_at_random_moments_cost_no_observation(
    who: str, kills: int, tmp_path: Path
) -> None:
    path, errors = prepare(tmp_path, 3 if kills < KILLS else 60), tmp_path / "errors"
    rng = random.Random(f"{SEED} {who}")
    sent = Counter[str]()
    code: int | None = None
    while code != 0:
        controller = start(path, tmp_path, errors)
        interrupted_s = None
        while (code := controller.poll()) is None:
            time.sleep(rng.uniform(0.01, 0.5))
            if interrupted_s is not None:
                assert time.monotonic() < interrupted_s + HANG_S, f"it hangs; {sent}, seed {SEED}"
                continue
            sessions = [pid for pid, guard in processes(tmp_path).items() if not guard]
            if sent.total() >= kills or not sessions or not works(controller.pid):
                continue
            number = rng.choice(SIGNALS[who])
            pid = controller.pid if who == "controller" else rng.choice(sessions)
            sent[number.name] += send(pid, number)
            if who == "controller":
                interrupted_s = time.monotonic()
        allowed = {0, 130, *(-number for number in SIGNALS["controller"])}
        assert code in (allowed if who == "controller" else {0}), f"{code}; {sent}, seed {SEED}"
    print(f"{who}, seed {SEED}: {sent.total()} signals: {dict(sent)}")
    assert sent.total() >= 1
    check(tmp_path, errors)


@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("who", ["controller", "session"])
def test_signals_at_exact_places_cost_no_observation(who: str, kills: int, tmp_path: Path) -> None:
    path, errors = prepare(tmp_path, 2), tmp_path / "errors"
    rng = random.Random(f"{SEED} {who} places")
    plans = tmp_path / "plans"
    plans.mkdir()
    for number in range(kills):
        plan = [rng.randrange(1, PLACES[who]), rng.choice(SIGNALS[who]).value]
        (plans / f"{number:05d}").write_text(json.dumps(plan))
    code: int | None = None
    while code != 0 or list(plans.glob("[0-9]*")):
        controller = start(
            path,
            tmp_path,
            errors,
            PYTHONPATH=str(AT_PLACE),
            AT_PLACE_PLANS=str(plans),
            AT_PLACE_WHO=who,
        )
        code = controller.wait(timeout=1200)
        allowed = {0, 130, *(-number for number in SIGNALS["controller"])}
        assert code in (allowed if who == "controller" else {0}), f"{code}, seed {SEED}"
        if code == 0:
            check(tmp_path, errors)
            draw_again(plans, rng)
    sent = len(list(plans.glob("sent.*")))
    print(f"{who}, seed {SEED}: {sent} signals sent at exact places")
    assert sent == kills


def draw_again(plans: Path, rng: random.Random) -> None:
    """Give the plans of processes that ended before their place an earlier one."""
    for taken in plans.glob("taken.*"):
        number = taken.suffixes[0][1:]
        if not (plans / f"sent.{number}").exists():
            place, sign = json.loads(taken.read_text())
            (plans / number).write_text(json.dumps([rng.randrange(1, place + 1), sign]))
        taken.unlink()
