"""Takes over power limits that the controller changes during a training."""

from __future__ import annotations

import threading
from collections.abc import Callable

from typing_extensions import override

from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.client import RemoteCoordinator
from wattkeeper.live.wire.clock import RemoteWallClock
from wattkeeper.policies.errors import DeviceError, EnvironmentLacks


class FixedLimit:
    """Sleeps on the clock of a run in which nobody changes the power limit."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall

    def begin(self) -> None:
        """Begin to wait for other limits."""

    def end(self) -> None:
        """Put no limit in force any more."""

    def take_over_stated(self) -> None:
        """Put the limit that the controller last stated in force."""

    def sleep_until(self, time_s: float, known_w: float | None) -> bool:
        """Sleep until a time of the run (s), another limit than `known_w` (W), or a stop.

        Returns:
            Whether the training continues, as far as the controller said so meanwhile.
        """
        if isinstance(self._wall, RemoteWallClock):
            return self._wall.sleep_with_limit(time_s, None)[0]
        self._wall.sleep_until(time_s)
        return True


class KnobWatch(FixedLimit):
    """Waits for other power limits, and puts them in force.

    A thread does so, unless the controller keeps the time: then the training itself does, while it
    sleeps, since its limit must not change while its time stands still. The thread may outlive
    `end`, and then does nothing.

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
        super().__init__(wall)
        self._coordinator = coordinator
        self._apply, self._stop = apply, stop
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._over = False

    @override
    def begin(self) -> None:
        if not isinstance(self._wall, RemoteWallClock):
            threading.Thread(target=self._run, name="wattkeeper-knobs", daemon=True).start()

    @override
    def end(self) -> None:
        with self._lock:
            self._over = True

    def take_over(self, limit_w: float | None) -> None:
        """Put a limit (W) in force, if one is stated."""
        with self._lock:
            if limit_w is not None and not self._over:
                self._apply(limit_w)

    @override
    def take_over_stated(self) -> None:
        self.take_over(self._coordinator.power_limit_w)

    @override
    def sleep_until(self, time_s: float, known_w: float | None) -> bool:
        if self._over:
            return super().sleep_until(time_s, None)
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
