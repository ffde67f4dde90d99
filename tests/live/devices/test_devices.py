"""Devices that need no driver: CPU packages, synthetic GPUs, and their clock."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.processes import until
from wattkeeper.live import devices
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.energy_meter import EnergyMeter
from wattkeeper.live.devices.rapl import cpu_type, packages
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.policies.errors import (
    DeviceError,
    DeviceLost,
    InputError,
    NoPermission,
    NotSupported,
)

RANGE_UJ = 20_000_000


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))


def add_zone(root: Path, zone: str, name: str, energy_uj: int) -> Path:
    folder = root / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


def test_cpu_packages(tmp_path: Path) -> None:
    for zone, name in (
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl-mmio:0", "package-0"),
        ("dtpm", "dtpm"),
    ):
        add_zone(tmp_path, zone, name, 5)
    cpus = packages(tmp_path)
    assert [package.name for package in cpus] == ["package-0", "package-1"]
    assert all(package.uuid.endswith(f"/{package.name}") for package in cpus)
    assert cpus[0].limits is None
    for ask in (cpus[0].power_w, cpus[0].utilisation, cpus[0].limit_w):
        with pytest.raises(NotSupported):
            ask()
    with pytest.raises(NotSupported):
        cpus[0].set_limit_w(100)
    assert packages(tmp_path / "nowhere") == []


@settings(max_examples=30)
@given(st.lists(st.integers(0, RANGE_UJ - 1), max_size=8), st.integers(0, RANGE_UJ - 1))
def test_the_counter_of_a_package_wraps(steps: list[int], begins: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        zone = add_zone(Path(root), "intel-rapl:0", "package-0", begins)
        (package,) = packages(Path(root))
        total = 0
        for step in steps:
            total += step
            (zone / "energy_uj").write_text(str((begins + total) % RANGE_UJ))
            assert package.energy_j() == total / 1e6


def test_the_meter_reads_often_enough_for_the_wraps(tmp_path: Path) -> None:
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (package,) = packages(tmp_path)
    assert package.read_every_s is not None
    meter = EnergyMeter([package], WallClock())
    total = 0

    def is_counted() -> bool:
        return package._counted_uj == total

    for _ in range(5):
        total += RANGE_UJ * 6 // 10
        new = tmp_path / "new"
        new.write_text(str(total % RANGE_UJ))
        new.replace(zone / "energy_uj")
        until(is_counted)
    reading = meter.read()
    assert (reading.energy_j, reading.how) == (total / 1e6, "counter")
    meter.close()


@contextmanager
def not_root() -> Iterator[None]:
    """Run the block as a user other than root."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_counter_that_this_user_may_not_read() -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        zone = add_zone(Path(root), "intel-rapl:0", "package-0", 0)
        (zone / "energy_uj").chmod(0)
        with not_root(), pytest.raises(NoPermission, match=r"sudo chmod a\+r .*:\*/energy_uj"):
            packages(Path(root))
        (zone / "energy_uj").unlink()
        with pytest.raises(DeviceLost, match="energy_uj cannot be read"):
            packages(Path(root))


