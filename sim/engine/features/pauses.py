"""Pauses, resumes and stops attempts for `Tune`."""

from __future__ import annotations

from wattkeeper.sim.attempts.attempt import Execution
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.lifecycle import Lifecycle


class Pauses:
    """Carries out what `Tune` says of whether an attempt trains.

    Args:
        core: What the parts of the world share.
        lifecycle: Takes GPUs and gives them back.
        hold: Whether a paused attempt keeps its GPUs, which draw idle power then.
    """

    def __init__(self, core: Core, lifecycle: Lifecycle, hold: bool) -> None:
        self._loop = core.loop
        self._restore_s = core.cluster.spec.restore_s
        self._board = core.board
        self._room = core.room
        self._lifecycle = lifecycle
        self._booking = core.booking
        self._recorder = core.recorder
        self._hold = hold

    def pause(self, execution: Execution) -> None:
        """Pause an attempt, if it has GPUs: else it waits, and pauses when it gets some."""
        if execution.attempt.job.number in self._board.running:
            execution.pause()
            self.keep_paused(execution)

    def keep_paused(self, execution: Execution) -> None:
        """Let a paused attempt hold its GPUs, or give them up."""
        attempt = execution.attempt
        if not attempt.is_paused_by_tune:  # else it was preempted meanwhile
            attempt.tune_paused_since_s = self._loop.now_s
        if self._hold:
            self._booking.hold(attempt)
        else:
            self._lifecycle.suspend(execution)

    def resume(self, execution: Execution) -> None:
        """Let a paused attempt train, once it has GPUs."""
        attempt, board = execution.attempt, self._board
        number = attempt.job.number
        attempt.end_pause(self._loop.now_s)
        if number in board.running:
            execution.go_on(self._restore_s if attempt.has_trained else 0.0)
        elif number in board.suspended:
            self._lifecycle.resume_suspended(execution)

    def stop(self, execution: Execution) -> None:
        """End an attempt; it is not tried again."""
        attempt, board, now_s = execution.attempt, self._board, self._loop.now_s
        number = attempt.job.number
        attempt.is_stopped = True
        attempt.end_pause(now_s)
        paused = board.suspended.get(number) or board.paused.get(number)
        if attempt.waits_anew:
            attempt.begun_s = now_s
        elif paused is not None:
            self._recorder.add_pause(number, paused.since_s, now_s)
        if number in board.waiting:
            self._room.withdraw(attempt.job)
            self._loop.pass_is_due = True
        execution.stop()
