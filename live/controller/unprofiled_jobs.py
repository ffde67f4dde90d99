"""Jobs without a workload, live: they do nothing, for their recorded duration."""

from __future__ import annotations

from wattkeeper.sim.engine.agenda import Callback
from wattkeeper.sim.engine.backend import Attempt, Listener
from wattkeeper.sim.engine.clock import Clock


class UnprofiledRun:
    """An attempt of a job that has no workload.

    Args:
        attempt: The attempt.
        power_w: What it draws, W.
        clock: The clock.
        listener: Is told what it draws, and of its end.
    """

    def __init__(self, attempt: Attempt, power_w: float, clock: Clock, listener: Listener) -> None:
        self._attempt, self._power_w = attempt, power_w
        self._clock, self._listener = clock, listener
        self._left_s = attempt.job.duration_s
        self._since_s = 0.0
        self._due = Callback(self._over)

    def go_on(self) -> None:
        """Begin, or do what is left."""
        self._attempt.trained = True
        self._listener.draws(self._attempt, self._power_w)
        self._since_s, self._due = self._clock.now_s, Callback(self._over)
        self._clock.enter(self._since_s + self._left_s, self._due)

    def pause(self) -> None:
        """Stop until it goes on."""
        self._due.cancel()
        self._left_s -= self._clock.now_s - self._since_s

    def _over(self, _: object) -> None:
        duration_s = self._attempt.job.duration_s
        self._listener.ended(self._attempt, None, duration_s, self._power_w * duration_s, True)
