"""An alarm: a call at one time, which may be set anew."""

from __future__ import annotations

from collections.abc import Callable

from wattkeeper.sim.kernel.loop import NEVER, Callback, EventLoop, ScheduledEvent, schedule_at


class Alarm:
    """Calls a function when its time comes.

    Attributes:
        call: The function; set before the time comes.
    """

    call: Callable[[], object]

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._event: ScheduledEvent | None = None

    @property
    def is_set(self) -> bool:
        """Whether its time is to come."""
        return self._event is not None

    def set(self, time_s: float) -> None:
        """Replace its time, s; infinite: it does not ring."""
        if self._event is not None:
            if self._event.time_s == time_s:
                return
            self._event.cancel()
            self._event = None
        if time_s < NEVER:
            self._event = Callback(self._ring)
            schedule_at(self._loop, time_s, self._event)

    def _ring(self, _: object) -> None:
        self._event = None
        self.call()
