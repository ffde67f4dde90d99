"""Locked clocks: set, refused, and unlocked again after errors, signals and kills."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.devices.test_doctor import doctor
from tests.live.devices.test_limits import (
    BEFORE_MW,
    Child,
    guard_of,
    kill_with_guard,
    settle,
    wait_for_end,
)
from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from wattkeeper.live import devices
from wattkeeper.live.devices import limit_journal
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.live.devices.synthetic import SIZE, SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.policies.errors import DeviceError, NoPermission, NotSupported

CLOCKS = tuple(range(210, 1411, 15))


def locked(driver: Driver) -> tuple[int, int]:
    """The range that the first GPU is locked to, MHz; zeros: it is not."""
    return driver.gpu.lowest_lock_mhz, driver.gpu.highest_lock_mhz


def train(say: Callable[[object], None]) -> None:
    """Lock a clock, send the process id of the guard, and run until killed."""
    with PowerLimiter(devices.find_devices(), clocks=True) as limiter:
        assert limiter.lock_mhz(750), limiter.why
        assert limiter.set_w(150)
        say(guard_of(limiter))
        time.sleep(600)


@contextmanager
def expect_unlocked(driver: Driver) -> Iterator[None]:
    """Check after the block that the clock is free and the limit restored."""
    driver.gpu.limit_mw = BEFORE_MW
    yield
    (gpu,) = devices.find_devices()
    settle(gpu.uuid)
    assert locked(driver) == (0, 0)
    assert driver.gpu.limit_mw == BEFORE_MW
    assert not list(limit_journal.folder().glob("*.json"))


@on_gpus(1)
def test_a_clock_is_locked_while_it_is_entered(driver: Driver) -> None:
    (gpu,) = devices.find_devices()
    assert gpu.clocks_mhz == CLOCKS
    with expect_unlocked(driver):
        with PowerLimiter([gpu], clocks=True) as limiter:
            assert limiter.lock_mhz(750)
            assert locked(driver) == (750, 750)
            with pytest.raises(DeviceError) as caught:
                limiter.lock_mhz(751)
            assert_states(str(caught.value), "751 MHz", "81 clocks", "210", "1410", "GPU 0")
            limiter.unlock()
            assert locked(driver) == (0, 0)
            limiter.lock_mhz(1410)
        assert locked(driver) == (0, 0)
        assert not limiter.lock_mhz(750)


@on_gpus(1)
def test_clocks_stay_as_they_are_unless_they_are_asked_for(driver: Driver) -> None:
    driver.gpu.lowest_lock_mhz = driver.gpu.highest_lock_mhz = 900  # an administrator's
    with PowerLimiter(devices.find_devices()) as limiter:
        assert limiter.set_w(150)
        assert not limiter.lock_mhz(750)
        limiter.unlock()
    with PowerLimiter(devices.find_devices(), "off", clocks=True) as limiter:
        assert not limiter.lock_mhz(750)
    assert locked(driver) == (900, 900)
    assert driver.gpu.locks == 0


@on_gpus(1)
def test_a_gpu_without_limits_may_have_clocks(driver: Driver) -> None:
    driver.gpu.has_limits = 0
    with PowerLimiter(devices.find_devices(), clocks=True) as limiter:
        assert limiter.lock_mhz(750), limiter.why
        assert locked(driver) == (750, 750)
    assert locked(driver) == (0, 0)


@on_gpus(1)
def test_clocks_that_cannot_be_locked(driver: Driver) -> None:
    driver.gpu.may_lock = 0
    (gpu,) = devices.find_devices()
    with pytest.raises(NoPermission, match="root"):
        gpu.lock_clock_mhz(750)
    with PowerLimiter([gpu], clocks=True) as limiter:
        assert_states(limiter.why, "GPU 0", "root", "clocks")
        assert not limiter.lock_mhz(750)
    settle(gpu.uuid)
    assert not list(limit_journal.folder().glob("*.json")), "nothing was changed"
    with PowerLimiter([gpu]) as limiter:
        assert limiter.set_w(150), "limits may be set"
    driver.gpu.clocks = 0
    (gpu,) = devices.find_devices()
    assert gpu.clocks_mhz == ()
    with pytest.raises(NotSupported, match="cannot be locked"):
        gpu.lock_clock_mhz(750)
    with PowerLimiter([gpu], clocks=True) as limiter:
        assert limiter.why == f"{gpu.uuid} takes no locked clocks"


@on_gpus(1)
def test_sigterm_unlocks(driver: Driver) -> None:
    with expect_unlocked(driver):
        child = Child(train)
        child.read_line()
        assert locked(driver) == (750, 750)
        assert child.kill(signal.SIGTERM) == -signal.SIGTERM
        assert locked(driver) == (0, 0), "by the process, not by its guard later"


@on_gpus(1)
def test_the_guard_unlocks_after_a_kill(driver: Driver) -> None:
    with expect_unlocked(driver):
        child = Child(train)
        child.read_line()
        assert child.kill() == -signal.SIGKILL


@on_gpus(1)
def test_a_killed_guard_is_replaced_and_the_lock_stays(driver: Driver) -> None:
    with expect_unlocked(driver), PowerLimiter(devices.find_devices(), clocks=True) as limiter:
        limiter.lock_mhz(750)
        guard = guard_of(limiter)
        os.kill(guard, signal.SIGKILL)
        wait_for_end(guard) if limiter._guard is None else limiter._guard.wait()
        assert limiter.set_w(200)
        assert locked(driver) == (750, 750)


@on_gpus(1)
def test_what_a_kill_of_both_left_is_undone_later(driver: Driver) -> None:
    def kill_both() -> None:
        kill_with_guard(train)
        assert locked(driver) == (750, 750)

    with expect_unlocked(driver):
        kill_both()
        output = doctor()
        assert_states(
            output.text("limits"),
            "left its power limit and locked clock behind",
            "320 W again, and it is unlocked",
        )
        assert locked(driver) == (0, 0)
        kill_both()
        driver.gpu.may_lock = 0
        output = doctor()
        assert output.states("limits") == ["note", "fault"]
        assert_states(output.text("limits"), "locked clock behind", "root")
        driver.gpu.may_lock = 1
        with PowerLimiter(devices.find_devices()) as limiter:
            assert [(one.record.clocks, one.error) for one in limiter.undone] == [(True, "")]


@on_gpus(1)
def test_records_of_before_are_restored(driver: Driver) -> None:
    (gpu,) = devices.find_devices()
    limit_journal.save(limit_journal.LimitEntry(gpu.uuid, 320.0, 1, 0))
    path = limit_journal.path(gpu.uuid)
    record = json.loads(path.read_bytes())
    del record["clocks"]
    path.write_text(json.dumps(record), encoding="ascii")
    ((restored, error),) = limit_journal.recover()
    assert (restored.before_w, restored.clocks, error) == (320.0, False, "")
    assert driver.gpu.limit_mw == BEFORE_MW
    assert driver.gpu.locks == 0


@on_gpus(1)
def test_the_doctor_says_whether_clocks_can_be_locked(driver: Driver) -> None:
    output = doctor()
    assert output.states("clocks") == ["good"]
    assert_states(
        output.text("GPU 0 (GPU-0aaaaaaa-0000-0000-0000-000000000000)"),
        "81 clocks from 210 to 1410 MHz",
    )
    assert locked(driver) == (0, 0)
    driver.gpu.may_lock = 0
    output = doctor()
    assert output.states("clocks") == ["note"]
    assert_states(output.text("clocks"), "clocks stay as they are", "root")
    driver.gpu.clocks = 0
    assert doctor().findings.get("clocks") is None


class Hand(WallClock):
    """A clock that is put forward by hand."""

    time_s = 0.0

    def now_s(self) -> float:
        return self.time_s


def test_a_synthetic_device_draws_by_its_clock(tmp_path: Path) -> None:
    wall = Hand()
    device = SyntheticDevice.create(
        tmp_path / "gpu", "T", PowerRange(100, 300, 300), 20.0, wall, (600, 900)
    )
    device.wall = wall
    device.draw({100: 90.0, 300: 250.0}, by_clock_w={600: 120.0, 900: 180.0})
    for change, power_w in (
        (lambda: None, 250.0),
        (lambda: device.lock_clock_mhz(600), 120.0),
        (lambda: device.set_limit_w(100), 90.0),
        (lambda: device.lock_clock_mhz(900), 90.0),
        (lambda: device.set_limit_w(300), 180.0),
        (device.unlock_clock, 250.0),
        (device.rest, 20.0),
    ):
        change()
        before_j = device.energy_j()
        wall.time_s += 10
        assert device.energy_j() - before_j == pytest.approx(10 * power_w)
    with pytest.raises(DeviceError, match="2 clocks from 600 to 900 MHz"):
        device.lock_clock_mhz(700)


def test_a_synthetic_device_of_before_has_no_clocks(tmp_path: Path) -> None:
    path = tmp_path / "gpu"
    device = SyntheticDevice.create(path, "T", PowerRange(100, 300, 300), 20.0, WallClock())
    values = device.state()._asdict()
    for name in ("clocks_mhz", "clock_mhz", "busy_clocks"):
        del values[name]
    path.write_bytes(json.dumps(values).encode().ljust(SIZE))
    old = SyntheticDevice(path)
    assert old.clocks_mhz == ()
    with pytest.raises(NotSupported, match="cannot be locked"):
        old.unlock_clock()
