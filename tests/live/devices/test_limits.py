"""Power limits are restored after errors and signals, on the GPUs of tests/support/nvml.c."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from tests.support.processes import until
from wattkeeper.live import devices
from wattkeeper.live.devices import limit_journal
from wattkeeper.live.devices.limit_journal import RestoredLimit
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.live.host import process_identity
from wattkeeper.policies.errors import DeviceError, NoPermission

BEFORE_MW = 320_000
"""A limit that an administrator chose, not the default, mW."""


class Child:
    """A forked process that sends lines to this one."""

    def __init__(self, work: Callable[[Callable[[object], None]], None]) -> None:
        reads, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code: Any = 1
            try:
                os.close(reads)
                work(lambda what: _write(writes, what))
                code = 0
            except SystemExit as error:
                code = error.code
            finally:
                os._exit(code)
        os.close(writes)
        self._lines = os.fdopen(reads)

    def read_line(self) -> str:
        return self._lines.readline().strip()

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Kill it; return its exit code, or the negative number of the signal that ended it."""
        os.kill(self.pid, number)
        return self.wait()

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _write(file: int, what: object) -> None:
    os.write(file, f"{what}\n".encode())


def train(say: Callable[[object], None]) -> None:
    """Set a limit, send the process id of its guard, and run until killed."""
    with PowerLimiter(devices.find_devices()) as limiter:
        assert limiter.set_w(150), limiter.why
        say(guard_of(limiter))
        time.sleep(600)


def sleep(say: Callable[[object], None]) -> None:
    say("here")
    time.sleep(600)


def close_limiter(limiter: PowerLimiter) -> Callable[[Callable[[object], None]], None]:
    return lambda say: limiter.close()


def guard_of(limiter: PowerLimiter) -> int:
    assert limiter._guard is not None
    return limiter._guard.pid


def settle(uuid: str, seconds: float = 60) -> None:
    """Wait until no guard of the device runs."""
    deadline_s = time.monotonic() + seconds
    while True:
        try:
            with limit_journal.hold_lock(uuid, seconds):
                if not limit_journal.path(uuid).exists() or time.monotonic() > deadline_s:
                    return
        except NoPermission:
            assert time.monotonic() < deadline_s
        time.sleep(0.01)


def restored(undone: list[RestoredLimit]) -> list[tuple[str, float | None, str]]:
    return [(record.uuid, record.before_w, error) for record, error in undone]


def kill_with_guard(train: Callable[[Callable[[object], None]], None]) -> None:
    """Kill a child that trains, and prints the id of its guard, after its guard."""
    child = Child(train)
    guard = int(child.read_line())
    os.kill(guard, signal.SIGKILL)
    child.kill()
    wait_for_end(guard)


def wait_for_end(pid: int) -> None:
    """Wait until a process that is no child of this one has ended."""
    until(lambda: not process_identity.start_ticks(pid))


@contextmanager
def expect_restored(driver: Driver) -> Iterator[None]:
    """Check after the block that all limits are restored."""
    driver.gpu.limit_mw = BEFORE_MW
    yield
    for device in devices.find_devices():
        settle(device.uuid)
    assert driver.gpu.limit_mw == BEFORE_MW
    assert all(driver.state.gpu[index].limit_mw == 400_000 for index in range(1, driver.state.gpus))
    assert not list(limit_journal.folder().glob("*.json"))


@on_gpus(2)
def test_a_limit_holds_while_it_is_entered(driver: Driver) -> None:
    with expect_restored(driver):
        with PowerLimiter(devices.find_devices()) as limiter:
            assert limiter.allowed
            assert limiter.why == ""
            assert driver.gpu.limit_mw == BEFORE_MW, "reading changes nothing"
            assert limiter.set_w(150)
            assert [driver.state.gpu[index].limit_mw for index in (0, 1)] == [150_000] * 2
            with pytest.raises(DeviceError, match="out of range"):
                limiter.set_w(401)
        assert driver.gpu.limit_mw == BEFORE_MW
        assert driver.state.gpu[1].limit_mw == 400_000
        assert not limiter.set_w(150)


@on_gpus(1)
def test_an_error_restores_limits(driver: Driver) -> None:
    with expect_restored(driver):
        limiter = PowerLimiter(devices.find_devices())
        with pytest.raises(ZeroDivisionError), limiter:
            print(1 / (limiter.set_w(150) - 1))
        assert driver.gpu.limit_mw == BEFORE_MW


@on_gpus(1)
def test_power_control_off_touches_nothing(driver: Driver) -> None:
    with PowerLimiter(devices.find_devices(), "off") as limiter:
        assert not limiter.allowed
        assert limiter.why == "power control is off: limits stay as they are"
        assert not limiter.set_w(150)
    assert driver.gpu.sets == 0


