"""The time of a live run: the host's own, or a compressed one for trying things."""

from __future__ import annotations

import math
import os
import time
from typing import Final

from wattkeeper.policies.errors import InputError

SPEED: Final = "WATTKEEPER_SPEED"
BEGUN_S: Final = "WATTKEEPER_BEGUN_S"
STILL: Final = "WATTKEEPER_STILL"
"""Environment variable: set if the controller keeps the time (`wattkeeper.live.wire.clock`)."""


class WallClock:
    """Seconds of a run, which may pass faster than the host's.

    Args:
        speed: Seconds of the run that pass in one of the host.
        begun_s: `time.monotonic` of the host when the run's time was 0. It counts from the boot of
            the host, so that all processes of one host can share it.
    """

    def __init__(self, speed: float = 1.0, begun_s: float = 0.0) -> None:
        self.speed = speed
        self.begun_s = begun_s

    @classmethod
    def from_environment(cls) -> WallClock:
        """The clock that the environment describes; the host's own by default.

        Raises:
            InputError: If `WATTKEEPER_SPEED` or `WATTKEEPER_BEGUN_S` is no number, or the speed is
                not above 0.
        """
        speed, begun_s = _number(SPEED, 1.0), _number(BEGUN_S, 0.0)
        if speed <= 0:
            raise InputError(f"{SPEED} is {speed:g}; allowed: a number above 0")
        return cls(speed, begun_s)

    def environment(self) -> dict[str, str]:
        """What gives a process of this host the same clock, by `from_environment`."""
        return {SPEED: repr(self.speed), BEGUN_S: repr(self.begun_s)}

    def now_s(self) -> float:
        """Seconds of the run."""
        return (time.monotonic() - self.begun_s) * self.speed

    def sleep_until(self, time_s: float) -> None:
        """Sleep until a time of the run, s."""
        left_s = time_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s / self.speed)


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {text!r}; allowed: a number, or leave it unset")
    return number
