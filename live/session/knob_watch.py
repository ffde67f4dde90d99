"""Takes over power limits that the controller changes while a training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.client import RemoteCoordinator
from wattkeeper.live.wire.clock import RemoteWallClock
from wattkeeper.policies.errors import DeviceError, EnvironmentLacks


class KnobWatch:
    """Waits for other power limits, and puts them in force.

    A thread does so, unless the controller keeps the time: then the training itself does, while it
    sleeps, since its limit must not change while its time stands still.

    Args:
        coordinator: The controller.
        wall: The clock of the run.
        apply: Puts a limit (W) in force if another one is.
        stop: Set once the training shall stop.
    """

    def __init__(
        self,
        coordinator: RemoteCoordinator,
        wall: WallClock,
        apply: Callable[[float], None],
        stop: threading.Event,
    ) -> None:
        self._coordinator, self._wall = coordinator, wall
        self._apply, self._stop = apply, stop
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._over = False

    def begin(self) -> None:
        """Watch from now on; the thread may outlive `end`, and then does nothing."""
        if not isinstance(self._wall, RemoteWallClock):
            threading.Thread(target=self._run, name="wattkeeper-knobs", daemon=True).start()

    def end(self) -> None:
        """Put no limit in force any more."""
        with self._lock:
            self._over = True

    def take_over(self, limit_w: float | None) -> None:
        """Put a limit (W) in force, if one is stated."""
        with self._lock:
            if limit_w is not None and not self._over:
                self._apply(limit_w)

    def take_over_stated(self) -> None:
        """Put the limit that the controller last stated in force."""
        self.take_over(self._coordinator.power_limit_w)

    def sleep_until(self, time_s: float, known_w: float | None) -> bool:
        """Sleep until a time of the run (s), another limit than `known_w` (W), or a stop.

        Returns:
            Whether the training continues, as far as the controller said so meanwhile.
        """
        if isinstance(self._wall, RemoteWallClock):
            goes_on, limit_w = self._wall.sleep_with_limit(time_s, known_w)
            self.take_over(limit_w)
            return goes_on
        left_s = max(0.0, time_s - self._wall.now_s())
        if self._changed.wait(left_s / self._wall.speed):
            self._changed.clear()
        return not self._stop.is_set()

    def _run(self) -> None:
        goes_on = True
        while goes_on and not self._over:
            try:
                goes_on = self._coordinator.await_knobs()
                self.take_over_stated()
            except (EnvironmentLacks, DeviceError):  # the main thread meets it, too
                return
            if not (goes_on or self._over):
                self._stop.set()
            self._changed.set()
