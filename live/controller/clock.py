"""The world's clock, live: it waits for what is due, and wakes when something happens outside."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from queue import Empty, Queue

from simpy import Environment
from simpy.rt import RealtimeEnvironment

from wattkeeper.live.controller.event_log import EventLog, ExternalEvent
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.sim.engine.agenda import Callback
from wattkeeper.sim.engine.clock import Clock

LONGEST_WAIT_S = 86400.0


class VirtualWallClock(WallClock):
    """A compressed time that stands still while anybody works, and passes while all wait.

    What a slow host needs to start a process or to answer a message takes no time, then: what is
    rehearsed comes out the same however fast the host is.

    Args:
        speed: Seconds of the run that pass in one of the host.
        now_s: The time at first, at which it stands.
    """

    def __init__(self, speed: float, now_s: float = 0.0) -> None:
        super().__init__(speed)
        self._at_s = now_s
        self._since_s: float | None = None

    def now_s(self) -> float:
        """Seconds of the run."""
        since_s = self._since_s
        if since_s is None:
            return self._at_s
        return self._at_s + (time.monotonic() - since_s) * self.speed

    def stop(self, now_s: float) -> None:
        """Stand still at a time of the run, s."""
        self._at_s, self._since_s = now_s, None

    def go(self) -> None:
        """Pass."""
        if self._since_s is None:
            self._since_s = time.monotonic()


class LiveEnvironment(RealtimeEnvironment):
    """SimPy's real-time environment, but what happens outside interrupts its waiting.

    Args:
        wall: The time.
    """

    def __init__(self, wall: WallClock) -> None:
        super().__init__(0.0, factor=1 / wall.speed, strict=False)
        self._wall = wall
        # Not SimpleQueue: in CPython 3.11 its `get` waits for ever if its timeout is over at once.
        self._posted: Queue[ExternalEvent] = Queue()

    def post(self, outside: ExternalEvent) -> None:
        """Tell that something happened; any thread may."""
        self._posted.put(outside)

    def wait(self, until_s: float) -> ExternalEvent | None:
        """The next thing that happened outside; None once a time has come.

        Args:
            until_s: Time of the run, s; infinite if only what happens outside ends it.
        """
        while True:
            left_s = (until_s - self._wall.now_s()) / self._wall.speed
            try:
                if left_s == math.inf:
                    return self._posted.get()
                return self._posted.get(timeout=min(max(left_s, 0.0), LONGEST_WAIT_S))
            except Empty:
                if left_s <= LONGEST_WAIT_S:
                    return None

    def step(self) -> None:
        """Let the next event happen; `LiveClock` has waited for it."""
        Environment.step(self)


class LiveClock(Clock):
    """Waits where the simulator's clock jumps; everything above it is the same.

    What is due comes first, in order of time, then what happened outside, in the order it came. All
    of that which the world is told is logged before; a log that is not empty is played again first,
    without waiting: it leads to the same state, since the world depends on nothing else.

    Args:
        wall: The time.
        log: What happened outside.

    Attributes:
        known: Whether something is no news, so that it is answered, but neither logged nor told.
        answer: Called with what is no news.
        tell: Called with what is, at its time.
        outside: Whether anything may still happen outside.
        caught_up: Called when the log was played again, before anything else.
    """

    def __init__(self, wall: WallClock, log: EventLog) -> None:
        self.live = LiveEnvironment(wall)
        super().__init__(self.live)
        self.wall = wall
        self.log = log
        self.known: Callable[[ExternalEvent], bool]
        self.answer: Callable[[ExternalEvent], None]
        self.tell: Callable[[ExternalEvent], None]
        self.outside: Callable[[], bool]
        self.caught_up: Callable[[], None]
        self.held: Callable[[], bool] = lambda: False

    def play(self) -> None:
        """Play the log again, then run until nothing is left to happen, here or outside."""
        gc.enable()  # a live run lasts for days
        for logged in self.log.events():
            self._catch_up(logged.time_s)
            self._happen(logged)
        self.caught_up()
        while True:
            due_s = self.next_s()
            if due_s == math.inf and not self.outside():
                break
            news = self.live.wait(math.inf if self.held() else due_s)
            if news is None:
                self.settle(due_s)
            else:
                self._take(news)

    def _take(self, news: ExternalEvent) -> None:
        now_s = max(self.now_s, news.time_s)
        self._catch_up(now_s)
        if self.known(news):
            self.answer(news)
            return
        news = news._replace(time_s=now_s)
        self.log.add(news)
        self._happen(news)

    def _catch_up(self, now_s: float) -> None:
        while (due_s := self.next_s()) <= now_s:
            self.settle(due_s)

    def _happen(self, news: ExternalEvent) -> None:
        self.enter(news.time_s, Callback(self.tell, news))
        self.settle(news.time_s)
