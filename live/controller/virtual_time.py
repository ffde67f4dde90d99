"""The virtual time of rehearsals: it passes only while all processes sleep."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.sim.kernel.loop import Callback, ScheduledEvent


class _ClockState(NamedTuple):
    """What a virtual clock shows; replaced as a whole, since other threads read it.

    Attributes:
        stopped_s: The time at which it stands or stood last, s.
        since_s: Since when it passes, s of the host; None: it stands.
        until_s: How far it passes, s.
    """

    stopped_s: float
    since_s: float | None = None
    until_s: float = math.inf


class VirtualWallClock(WallClock):
    """A clock that can be stopped; it passes faster than the host's.

    Starting a process or replying to a message takes no virtual time, so that a rehearsal gives
    the same results on any host. Any thread may read it.

    Args:
        speed: Seconds of the run that pass in one of the host.
        now_s: The initial time, s; the clock is stopped at first.
    """

    def __init__(self, speed: float, now_s: float = 0.0) -> None:
        super().__init__(speed)
        self._state = _ClockState(now_s)

    def now_s(self) -> float:
        """Seconds of the run."""
        stopped_s, since_s, until_s = self._state
        if since_s is None:
            return stopped_s
        return min(stopped_s + (time.monotonic() - since_s) * self.speed, until_s)

    def stop(self, now_s: float) -> None:
        """Stop at a time of the run, s."""
        self._state = _ClockState(now_s)

    def go(self, until_s: float) -> None:
        """Let the time pass, up to a time of the run, s, which may be infinite."""
        stopped_s, since_s, _ = self._state
        self._state = _ClockState(
            stopped_s, time.monotonic() if since_s is None else since_s, until_s
        )


class VirtualTime:
    """Runs a `VirtualWallClock`: it passes while all processes sleep. No effect on other clocks.

    It never passes the next event that is due, which may wake a process: a message that comes when
    the controller is late would else carry a later time, and the process would find that time gone.

    `env` is the environment of the run.
    """

    def __init__(self, env: LiveEnvironment) -> None:
        self._env = env
        self._wall = env.wall if isinstance(env.wall, VirtualWallClock) else None
        self._awake: set[str] = set()
        self._asleep: dict[str, tuple[ScheduledEvent, Callable[[], None]]] = {}
        env.is_stopped = self._is_stopped

    def stop(self) -> None:
        """Stop the clock."""
        if self._wall is not None:
            self._wall.stop(self._env.now_s)

    def note_work(self, run_id: str) -> None:
        """Note that a process works from now on."""
        if self._wall is not None:
            self._awake.add(run_id)
            self.stop()

    def sleep(self, run_id: str, until_s: float, woken: Callable[[], None]) -> None:
        """Note that a process sleeps until a time, s; `woken` is called at the end of its sleep."""
        if self._wall is None or until_s <= self._env.now_s:
            woken()
            return
        due = Callback(self.wake, run_id)
        self._asleep[run_id] = due, woken
        self._env.schedule_at(until_s, due)
        self._awake.discard(run_id)

    def wake(self, run_id: str) -> None:
        """Wake a process, if it sleeps."""
        asleep = self._asleep.pop(run_id, None)
        if asleep is not None:
            due, woken = asleep
            due.cancel()
            self.note_work(run_id)
            woken()

    def note_exit(self, run_id: str) -> None:
        """Note that a process has exited."""
        asleep = self._asleep.pop(run_id, None)
        if asleep is not None:
            asleep[0].cancel()
        self._awake.discard(run_id)

    def _is_stopped(self) -> bool:
        if self._wall is None or self._awake:
            return bool(self._awake)
        self._wall.go(self._env.peek())
        return False
