"""A time that stands still while anybody works: who works, and who sleeps until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wattkeeper.live.controller.clock import LiveClock, VirtualWallClock
from wattkeeper.sim.engine.agenda import Callback, Due


class VirtualTime:
    """Keeps a `VirtualWallClock`; where the clock has another wall, nobody works and nobody sleeps.

    Args:
        clock: The clock.
        wake: Called with the ticket of who slept, once his time has come.
    """

    def __init__(self, clock: LiveClock, wake: Callable[[Any], None]) -> None:
        self._clock, self._wake = clock, wake
        self._wall = clock.wall if isinstance(clock.wall, VirtualWallClock) else None
        self._awake: set[str] = set()
        self._asleep: dict[str, tuple[Due, Any]] = {}
        clock.held = self._is_held

    def stop(self) -> None:
        """Stand still now, whoever works."""
        if self._wall is not None:
            self._wall.stop(self._clock.now_s)

    def rise(self, run_id: str) -> None:
        """A process works from now on."""
        if self._wall is not None:
            self._awake.add(run_id)
            self.stop()

    def sleep(self, run_id: str, until_s: float, ticket: Any) -> None:
        """A process does nothing until a time, s."""
        if self._wall is None or until_s <= self._clock.now_s:
            self._wake(ticket)
            return
        due = Callback(self.rouse, run_id)
        self._asleep[run_id] = due, ticket
        self._clock.enter(until_s, due)
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
