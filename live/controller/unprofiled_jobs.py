"""Jobs without a workload, live: they do nothing, for their recorded duration."""

from __future__ import annotations

from wattkeeper.sim.engine.attempt import Attempt, Execution
from wattkeeper.sim.engine.backend import Listener
from wattkeeper.sim.engine.environment import Callback, SimulationEnvironment


class UnprofiledRun(Execution):
    """An attempt of a job that has no workload.

    Args:
        attempt: The attempt.
        power_w: What it draws, W.
        env: The environment of the run.
        listener: Is told what it draws, and of its end.
    """

    def __init__(
        self, attempt: Attempt, power_w: float, env: SimulationEnvironment, listener: Listener
    ) -> None:
        super().__init__(attempt)
        self._power_w = power_w
        self._env, self._listener = env, listener
        self._left_s = attempt.job.duration_s
        self._since_s = 0.0
        self._due = Callback(self._end)

    def go_on(self, delay_s: float) -> None:
        """Begin, or do what is left."""
        self._since_s, self._due = self._env.now, Callback(self._end)
        self._listener.draws(self.attempt, self._power_w, self._since_s, False)
        self._env.schedule_at(self._since_s + self._left_s, self._due)

    def pause(self) -> None:
        """Stop until it goes on."""
        self._due.cancel()
        self._left_s -= self._env.now - self._since_s

    def _end(self, _: object) -> None:
        duration_s = self.attempt.job.duration_s
        self._listener.ran(self.attempt, duration_s, self._power_w * duration_s, 0.0)