def test_names_of_cpus(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    assert cpu_type(info) == "CPU"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\n")
    assert cpu_type(info) == "AMD EPYC 7763 64-Core Processor"


# --- synthetic GPUs


def synthetic(path: Path, wall: WallClock | None = None) -> SyntheticDevice:
    return SyntheticDevice.create(path, "V100", PowerRange(100, 250, 250), 40, wall or WallClock())


powers = st.floats(0, 1000)
draws = st.one_of(st.none(), st.dictionaries(st.sampled_from([100.0, 175.0, 250.0]), powers))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1e4), draws), max_size=8), st.sampled_from([100.0, 250.0]))
def test_energy_is_the_integral_of_power(
    steps: list[tuple[float, dict[float, float] | None]], limit_w: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gpu = synthetic(Path(folder) / "gpu")
        gpu.set_limit_w(limit_w)
        now_s = begun_s = gpu.state().since_s
        energy_j = begun_j = gpu.energy_j(now_s)
        for seconds, draw in steps:
            energy_j += gpu.power_w() * seconds
            now_s += seconds
            gpu.draw(draw, now_s) if draw else gpu.rest(now_s)
            busy = sorted((draw or {}).items())
            if not busy:
                assert gpu.power_w() == 40
            elif limit_w == 100:
                assert gpu.power_w() == busy[0][1]
            else:
                assert gpu.power_w() == busy[-1][1]
            assert gpu.energy_j(now_s) - begun_j == pytest.approx(energy_j - begun_j, abs=1e-3)
        assert gpu.energy_j(begun_s) == gpu.energy_j(now_s), "what is over is over"


def test_power_follows_the_limit(tmp_path: Path) -> None:
    gpu = synthetic(tmp_path / "gpu")
    other = SyntheticDevice(tmp_path / "gpu")
    gpu.draw({100: 90, 200: 150})
    assert gpu.utilisation() == 1
    for limit_w, power_w in ((250, 150), (200, 150), (150, 120), (100, 90)):
        other.set_limit_w(limit_w)
        assert (gpu.limit_w(), gpu.power_w()) == (limit_w, power_w)
    with pytest.raises(DeviceError, match="allowed: 100 to 250 W"):
        gpu.set_limit_w(99)
    gpu.rest()
    assert (other.power_w(), other.utilisation()) == (40, 0)


def test_a_meter_on_a_compressed_clock(tmp_path: Path) -> None:
    """Time and energy of one reading belong together, whatever the host does meanwhile."""
    wall = WallClock(1000, time.monotonic())
    gpu = synthetic(tmp_path / "gpu", wall)
    gpu.draw({250: 200})
    meter = EnergyMeter([gpu, synthetic(tmp_path / "idle", wall)], wall)
    wall.sleep_until(wall.now_s() + 50)
    reading = meter.read()
    assert reading.time_s >= 50
    assert reading.energy_j == pytest.approx(240 * reading.time_s)
    assert reading.how == "synthetic"
    assert threading.active_count() == 1
    assert EnergyMeter([], wall).read().energy_j is None


def test_the_variable_selects_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def select(wanted: str) -> list[str]:
        monkeypatch.setenv("WATTKEEPER_DEVICE", wanted)
        return [device.gpu_type for device in devices.find_devices()]

    assert select("none") == []
    assert select("synthetic:SYN-250W") == ["SYN-250W"]
    (gpu,) = devices.find_devices()
    assert gpu.power_w() == 250, "it is busy by default"
    gpu.set_limit_w(120)
    assert devices.find_devices()[0].power_w() == 120, "it is the same device"
    assert devices.find_device(gpu.uuid).power_w() == 120
    monkeypatch.setenv("WATTKEEPER_SPEED", "10")
    assert devices.find_devices()[0].power_w() == 250, "a clock of another run: a new device"
    path = tmp_path / "gpu"
    synthetic(path)
    assert select(f"synthetic:{path},{path}") == ["V100", "V100"]
    for wrong, message in (
        ("tpu", "'tpu'; allowed: none, synthetic:GPU_TYPE"),
        ("synthetic:", "allowed: none"),
        ("synthetic:H100", r"'H100'.*SYN-250W, SYN-400W"),
    ):
        with pytest.raises(InputError, match=message):
            select(wrong)
    with pytest.raises(DeviceLost, match=f"{tmp_path}/nothing"):
        select(f"synthetic:{tmp_path}/nothing")
    path.write_text("{}")
    with pytest.raises(InputError, match=rf"{path}.*no synthetic device"):
        select(f"synthetic:{path}")


# --- the clock


def test_the_clock_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WallClock.from_environment().speed == 1
    wall = WallClock(250.5, 12.25)
    for name, value in wall.environment().items():
        monkeypatch.setenv(name, value)
    other = WallClock.from_environment()
    assert (other.speed, other.begun_s) == (250.5, 12.25)
    for name, value, message in (
        ("WATTKEEPER_BEGUN_S", "noon", r"WATTKEEPER_BEGUN_S is 'noon'.*number"),
        ("WATTKEEPER_SPEED", "0", r"WATTKEEPER_SPEED is 0.*above 0"),
        ("WATTKEEPER_SPEED", "inf", r"WATTKEEPER_SPEED is .*inf.*number"),
    ):
        monkeypatch.setenv(name, value)
        with pytest.raises(InputError, match=message):
            WallClock.from_environment()
        monkeypatch.delenv(name)


def test_examples_of_the_documentation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).resolve().parents[3] / "docs/devices.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.setenv("WATTKEEPER_DEVICE", "synthetic:SYN-250W")
    for block in blocks:
        exec(block, {})
    assert re.fullmatch(
        r"Reading\(time_s=.*, energy_j=.*, how='synthetic'\)\n", capsys.readouterr().out
    )
    monkeypatch.setenv("WATTKEEPER_DEVICE", "none")
    exec(blocks[1], {})
    assert capsys.readouterr().out == "no device takes power limits\n"
