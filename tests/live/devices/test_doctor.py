"""`wattkeeper doctor` in every state that a user can meet."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.live.devices.test_limits import Child, gone, trains
from tests.support.nvml import Driver, on_gpus
from wattkeeper.scenarios.cli.main import main


class Said(NamedTuple):
    code: int
    findings: dict[str, list[tuple[str, str, str]]]
    devices: list[dict[str, Any]]

    def states(self, what: str) -> list[str]:
        return [state for state, _, _ in self.findings.get(what, ())]

    def text(self, what: str) -> str:
        return "\n".join(f"{found} -> {do}" for _, found, do in self.findings[what])


def doctor(*options: str) -> Said:
    """What it says in this process, where torch is taken for missing: that saves its import."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    done = CliRunner().invoke(main, ["doctor", "--json", *options])
    report = json.loads(done.stdout)
    findings: dict[str, list[tuple[str, str, str]]] = {}
    for one in report["findings"]:
        findings.setdefault(one["what"], []).append((one["state"], one["found"], one["do"]))
    assert report["can_run_live"] == (done.exit_code == 0)
    return Said(done.exit_code, findings, report["devices"])


NAME = "GPU 0 (GPU-0aaaaaaa-0000-0000-0000-000000000000)"


@on_gpus(1)
def test_a_host_without_a_gpu(driver: Driver) -> None:
    os.environ["WATTKEEPER_DEVICE"] = "none"
    said = doctor()
    assert said.states("devices") == ["note"]
    assert "no device here measures energy\nWATTKEEPER_DEVICE is none" in said.text("devices")
    assert "only time can be saved (eta: 0)" in said.text("devices")


@on_gpus(1)
def test_faults_for_people(driver: Driver) -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.environ["WATTKEEPER_DEVICE"] = "tpu"
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 3
    assert "FAULT  devices     WATTKEEPER_DEVICE is 'tpu'; allowed: none, synthetic:GPU_T" in (
        done.stdout
    )
    assert done.stdout.endswith("see what is marked FAULT.\n")
    assert max(map(len, done.stdout.splitlines())) <= 120


@on_gpus(1)
def test_no_torch(driver: Driver) -> None:
    said = doctor()
    assert said.code == 3
    assert said.states("torch") == ["fault"]
    assert "pip install 'wattkeeper[live]'; a script of yours without torch needs none" in (
        said.text("torch")
    )


@on_gpus(2)
def test_good_gpus(driver: Driver) -> None:
    said = doctor()
    assert said.states(NAME) == ["good"]
    assert said.text(NAME).startswith(
        "A100-SXM4-40GB, counts its energy, draws 300 W, 0% busy, "
        "limit 400 W of 100 to 400 W, by default 400 W"
    )
    assert said.text("limits") == "power limits can be set -> "
    assert [device["limit_w"] for device in said.devices] == [400, 400]
    assert driver.gpu.limit_mw == 400_000


@on_gpus(1)
def test_no_permission_to_set_limits(driver: Driver) -> None:
    driver.gpu.may_set = 0
    said = doctor()
    assert said.states("limits") == ["note"]
    assert "power limits stay as they are: GPU 0" in said.text("limits")
    assert "takes root" in said.text("limits")


@on_gpus(1)
def test_no_permission_to_ask_the_driver(driver: Driver) -> None:
    driver.state.init_error = 4
    said = doctor()
    assert said.states("devices") == ["fault"]
    assert "this user needs /dev/nvidiactl" in said.text("devices")


@on_gpus(1)
def test_no_driver(driver: Driver) -> None:
    driver.state.init_error = 9
    said = doctor()
    assert said.states("devices") == ["note"]
    assert "no driver is loaded. Load it" in said.text("devices")


@on_gpus(1)
def test_mig(driver: Driver) -> None:
    driver.gpu.mig = 1
    said = doctor()
    assert said.states("devices") == ["fault"]
    assert "Turn MIG off (nvidia-smi -i 0 -mig 0" in said.text("devices")


@on_gpus(1)
def test_an_unknown_and_busy_gpu(driver: Driver) -> None:
    driver.gpu.has_limits = driver.gpu.counts_energy = 0
    driver.gpu.others = 1
    driver.gpu.pids[0] = 4321
    said = doctor()
    assert said.states(NAME) == ["good", "note", "note", "note"]
    text = said.text(NAME)
    assert "does not count its energy -> energy is integrated from its power" in text
    assert "so its largest power is unknown -> limits stay as they are" in text
    assert "other processes compute on it (4321) -> their energy is counted too" in text
    driver.gpu.tells_power = 0
    assert "it tells neither energy nor power" in doctor().text(NAME)


@on_gpus(1)
def test_what_a_killed_run_left_behind(driver: Driver) -> None:
    def kill() -> None:
        child = Child(trains)
        guard = int(child.hears())
        os.kill(guard, signal.SIGKILL)
        child.kill()
        gone(guard)

    kill()
    assert doctor("--look-only").findings.get("limits") is None
    assert driver.gpu.limit_mw == 150_000
    said = doctor()
    assert driver.gpu.limit_mw == 400_000
    assert said.states("limits") == ["good", "note"]
    assert "left its power limit behind -> done: it is 400 W again" in said.text("limits")
    assert doctor().states("limits") == ["good"]
    kill()
    driver.gpu.may_set = 0
    said = doctor()
    assert said.states("limits") == ["note", "fault"]
    assert "It was 400 W; GPU 0" in said.text("limits")


@on_gpus(1)
def test_a_state_folder_that_cannot_be_written(driver: Driver) -> None:
    os.environ["WATTKEEPER_STATE"] = "/proc/wattkeeper"
    said = doctor("--look-only")
    assert said.states("state") == ["fault"]
    assert "set WATTKEEPER_STATE to a folder" in said.text("state")
