"""A time that stands still while any process works: which ones work, which sleep until when."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.sim.engine.environment import Callback, ScheduledEvent


class VirtualWallClock(WallClock):
    """A compressed time that stands still while any process works, and passes while all wait.

    What a slow host needs to start a process or to answer a message takes no time, then: a
    rehearsal gives the same results on any host.

    Args:
        speed: Seconds of the run that pass in one of the host.
        now_s: The time at first, at which it stands.
    """

    def __init__(self, speed: float, now_s: float = 0.0) -> None:
        super().__init__(speed)
        self._stopped_s = now_s
        self._since_s: float | None = None

    def now_s(self) -> float:
        """Seconds of the run."""
        since_s = self._since_s
        if since_s is None:
            return self._stopped_s
        return self._stopped_s + (time.monotonic() - since_s) * self.speed

    def stop(self, now_s: float) -> None:
        """Stand still at a time of the run, s."""
        self._stopped_s, self._since_s = now_s, None

    def go(self) -> None:
        """Pass."""
        if self._since_s is None:
            self._since_s = time.monotonic()


class VirtualTime:
    """Runs a `VirtualWallClock`: it passes while all processes sleep. No effect on other clocks.

    Args:
        env: The environment of the run.
        wake: Called with the ticket of a process that slept, at the end of its sleep.
    """

    def __init__(self, env: LiveEnvironment, wake: Callable[[Any], None]) -> None:
        self._env, self._wake = env, wake
        self._wall = env.wall if isinstance(env.wall, VirtualWallClock) else None
        self._awake: set[str] = set()
        self._asleep: dict[str, tuple[ScheduledEvent, Any]] = {}
        env.held = self._is_held

    def stop(self) -> None:
        """Stand still now."""
        if self._wall is not None:
            self._wall.stop(self._env.now)

    def rise(self, run_id: str) -> None:
        """A process works from now on."""
        if self._wall is not None:
            self._awake.add(run_id)
            self.stop()

    def sleep(self, run_id: str, until_s: float, ticket: Any) -> None:
        """A process does nothing until a time, s."""
        if self._wall is None or until_s <= self._env.now:
            self._wake(ticket)
            return
        due = Callback(self.rouse, run_id)
        self._asleep[run_id] = due, ticket
        self._env.schedule_at(until_s, due)
        self._awake.discard(run_id)

    def rouse(self, run_id: str) -> None:
        """Wake a process, if it sleeps."""
        asleep = self._asleep.pop(run_id, None)
        if asleep is not None:
            due, ticket = asleep
            due.cancel()
            self.rise(run_id)
            self._wake(ticket)

    def leave(self, run_id: str) -> None:
        """A process is gone."""
        asleep = self._asleep.pop(run_id, None)
        if asleep is not None:
            asleep[0].cancel()
        self._awake.discard(run_id)

    def _is_held(self) -> bool:
        if self._wall is None or self._awake:
            return bool(self._awake)
        self._wall.go()
        return False
