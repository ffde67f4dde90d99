"""Failed jobs that are tried again on the GPUs that they hold."""

from __future__ import annotations

from wattkeeper.sim.attempts.attempt import Attempt, Execution, LostWork
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.lifecycle import Lifecycle


class Retries:
    """Tries failed jobs again: at once, or under a power cap once it allows them, in order.

    Args:
        core: What the parts of the world share.
        lifecycle: Begins attempts.
    """

    def __init__(self, core: Core, lifecycle: Lifecycle) -> None:
        self._loop = core.loop
        self._board = core.board
        self._budget = core.budget
        self._room = core.room
        self.lifecycle = lifecycle

    def retry(self, failed: Attempt) -> None:
        """Try a job again on the GPUs that it holds, once its power is allowed."""
        attempt = failed.next_try(self._loop.now_s)
        if self._budget.cap_w is None:
            self.lifecycle.decide(attempt, 0.0)
            return
        attempt.hold(attempt.begun_s)
        self._board.stall(StalledRetry(attempt, self))
        self._budget.release(attempt.job)
        self._room.grow()
        self._loop.pass_is_due = True

    def remove(self, attempt: Attempt) -> None:
        """Let an attempt, which loses its GPUs, not wait for power any more."""
        self._board.stalled.pop(attempt.job.number, None)

    def resume(self) -> None:
        """Begin those whose power is allowed now."""
        for number, attempt in list(self._board.stalled.items()):
            if self._budget.allows(attempt.job, attempt.gpu_type):
                del self._board.stalled[number]
                self._budget.reserve(attempt.job, attempt.gpu_type)
                self._room.shrink()
                self.lifecycle.decide(attempt, 0.0)


class StalledRetry(Execution):
    """An attempt that waits for power; its policies were not asked yet."""

    def __init__(self, attempt: Attempt, retries: Retries) -> None:
        super().__init__(attempt)
        self._retries = retries

    def go_on(self, delay_s: float) -> None:
        """Begin: its power was allowed when it got GPUs again."""
        self._retries.lifecycle.decide(self.attempt, delay_s)

    def pause(self) -> None:
        """Wait for GPUs, as other preempted jobs do."""
        self._retries.remove(self.attempt)

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """There is nothing to save."""

    def change_pace(self, peers: Pace, own: Pace) -> None:
        """It has no pace before it begins."""

    def lose(self) -> LostWork:
        """Wait for GPUs; nothing is lost."""
        self.pause()
        return LostWork(0.0, 0.0, 0.0, 0.0)
