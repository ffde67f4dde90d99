"""Live runs whose controller and sessions are killed: nothing is lost, nothing counts twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    environment,
    kill,
    learnt,
    manifest,
    processes,
    run,
    scenario,
)
from tests.support.processes import until
from wattkeeper.live.controller import processes as processes_of_host
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.wire.client import RUN


def test_a_process_that_has_just_been_started_is_killed() -> None:
    """Linux does not show its environment at once."""
    for number in range(20):
        young = {RUN: f"young#{number}.{os.getpid()}"}
        process = subprocess.Popen(["sleep", "60"], env=os.environ | young)
        processes_of_host.kill(young[RUN], process)
        assert process.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("kills", "recurrences"), [(6, 8), pytest.param(100, 60, marks=pytest.mark.slow)]
)
def test_killed_live_runs_go_on(kills: int, recurrences: int, tmp_path: Path) -> None:
    # Nothing is profiled: who is killed after it was profiled is not profiled again, and costs less
    # than the simulator knows.
    policies = {"configure": "zeus", "tune": {"kind": "fixed-power", "power_limit_w": 150.0}}
    content = REHEARSED | {"variants": {"zeus": {"policies": policies}}}
    path = scenario(tmp_path, content, recurrences=recurrences, workloads=["recommendation"])
    run(path, "--out", "sim", cwd=tmp_path)
    rng = random.Random(kills)
    killed = starts = 0
    code = None
    while code != 0:
        assert code in {None, -9}, "a controller failed by itself"
        controller = subprocess.Popen(
            command("run", path, "--live", "--out", "live"),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
        )
        starts += 1
        while (code := controller.poll()) is None:
            time.sleep(rng.uniform(0.01, 0.5))
            sessions = [pid for pid, guard in processes(tmp_path).items() if not guard]
            if killed >= kills or not sessions:
                continue
            who = rng.choice(["session", "controller", "both"])
            if who != "controller":
                killed += kill(rng.choice(sessions))
            if who != "session":
                killed += kill(controller.pid)
                controller.wait()
    assert killed >= min(kills, 5)
    assert starts > 1
    assert learnt(tmp_path / "live") == learnt(tmp_path / "sim")
    assert set(manifest(tmp_path / "live")["live"]["causes"]) <= {"reached", "bound", "crashed"}
    wait_for_guards(tmp_path)
    devices = [SyntheticDevice(file) for file in tmp_path.glob("live.live/zeus/1/devices/*")]
    assert devices
    for device in devices:
        assert device.limits is not None
        assert device.limit_w() == device.limits.default_w


def wait_for_guards(folder: Path) -> None:
    until(lambda: not processes(folder))
