"""The environment of every run: SimPy's, whose events wait in the compiled event loop."""

from typing import Any

from simpy.core import EmptySchedule, Environment, SimTime, StopSimulation
from simpy.events import NORMAL, Event, EventPriority

from wattkeeper.sim.kernel.loop import (
    COMPLETION,
    STOP,
    Callback,
    EventLoop,
    ScheduledEvent,
    drop_cancelled,
    process_next,
    schedule_at,
)


class SimulationEnvironment(EventLoop, Environment):
    """A SimPy environment in which events of a run happen at absolute times; see `EventLoop`.

    All events wait in one queue, those of SimPy's processes too: SimPy's own holds an event only
    while SimPy processes it.
    """

    def __init__(self) -> None:
        EventLoop.__init__(self)
        Environment.__init__(self, 0.0)

    @property
    def _now(self) -> float:  # SimPy's name of the time
        return self.now_s

    @_now.setter
    def _now(self, now_s: float) -> None:
        self.now_s = float(now_s)

    def schedule_at(
        self, time_s: float, event: ScheduledEvent | Event, priority: int = COMPLETION
    ) -> None:
        """Schedule an event, of the simulator or of SimPy, at an absolute time, s."""
        if isinstance(event, Event):
            event = Callback(self._process, event)
        schedule_at(self, time_s, event, priority)

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: SimTime = 0) -> None:
        """Schedule an event of a SimPy process; see `simpy.Environment.schedule`."""
        self.schedule_at(self.now_s + delay, event, priority)

    def _process(self, event: Event) -> None:
        Environment.schedule(self, event)
        Environment.step(self)

    def peek(self) -> float:
        """The time of the next event, s; infinite if there is none."""
        if self.pass_is_due:
            return self.now_s
        drop_cancelled(self)
        return min(self.next_arrival_s, self.queue.first_s)

    def step(self) -> None:
        """Process the next event.

        Raises:
            EmptySchedule: If there is none.
        """
        if not process_next(self):
            raise EmptySchedule

    def run(self, until: SimTime | Event | None = None) -> Any:
        """Process events; see `simpy.Environment.run`.

        Args:
            until: A time (s): stop before anything else happens then. An event: stop once it was
                processed, and return its value. None: run until nothing is left to happen.

        Raises:
            ValueError: If the time is not after the present one.
            RuntimeError: If nothing is left to happen before the event was triggered.
        """
        if until is not None:
            if not isinstance(until, Event):
                stop_s, until = float(until), Event(self)
                if stop_s <= self.now_s:
                    raise ValueError(
                        f"until ({stop_s}) must be after the present time, {self.now_s}"
                    )
                until._ok, until._value = True, None
                self.schedule_at(stop_s, until, STOP)
            elif until.processed:
                return until.value
            until.callbacks.append(StopSimulation.callback)
        try:
            self.process_all()
        except StopSimulation as stop:
            return stop.args[0]
        if until is not None:
            raise RuntimeError(f"nothing is left to happen, but {until} was not triggered")
        return None
