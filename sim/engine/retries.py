"""Retries that hold their GPUs until a power cap allows them to begin."""

from __future__ import annotations

from collections.abc import Callable

from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.engine.feasibility import Feasibility
from wattkeeper.sim.engine.node_states import PowerBudget


class Retries:
    """Failed jobs that are tried again on the GPUs that they hold, first come first.

    Args:
        budget: The free power.
        room: The cache of what fits, which reserved power invalidates.
        begin: Asks the policies about an attempt, and begins it after a delay (s).

    Attributes:
        stalled: Attempts that wait for power, by the number of the job.
    """

    def __init__(
        self, budget: PowerBudget, room: Feasibility, begin: Callable[[Attempt, float], None]
    ) -> None:
        self._budget = budget
        self._room = room
        self.begin = begin
        self.stalled: dict[int, Attempt] = {}

    def add(self, attempt: Attempt) -> Execution:
        """Let an attempt wait for power on its GPUs."""
        attempt.hold(attempt.begun_s)
        self.stalled[attempt.job.number] = attempt
        return StalledRetry(attempt, self)

    def remove(self, attempt: Attempt) -> None:
        """Let an attempt, which was preempted, not wait any more."""
        del self.stalled[attempt.job.number]

    def go_on(self) -> None:
        """Begin those whose power is allowed now."""
        for number, attempt in list(self.stalled.items()):
            if self._budget.allows(attempt.job, attempt.gpu_type):
                del self.stalled[number]
                self._budget.reserve(attempt.job, attempt.gpu_type)
                self._room.shrink()
                self.begin(attempt, 0.0)


class StalledRetry(Execution):
    """An attempt that waits for power; its policies were not asked yet."""

    def __init__(self, attempt: Attempt, retries: Retries) -> None:
        super().__init__(attempt)
        self._retries = retries

    def go_on(self, delay_s: float) -> None:
        """Begin: its power was allowed when it got GPUs again."""
        self._retries.begin(self.attempt, delay_s)

    def pause(self) -> None:
        """Wait for GPUs, as other preempted jobs do."""
        self._retries.remove(self.attempt)
