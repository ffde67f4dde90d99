"""`wattkeeper doctor` in every state of a host."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.live.devices.test_limits import Child, train, wait_for_end
from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from wattkeeper.scenarios.cli.main import main


class DoctorOutput(NamedTuple):
    code: int
    findings: dict[str, list[tuple[str, str, str]]]
    devices: list[dict[str, Any]]

    def states(self, what: str) -> list[str]:
        return [state for state, _, _ in self.findings.get(what, ())]

    def text(self, what: str) -> str:
        return "\n".join(f"{found} -> {do}" for _, found, do in self.findings[what])


def doctor(*options: str) -> DoctorOutput:
    """Run the command in this process without torch, whose import is slow."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    done = CliRunner().invoke(main, ["doctor", "--json", *options])
    report = json.loads(done.stdout)
    findings: dict[str, list[tuple[str, str, str]]] = {}
    for finding in report["findings"]:
        findings.setdefault(finding["what"], []).append(
            (finding["state"], finding["found"], finding["do"])
        )
    assert report["can_run_live"] == (done.exit_code == 0)
    return DoctorOutput(done.exit_code, findings, report["devices"])


NAME = "GPU 0 (GPU-0aaaaaaa-0000-0000-0000-000000000000)"


@on_gpus(1)
def test_a_host_without_a_gpu(driver: Driver) -> None:
    os.environ["WATTKEEPER_DEVICE"] = "none"
    output = doctor()
    assert output.states("devices") == ["note"]
    assert_states(output.text("devices"), "energy", "WATTKEEPER_DEVICE is none", "eta: 0")


@on_gpus(1)
def test_faults_for_people(driver: Driver) -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.environ["WATTKEEPER_DEVICE"] = "tpu"
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 3
    (fault,) = (line for line in done.stdout.splitlines() if "'tpu'" in line)
    assert fault.split()[:2] == ["FAULT", "devices"]
    assert_states(fault, "WATTKEEPER_DEVICE", "allowed: none, synthetic:GPU_T")
    assert "FAULT" in done.stdout.splitlines()[-1]
    assert max(map(len, done.stdout.splitlines())) <= 120


@on_gpus(1)
def test_no_torch(driver: Driver) -> None:
    output = doctor()
    assert output.code == 3
    assert output.states("torch") == ["fault"]
    assert_states(output.text("torch"), "pip install 'wattkeeper[live]'", "without torch")


@on_gpus(2)
def test_good_gpus(driver: Driver) -> None:
    output = doctor()
    assert output.states(NAME) == ["good"]
    assert_states(
        output.text(NAME),
        "A100-SXM4-40GB, ",
        "counts its energy, ",
        "draws 300 W, ",
        "0% busy, ",
        "limit 400 W of 100 to 400 W, ",
        "by default 400 W",
    )
    assert output.states("limits") == ["good"]
    assert output.text("limits").endswith(" -> "), "there is nothing to do"
    assert [device["limit_w"] for device in output.devices] == [400, 400]
    assert driver.gpu.limit_mw == 400_000


@on_gpus(1)
def test_no_permission_to_set_limits(driver: Driver) -> None:
    driver.gpu.may_set = 0
    output = doctor()
    assert output.states("limits") == ["note"]
    assert_states(output.text("limits"), "limits stay", "GPU 0", "root")


@on_gpus(1)
def test_no_permission_to_ask_the_driver(driver: Driver) -> None:
    driver.state.init_error = 4
    output = doctor()
    assert output.states("devices") == ["fault"]
    assert "this user needs /dev/nvidiactl" in output.text("devices")


@on_gpus(1)
def test_no_driver(driver: Driver) -> None:
    driver.state.init_error = 9
    output = doctor()
    assert output.states("devices") == ["note"]
    assert_states(output.text("devices"), "no driver", "Load it")


@on_gpus(1)
def test_mig(driver: Driver) -> None:
    driver.gpu.mig = 1
    output = doctor()
    assert output.states("devices") == ["fault"]
    assert_states(output.text("devices"), "MIG", "nvidia-smi -i 0 -mig 0")


@on_gpus(1)
def test_an_unknown_and_busy_gpu(driver: Driver) -> None:
    driver.gpu.has_limits = driver.gpu.counts_energy = 0
    driver.gpu.others = 1
    driver.gpu.pids[0] = 4321
    output = doctor()
    assert output.states(NAME) == ["good", "note", "note", "note"]
    text = output.text(NAME)
    energy, power, others = text.splitlines()[1:]
    assert_states(energy, "does not count its energy -> ", "integrated")
    assert_states(power, "largest power is unknown -> ", "limits stay")
    assert_states(others, "other processes", "(4321) -> ", "counted too")
    driver.gpu.tells_power = 0
    assert "neither energy nor power" in doctor().text(NAME)


@on_gpus(1)
def test_limits_of_a_killed_run_are_restored(driver: Driver) -> None:
    def kill() -> None:
        child = Child(train)
        guard = int(child.read_line())
        os.kill(guard, signal.SIGKILL)
        child.kill()
        wait_for_end(guard)

    kill()
    assert doctor("--look-only").findings.get("limits") is None
    assert driver.gpu.limit_mw == 150_000
    output = doctor()
    assert driver.gpu.limit_mw == 400_000
    assert output.states("limits") == ["good", "note"]
    assert_states(output.text("limits"), "left its power limit behind -> ", "400 W again")
    assert doctor().states("limits") == ["good"]
    kill()
    driver.gpu.may_set = 0
    output = doctor()
    assert output.states("limits") == ["note", "fault"]
    assert_states(output.text("limits"), "It was 400 W; ", "GPU 0")


@on_gpus(1)
def test_a_state_folder_that_cannot_be_written(driver: Driver) -> None:
    os.environ["WATTKEEPER_STATE"] = "/proc/wattkeeper"
    output = doctor("--look-only")
    assert output.states("state") == ["fault"]
    assert_states(output.text("state"), "/proc/wattkeeper", "WATTKEEPER_STATE")
