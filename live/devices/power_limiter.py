"""Sets power limits and locks clocks, and restores what was in force before."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final, Literal, Self

from wattkeeper.live.devices import limit_journal
from wattkeeper.live.devices.device import Device

Control = Literal["auto", "off"]
"""`auto` sets limits where this user may; `off` never touches them, not even to look."""

POWER_CONTROL: Final = "WATTKEEPER_POWER_CONTROL"
"""Environment variable: `off` if power limits must not be changed."""

GUARD: Final = "wattkeeper.live.devices.restore_guard"
GUARD_TIMEOUT_S: Final = 120.0
"""Longest time that a guard takes to answer, or to restore limits."""
GUARD_STARTS: Final = 3
"""How often a guard is started at most, as each is killed before it answers."""


def permitted_control(wanted: Control = "auto") -> Control:
    """What a training wants to control, unless `WATTKEEPER_POWER_CONTROL` forbids it."""
    return "off" if os.environ.get(POWER_CONTROL) == "off" else wanted


class PowerLimiter:
    """Sets the power limit of devices, and locks their clocks, while it is entered.

    On leaving, on an error and on SIGTERM the limits before are restored and clocks unlocked; if
    this process is killed, its guard does that; if that is killed too, the next limiter of this
    user or `wattkeeper doctor` does. SIGTERM is handled only where a script has no handler of its
    own. A lock of the clock that was there before cannot be asked for, and is lost.

    All devices get the same limit and clock; `control` says whether any are set at all. With
    `clocks`, clocks are locked, too; devices need no power limits then.

    Attributes:
        allowed: Whether all that was asked for can be set; known once it is entered, before
            anything is changed.
        why: If not, why not, and what to do.
        undone: What killed processes left behind, as it was restored on entering.
    """

    def __init__(
        self, devices: Sequence[Device], control: Control = "auto", clocks: bool = False
    ) -> None:
        self._devices = tuple(devices)
        self._control = control
        self._clocks = clocks
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        self._handles_sigterm = False
        self.allowed = False
        self.why = "the limiter was not entered"
        self.undone: list[limit_journal.RestoredLimit] = []

    def __enter__(self) -> Self:
        if self._control == "off":
            self.why = "power control is off: limits stay as they are"
            return self
        self.undone = limit_journal.recover()
        self.why = self._explain_lack()
        if self.why:
            return self
        self._start()
        if self.allowed:
            self._catch_sigterm()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_w(self, limit_w: float) -> bool:
        """Put a limit (W) in force on each device.

        Returns:
            Whether it is in force: False where limits cannot be set.

        Raises:
            DeviceError: If it is out of range.
            DeviceLost: If a device is gone.
        """
        if not self._is_guarded():
            return False
        for device in self._devices:
            device.set_limit_w(limit_w)
        return True

    def lock_mhz(self, clock_mhz: int) -> bool:
        """Lock the clock of each device, MHz.

        Returns:
            Whether it is locked: False where clocks cannot be locked.

        Raises:
            DeviceError: If it is not among the clocks of a device.
            DeviceLost: If a device is gone.
        """
        if not (self._clocks and self._is_guarded()):
            return False
        for device in self._devices:
            device.lock_clock_mhz(clock_mhz)
        return True

    def unlock(self) -> None:
        """Let the devices choose their clocks again."""
        if self._clocks and self._is_guarded():
            for device in self._devices:
                device.unlock_clock()

    def _is_guarded(self) -> bool:
        """Whether a guard will restore what is set; a killed one is replaced."""
        if self._guard is not None and self._guard.poll() is not None:
            self._start()
        return self.allowed

    def _explain_lack(self) -> str:
        """What the devices cannot do that is asked for; empty if nothing."""
        knob = "locked clocks" if self._clocks else "power limit"
        lacking = [
            device.uuid
            for device in self._devices
            if not (device.clocks_mhz if self._clocks else device.limits)
        ]
        if lacking:
            return f"{', '.join(lacking)} takes no {knob}"
        return "" if self._devices else f"no device takes {knob.removesuffix('s')}s"

    def close(self) -> None:
        """Restore the limits before; a second call does nothing."""
        guard, self._guard = self._guard, None
        if guard is None or os.getpid() != self._pid:  # a forked process has no part in it
            return
        self.allowed, self.why = False, "the limiter was left"
        try:
            if not _end(guard):
                limit_journal.recover(ended=self._pid)
        finally:
            self._release_sigterm()

    def _start(self) -> None:
        """Start the guard, which says whether limits may be set; another one if it is killed."""
        uuids = [device.uuid for device in self._devices]
        request = json.dumps({"pid": self._pid, "uuids": uuids, "clocks": self._clocks})
        for _ in range(GUARD_STARTS):
            guard = subprocess.Popen(
                [sys.executable, "-P", "-m", GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for the parent
            )
            self.allowed, self.why, killed = _ask(guard, request)
            if self.allowed:
                self._guard = guard
                return
            _end(guard)
            if not killed:
                return

    def _catch_sigterm(self) -> None:
        with suppress(ValueError):  # only the main thread may; the guard is there in any case
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_sigterm)
                self._handles_sigterm = True

    def _release_sigterm(self) -> None:
        if self._handles_sigterm and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            except ValueError:
                return
        self._handles_sigterm = False

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Restore the limits, then end by the signal as without a handler."""
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        raise SystemExit(128 + number)  # the first process of a container does not die of it


def _ask(guard: subprocess.Popen[bytes], request: str) -> tuple[bool, str, bool]:
    """Send a request; return whether limits may be set, if not, why, and if it was killed."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    with suppress(BrokenPipeError):
        guard.stdin.write(request.encode() + b"\n")
        guard.stdin.flush()
    ready, _, _ = select.select([guard.stdout], [], [], GUARD_TIMEOUT_S)
    line = guard.stdout.readline() if ready else b""
    if line:
        reply = json.loads(line)
        return reply["allowed"], reply["why"], False
    if not ready:
        guard.kill()
    code = guard.wait()
    why = (
        f"the guard of power limits does not answer (exit code {code}), and without it none is "
        f"set; `{sys.executable} -m {GUARD}` may say why"
    )
    return False, why, bool(ready) and code < 0


def _end(guard: subprocess.Popen[bytes]) -> bool:
    """Let a guard restore the limits and end; return whether it did."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    with suppress(BrokenPipeError):
        guard.stdin.close()
    guard.stdout.close()
    try:
        return guard.wait(GUARD_TIMEOUT_S) == 0
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
        return False