@on_gpus(1)
def test_sigterm(driver: Driver) -> None:
    with expect_restored(driver):
        child = Child(train)
        child.read_line()
        assert child.kill(signal.SIGTERM) == -signal.SIGTERM, "it dies of the signal, as ever"
        assert driver.gpu.limit_mw == BEFORE_MW, "restored by the process, not by its guard later"


@on_gpus(1)
def test_handlers_of_the_script_stay(driver: Driver) -> None:
    def handles(early: bool) -> Callable[[Callable[[object], None]], None]:
        def work(say: Callable[[object], None]) -> None:
            def handler(number: int, frame: object) -> None:
                say(f"handled at {driver.gpu.limit_mw}")
                sys.exit(7)

            if early:
                signal.signal(signal.SIGTERM, handler)
            with PowerLimiter(devices.find_devices()) as limiter:
                limiter.set_w(150)
                if not early:
                    signal.signal(signal.SIGTERM, handler)
                say("ready")
                time.sleep(600)

        return work

    for early in (True, False):
        with expect_restored(driver):
            child = Child(handles(early))
            assert child.read_line() == "ready"
            assert child.kill(signal.SIGTERM) == 7
            assert child.read_line() == "handled at 150000"


@on_gpus(1)
def test_an_ignored_sigterm_stays_ignored(driver: Driver) -> None:
    with expect_restored(driver):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with PowerLimiter(devices.find_devices()):
            os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with PowerLimiter(devices.find_devices()):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@on_gpus(1)
def test_forked_workers_do_not_restore_limits(driver: Driver) -> None:
    """A worker exits, one is terminated, and one outlives its parent with the pipe open."""

    def loads(say: Callable[[object], None]) -> None:
        with PowerLimiter(devices.find_devices()) as limiter:
            limiter.set_w(150)
            assert Child(close_limiter(limiter)).wait() == 0
            sleeper = Child(sleep)
            assert sleeper.read_line() == "here"
            assert sleeper.kill(signal.SIGTERM) == -signal.SIGTERM
            say(driver.gpu.limit_mw)
            orphan = Child(sleep)
            orphan.read_line()
            say(orphan.pid)
            time.sleep(600)

    with expect_restored(driver):
        child = Child(loads)
        assert child.read_line() == "150000"
        orphan = int(child.read_line())
        child.kill()
        settle(devices.find_devices()[0].uuid)
        assert driver.gpu.limit_mw == BEFORE_MW
        assert process_identity.start_ticks(orphan)
        os.kill(orphan, signal.SIGKILL)


@on_gpus(1)
def test_a_signal_to_the_group_leaves_the_guard(driver: Driver) -> None:
    with expect_restored(driver):
        child = Child(train)
        guard = int(child.read_line())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard, number)
        child.kill()


@on_gpus(1)
def test_a_killed_guard_is_replaced(driver: Driver) -> None:
    with expect_restored(driver), PowerLimiter(devices.find_devices()) as limiter:
        limiter.set_w(150)
        first = guard_of(limiter)
        os.kill(first, signal.SIGKILL)
        wait_for_end(first)
        assert limiter.set_w(170), limiter.why
        assert guard_of(limiter) != first
        assert driver.gpu.limit_mw == 170_000


@on_gpus(1)
def test_without_its_guard_the_limiter_restores_limits(driver: Driver) -> None:
    with expect_restored(driver):
        with PowerLimiter(devices.find_devices()) as limiter:
            limiter.set_w(150)
            os.kill(guard_of(limiter), signal.SIGKILL)
        assert driver.gpu.limit_mw == BEFORE_MW


@on_gpus(1)
def test_after_both_are_killed_the_next_limiter_restores_limits(driver: Driver) -> None:
    def kill_both() -> None:
        kill_with_guard(train)
        assert driver.gpu.limit_mw == 150_000

    (uuid,) = (device.uuid for device in devices.find_devices())
    with expect_restored(driver):
        kill_both()
        with PowerLimiter(devices.find_devices()) as limiter:
            assert restored(limiter.undone) == [(uuid, 320, "")]
            assert driver.gpu.limit_mw == BEFORE_MW
            assert limiter.allowed
            assert limiter.set_w(200)
        assert driver.gpu.limit_mw == BEFORE_MW
        kill_both()
        driver.gpu.may_set = 0
        ((_, error),) = limit_journal.recover()
        assert "takes root" in error
        assert limit_journal.path(uuid).exists(), "it can be tried again"
        driver.gpu.may_set = 1
        assert restored(limit_journal.recover()) == [(uuid, 320, "")]
        assert limit_journal.recover() == []


