"""Renews the lease of a training while it runs."""

import logging
import threading
import time
from typing import Final

from wattkeeper.live.wire.messages import Coordinator
from wattkeeper.policies.errors import EnvironmentLacks

HANG_FACTOR: Final = 20
"""A step hangs if it takes so many times the longest one before, and longer than the lease."""

log = logging.getLogger("wattkeeper.session")


class Heartbeat:
    """A thread that renews the lease while the training makes steps.

    Args:
        coordinator: Gave the lease.
        lease_s: Its length, s of the host.

    Attributes:
        stop: Set once the training shall stop.
    """

    def __init__(self, coordinator: Coordinator, lease_s: float) -> None:
        self.stop = threading.Event()
        self._coordinator, self._lease_s = coordinator, lease_s
        self._over = threading.Event()
        self._beat_s: float | None = None
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._run, name="wattkeeper-heartbeat", daemon=True)

    def begin(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def end(self) -> None:
        """Renew no more; returns when the thread is over."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """Note a step."""
        now_s = time.monotonic()
        if self._beat_s is not None:
            self._longest_s = max(self._longest_s, now_s - self._beat_s)
        self._beat_s = now_s

    def rest(self) -> None:
        """Expect no step until the next one: the epoch is over."""
        self._beat_s = None

    @property
    def hangs(self) -> bool:
        """Whether the step takes much longer than all before it."""
        begun_s = self._beat_s
        if begun_s is None:
            return False
        return time.monotonic() - begun_s > max(self._lease_s, HANG_FACTOR * self._longest_s)

    def _run(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            if self.hangs:
                continue
            try:
                if self._coordinator.renew_lease():
                    continue
            except EnvironmentLacks as error:
                log.warning("the training stops: %s", error)
            self.stop.set()
            return
