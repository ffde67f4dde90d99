"""NVIDIA GPUs, through the real pynvml, with a driver of the tests' own (tests/support/nvml.c)."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, cast

import pytest

from tests.support.nvml import Driver, on_gpus
from wattkeeper.live import devices
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.energy_meter import EnergyMeter
from wattkeeper.live.devices.nvml import NvmlGpu, gpus
from wattkeeper.live.devices.nvml_errors import NoDriver
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.policies.errors import (
    DeviceError,
    DeviceLost,
    EnvironmentLacks,
    InputError,
    NoPermission,
    NotSupported,
)


def meter(driver: Driver) -> EnergyMeter:
    """A meter of all devices on the driver's clock."""
    return EnergyMeter(devices.find_devices(), cast(WallClock, driver))


def only_gpu() -> NvmlGpu:
    (gpu,) = devices.find_devices()
    assert isinstance(gpu, NvmlGpu)
    return gpu


@on_gpus(1)
def test_readings_of_a_gpu(driver: Driver) -> None:
    driver.gpu.busy_percent = 83
    gpu = only_gpu()
    assert gpu.uuid == "GPU-0aaaaaaa-0000-0000-0000-000000000000"
    assert gpu.gpu_type == "A100-SXM4-40GB"
    assert gpu.limits == PowerRange(100, 400, 400)
    assert gpu.has_counter
    assert gpu.read_every_s is None
    assert gpu.power_w() == 300
    assert gpu.utilisation() == 0.83
    assert gpu.limit_w() == 400
    assert devices.find_device(gpu.uuid).uuid == gpu.uuid
    assert devices.explain_absence() == ""


@on_gpus(2)
def test_energy_of_counters(driver: Driver) -> None:
    driver.state.gpu[1].energy_j = 5000
    measured = meter(driver)
    assert measured.read() == (0, 0, "counter")
    driver.advance(10)
    assert measured.read() == (10, 6000, "counter")
    for gpu in devices.find_devices():
        gpu.set_limit_w(150)
    driver.advance(10)
    assert measured.read() == (20, 9000, "counter")
    measured.begin()
    driver.advance(2)
    assert measured.read() == (2, 600, "counter")
    assert threading.active_count() == 1, "who counts need not be read again and again"
    measured.close()


@on_gpus(2)
def test_energy_integrated_where_a_counter_is_missing(driver: Driver) -> None:
    """The power rises evenly, so that trapezoids are exact whenever the thread reads it."""
    driver.gpu.counts_energy = 0
    driver.gpu.demand_w, driver.gpu.ramp_w_per_s = 50, 10
    measured = meter(driver)
    for _ in range(20):
        driver.advance(1)
        threading.Event().wait(0.02)
    reading = measured.read()
    assert reading.how == "integrated"
    assert reading.time_s == 20
    assert reading.energy_j == pytest.approx(50 * 20 + 10 * 20**2 / 2 + 300 * 20)
    measured.close()
    assert threading.active_count() == 1


@on_gpus(2)
def test_energy_is_absent_where_one_gpu_measures_nothing(driver: Driver) -> None:
    driver.gpu.counts_energy = driver.gpu.tells_power = 0
    measured = meter(driver)
    driver.advance(3)
    assert measured.read() == (3, None, "absent")
    with pytest.raises(NotSupported, match=r"GPU 0 \(GPU-0a.*does not do that"):
        devices.find_devices()[0].energy_j()


@on_gpus(1)
def test_a_counter_that_begins_anew(driver: Driver) -> None:
    driver.gpu.energy_j = 100
    measured = meter(driver)
    driver.gpu.energy_j = 0
    with pytest.raises(DeviceLost, match=r"began anew.*driver"):
        measured.read()


@on_gpus(1)
def test_limits(driver: Driver) -> None:
    gpu = only_gpu()
    gpu.set_limit_w(212.5)
    assert driver.gpu.limit_mw == 212_500
    assert gpu.limit_w() == 212.5
    for wrong_w in (99.9, 400.1):
        with pytest.raises(DeviceError, match=rf"{wrong_w}.*100 to 400 W"):
            gpu.set_limit_w(wrong_w)
    assert driver.gpu.sets == 1


@on_gpus(1)
def test_a_limit_that_only_the_driver_refuses(driver: Driver) -> None:
    gpu = only_gpu()
    cast(Any, driver.gpu).highest_mw = 300_000
    with pytest.raises(DeviceError, match=r"GPU 0 .*driver.*out of range"):
        gpu.set_limit_w(350)


@on_gpus(1)
def test_permission_refused(driver: Driver) -> None:
    driver.gpu.may_set = 0
    with pytest.raises(NoPermission, match="root"):
        only_gpu().set_limit_w(200)
    with PowerLimiter(devices.find_devices()) as limiter:
        assert not limiter.allowed
        assert "takes root" in limiter.why
        assert not limiter.set_w(200)
    assert driver.gpu.limit_mw == 400_000


@on_gpus(1)
def test_a_gpu_without_limits(driver: Driver) -> None:
    driver.gpu.has_limits = 0
    gpu = only_gpu()
    assert gpu.limits is None
    with pytest.raises(NotSupported):
        gpu.limit_w()
    with pytest.raises(NotSupported):
        gpu.set_limit_w(200)
    with PowerLimiter([gpu]) as limiter:
        assert not limiter.allowed
        assert limiter.why == f"{gpu.uuid} takes no power limit"