@on_gpus(2)
def test_one_process_at_a_time_controls_a_gpu(driver: Driver) -> None:
    with expect_restored(driver):
        child = Child(train)
        guard = int(child.read_line())
        for _ in range(2):
            with PowerLimiter(devices.find_devices()[1:]) as limiter:
                assert not limiter.allowed
                assert f"process {child.pid} " in limiter.why
            assert driver.gpu.limit_mw == 150_000
            os.kill(guard, signal.SIGKILL)  # it still trains, and still controls the GPU
            wait_for_end(guard)
        child.kill(signal.SIGTERM)
    with expect_restored(driver), PowerLimiter(devices.find_devices()[:1]) as limiter:
        assert limiter.allowed
        with PowerLimiter(devices.find_devices()[1:]) as other:
            assert other.allowed


@on_gpus(1)
def test_a_gpu_that_is_lost_while_it_is_limited(driver: Driver) -> None:
    with PowerLimiter(devices.find_devices()) as limiter:
        limiter.set_w(150)
        driver.gpu.lost_at_s = 1
        driver.advance(1)
        with pytest.raises(DeviceError, match="fallen off"):
            limiter.set_w(160)
    driver.gpu.lost_at_s = 0  # after a reset
    assert [undone.error for undone in limit_journal.recover()] == [""]


@on_gpus(1)
def test_a_guard_that_cannot_start(driver: Driver) -> None:
    python, sys.executable = sys.executable, "/bin/false"
    with PowerLimiter(devices.find_devices()) as limiter:
        assert not limiter.allowed
        assert "(exit code 1)" in limiter.why
    sys.executable = python
    assert driver.gpu.sets == 0


@on_gpus(1)
def test_a_guard_that_is_killed_while_it_starts_is_replaced(driver: Driver) -> None:
    starts = driver.file.with_name("starts")
    python = sys.executable
    script = driver.file.with_name("python")
    script.write_text(
        f"#!/bin/sh\necho >> {starts}\n"
        f'[ $(wc -l < {starts}) -gt $KILLED ] && exec {python} "$@"\nkill -$KILL $$\n'
    )
    script.chmod(0o755)
    sys.executable = str(script)
    for number in ("KILL", "TERM"):
        os.environ |= {"KILL": number, "KILLED": "2"}
        starts.unlink(missing_ok=True)
        with expect_restored(driver), PowerLimiter(devices.find_devices()) as limiter:
            assert limiter.set_w(150), limiter.why
            assert driver.gpu.limit_mw == 150_000
        assert len(starts.read_text()) == 3
    os.environ["KILLED"] = "9"
    starts.unlink()
    with PowerLimiter(devices.find_devices()) as limiter:
        assert not limiter.allowed
        assert "(exit code -15)" in limiter.why
    assert len(starts.read_text()) == 3
    sys.executable = python


@on_gpus(1)
def test_without_a_folder_for_records_nothing_is_set(driver: Driver) -> None:
    os.environ["WATTKEEPER_STATE"] = "/proc/wattkeeper"
    with PowerLimiter(devices.find_devices()) as limiter:
        assert not limiter.allowed
        assert_states(limiter.why, "/proc/wattkeeper", "WATTKEEPER_STATE")
    assert driver.gpu.sets == 0


@on_gpus(0)
def test_the_limit_of_a_synthetic_gpu(driver: Driver) -> None:
    os.environ["WATTKEEPER_DEVICE"] = "synthetic:SYN-250W"
    (gpu,) = devices.find_devices()
    child = Child(train)
    child.read_line()
    assert gpu.limit_w() == 150
    child.kill()
    settle(gpu.uuid)
    assert gpu.limit_w() == 250


def kill_often(driver: Driver, count: int) -> None:
    """Kill at random moments a process that changes the limit all the time."""

    def changes(say: Callable[[object], None]) -> None:
        with PowerLimiter(devices.find_devices()) as limiter:
            assert limiter.allowed, limiter.why
            while True:
                limiter.set_w(random.uniform(100, 400))

    (uuid,) = (device.uuid for device in devices.find_devices())
    rng = random.Random(1)
    with expect_restored(driver):
        for number in range(count):
            sets = driver.gpu.sets
            child = Child(changes)
            if number % 5:  # else it is killed while it starts

                def is_limited(goal: int = sets + 2, pid: int = child.pid) -> bool:
                    assert process_identity.start_ticks(pid), "it ended by itself"
                    return driver.gpu.sets >= goal

                until(is_limited)
            time.sleep(rng.uniform(0, 0.1))
            assert child.kill() == -signal.SIGKILL
            settle(uuid)
            assert driver.gpu.limit_mw == BEFORE_MW, number


@on_gpus(1)
def test_some_kills(driver: Driver) -> None:
    kill_often(driver, 25)


@pytest.mark.slow
@on_gpus(1)
def test_a_hundred_kills(driver: Driver) -> None:
    kill_often(driver, 100)
