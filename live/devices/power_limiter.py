"""Sets power limits, and restores those that were in force before."""

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

GUARD: Final = "wattkeeper.live.devices.restore_guard"
GUARD_TIMEOUT_S: Final = 120.0
"""Longest time that a guard takes to answer, or to restore limits."""
GUARD_STARTS: Final = 3
"""How often a guard is started at most, as each is killed before it answers."""


class PowerLimiter:
    """Sets the power limit of devices while it is entered.

    On leaving, on an error and on SIGTERM the limits before are restored; if this process is
    killed, its guard does that; if that is killed too, the next limiter of this user or `wattkeeper
    doctor` does. SIGTERM is handled only where a script has no handler of its own.

    All devices get the same limit; `control` says whether limits are set at all.

    Attributes:
        allowed: Whether limits can be set; known once it is entered, before anything is changed.
        why: If not, why not, and what to do.
        undone: Limits that killed processes left behind, as they were restored on entering.
    """

    def __init__(self, devices: Sequence[Device], control: Control = "auto") -> None:
        self._devices = tuple(devices)
        self._control = control
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
        unlimited = [device.uuid for device in self._devices if device.limits is None]
        if unlimited or not self._devices:
            names = ", ".join(unlimited)
            self.why = f"{names} takes no power limit" if names else "no device takes power limits"
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
        if self._guard is not None and self._guard.poll() is not None:  # it was killed
            self._start()
        if not self.allowed:
            return False
        for device in self._devices:
            device.set_limit_w(limit_w)
        return True

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
        request = json.dumps({"pid": self._pid, "uuids": uuids})
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
