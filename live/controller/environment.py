"""The environment of a live run: it waits for due events, and wakes on external ones."""

import gc
import math
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from typing import Any

from simpy.core import EmptySchedule, SimTime, StopSimulation
from simpy.events import Event

from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.events import ExternalEvent
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import Callback, process_next

LONGEST_WAIT_S = 86400.0


class LiveEnvironment(SimulationEnvironment):
    """Waits where the simulator's time jumps; everything above it is the same.

    Events that are due come first, in order of time, then external events, in order of arrival.
    An external event is logged before it is processed. The events of a log that is not empty are
    processed first, without waiting: that leads to the same state, since the world depends on
    nothing else.

    `log` has the external events of the run so far.

    Attributes:
        is_repeated: Whether an external event is a repetition, which only needs a reply.
        reply: Called with a repetition.
        process_external: Called with any other external event, at its time.
        expects_external: Whether external events may still come.
        finish_replay: Called once the events of the log were processed.
        is_stopped: Whether time stands still until an external event comes.
        is_replayed: Whether the events of the log were processed.
        turns: How often it waited; any thread, and signal handlers, may read it.
        is_idle: Whether it waits now; any thread, and signal handlers, may read it.
    """

    def __init__(self, wall: WallClock, log: EventLog) -> None:
        super().__init__()
        self.wall = wall
        self.log = log
        self.is_repeated: Callable[[ExternalEvent], bool]
        self.reply: Callable[[ExternalEvent], None]
        self.process_external: Callable[[ExternalEvent], None]
        self.expects_external: Callable[[], bool]
        self.finish_replay: Callable[[], None]
        self.is_stopped: Callable[[], bool] = lambda: False
        self.turns = 0
        self.is_idle = False
        self.is_replayed = False
        # Not SimpleQueue: in CPython 3.11 its `get` waits for ever if its timeout is over at once.
        self._posted: Queue[ExternalEvent] = Queue()

    def post(self, event: ExternalEvent) -> None:
        """Report an external event; thread-safe."""
        self._posted.put(event)

    def wait(self, until_s: float) -> ExternalEvent | None:
        """Wait for the next external event; None once a time has come.

        Args:
            until_s: Time of the run, s; infinite if only an external event ends the waiting.
        """
        self.turns, self.is_idle = self.turns + 1, True
        try:
            return self._wait(until_s)
        finally:
            self.is_idle = False

    def _wait(self, until_s: float) -> ExternalEvent | None:
        while True:
            left_s = (until_s - self.wall.now_s()) / self.wall.speed
            try:
                if left_s == math.inf:
                    return self._posted.get()
                return self._posted.get(timeout=min(max(left_s, 0.0), LONGEST_WAIT_S))
            except Empty:
                if left_s <= LONGEST_WAIT_S:
                    return None

    def run(self, until: SimTime | Event | None = None) -> Any:
        """Process the log first, then run as SimPy does, waiting for events inside and outside."""
        gc.enable()  # a live run lasts for days
        if not self.is_replayed:
            for logged in self.log.events():
                self._catch_up(logged.time_s)
                self._process_at(logged)
            self.is_replayed = True
            self.finish_replay()
        return super().run(until)

    def step(self) -> None:
        """Wait for the next event, inside or outside, and process it.

        Raises:
            EmptySchedule: If none is left inside, and none may come from outside.
        """
        due_s = self.peek()
        if due_s > self.now_s:
            if due_s == math.inf and not self.expects_external():
                raise EmptySchedule
            external = self.wait(math.inf if self.is_stopped() else due_s)
            if external is not None:
                self._take(external)
                return
        process_next(self)

    def process_all(self) -> None:
        """Process events inside and outside until there is none left, or one raises."""
        with suppress(EmptySchedule):
            while True:
                self.step()

    def _take(self, external: ExternalEvent) -> None:
        now_s = max(self.now_s, external.time_s)
        try:
            self._catch_up(now_s)
        except StopSimulation:  # `run(until=...)` ends before it: the next run processes it first
            self._posted.queue.appendleft(external)
            raise
        if self.is_repeated(external):
            self.reply(external)
            return
        external = external._replace(time_s=now_s)
        self.log.add(external)
        self._process_at(external)

    def _process_at(self, external: ExternalEvent) -> None:
        self.schedule_at(external.time_s, Callback(self.process_external, external))
        self._catch_up(external.time_s)

    def _catch_up(self, now_s: float) -> None:
        """Process all events that are due until a time, s."""
        while self.peek() <= now_s:
            process_next(self)