@on_gpus(1)
def test_a_gpu_that_is_lost_in_mid_run(driver: Driver) -> None:
    gpu, measured = only_gpu(), meter(driver)
    driver.gpu.lost_at_s = 5
    driver.advance(4)
    assert measured.read().energy_j == 1200
    driver.advance(1)
    for ask in (measured.read, gpu.power_w, gpu.utilisation, gpu.limit_w, gpu.energy_j):
        with pytest.raises(DeviceLost, match=r"fallen off the bus.*`dmesg`"):
            ask()
    for find in (devices.find_devices, lambda: devices.find_device(gpu.uuid)):
        with pytest.raises(DeviceLost):
            find()
    with pytest.raises(DeviceLost, match="UUID GPU-9"):
        devices.find_device("GPU-9")


@on_gpus(1)
def test_a_gpu_that_is_lost_while_its_power_is_integrated(driver: Driver) -> None:
    """The error occurs in the thread, and the next reading raises it."""
    driver.gpu.counts_energy = 0
    measured = meter(driver)
    driver.gpu.lost_at_s = 1
    driver.advance(1)
    assert measured._thread is not None
    measured._thread.join()
    driver.gpu.lost_at_s = 0
    with pytest.raises(DeviceLost, match="fallen off"):
        measured.read()


@on_gpus(1)
def test_mig(driver: Driver) -> None:
    driver.gpu.mig = 1
    with pytest.raises(NotSupported, match=r"MIG mode.*nvidia-smi -i 0 -mig 0"):
        devices.find_devices()
    os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-1234"
    with pytest.raises(NotSupported, match=r"MIG-1234.*MIG mode"):
        devices.find_devices()
    os.environ["WATTKEEPER_DEVICE"] = "none"
    assert devices.find_devices() == []
    assert "WATTKEEPER_DEVICE is none" in devices.explain_absence()


@on_gpus(1)
def test_a_gpu_older_than_mig(driver: Driver) -> None:
    driver.gpu.mig = 2
    assert only_gpu().power_w() == 300


@on_gpus(4)
def test_gpus_that_cuda_shows(driver: Driver) -> None:
    """As CUDA reads its variable: in that order, and nothing behind the first that is not there."""
    for visible, indices in {
        None: [0, 1, 2, 3],
        "2,1": [2, 1],
        "0,2,-1,1": [0, 2],
        "": [],
        "-1": [],
        "4,0": [],
        "GPU-2aaaaaaa-0000-0000-0000-000000000000": [2],
        " gpu-1, 0": [],
        "GPU-3aaaa,0": [3, 0],
        "GPU-": [],
        "GPU-9": [],
        "abc": [],
    }.items():
        assert [gpu.index for gpu in gpus(visible)] == indices, visible
    with pytest.raises(InputError, match=r"which names GPU-1.* twice"):
        gpus("1,GPU-1")


@on_gpus(2)
def test_a_broken_gpu_that_is_not_visible_is_ignored(driver: Driver) -> None:
    driver.gpu.mig = 1
    assert [gpu.index for gpu in gpus("1")] == [1]


@on_gpus(2)
def test_indices_of_several_types_need_an_order(driver: Driver) -> None:
    driver.gpu.name = b"Tesla V100-PCIE-16GB"
    assert [gpu.gpu_type for gpu in gpus("1,0", "PCI_BUS_ID")] == [
        "A100-SXM4-40GB",
        "V100-PCIE-16GB",
    ]
    assert [gpu.index for gpu in gpus("GPU-1")] == [1]
    with pytest.raises(InputError, match=r"A100-SXM4-40GB, V100-PCIE-16GB.* CUDA_DEVICE_ORDER"):
        gpus("1")


@on_gpus(1)
def test_other_processes_on_a_gpu(driver: Driver) -> None:
    assert only_gpu().others() == ()
    driver.gpu.others = 3
    driver.gpu.pids[:3] = [4321, os.getpid(), 1234]
    assert only_gpu().others() == (1234, 4321)


@on_gpus(1)
def test_drivers_that_do_not_answer(driver: Driver) -> None:
    for code, kind, says in (
        (4, NoPermission, "/dev/nvidiactl"),
        (17, NoPermission, "refuses access"),
        (18, EnvironmentLacks, r"updated.*old one"),
        (16, DeviceLost, r"reset.*nvidia-smi -r"),
        (999, DeviceError, r"999 .*nvidia-smi"),
    ):
        driver.state.init_error = code
        with pytest.raises(kind, match=says):
            devices.find_devices()


@on_gpus(1)
def test_a_driver_that_is_not_loaded(driver: Driver) -> None:
    driver.state.init_error = 9
    with pytest.raises(NoDriver, match="no driver"):
        gpus()
    assert devices.find_devices() == []
    assert "no driver" in devices.explain_absence()


@on_gpus(1)
def test_no_pynvml(driver: Driver) -> None:
    sys.modules["pynvml"] = None  # type: ignore[assignment]  # as if it were not installed
    with pytest.raises(EnvironmentLacks, match=r"pip install 'wattkeeper\[live\]'"):
        devices.find_devices()
