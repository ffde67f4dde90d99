"""The time of a live run: the host's own, or a compressed one for trying things."""

from __future__ import annotations

import time


class Wall:
    """Seconds of a run, which may pass faster than the host's.

    Args:
        speed: Seconds of the run that pass in one of the host.
        begun_s: `time.monotonic` of the host when the run's time was 0. It counts from the boot of
            the host, so that all processes of one host can share it.
    """

    def __init__(self, speed: float = 1.0, begun_s: float = 0.0) -> None:
        self.speed = speed
        self.begun_s = begun_s

    def now_s(self) -> float:
        """Seconds of the run."""
        return (time.monotonic() - self.begun_s) * self.speed

    def sleep_until(self, time_s: float) -> None:
        """Sleep until a time of the run, s."""
        left_s = time_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s / self.speed)
