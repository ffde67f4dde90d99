"""The scheduling pass: `Select` chooses, until it chooses nothing, which jobs run."""

from __future__ import annotations

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.sim.engine.board import MOST_IDLE, IdleCount, WakeLimit
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.lifecycle import Lifecycle
from wattkeeper.sim.engine.retries import Retries
from wattkeeper.sim.engine.selection.selector import Selector
from wattkeeper.sim.kernel.loop import NEVER


class SelectionPass:
    """Asks `Select` at the end of a time at which that may change something.

    Args:
        core: What the parts of the world share.
        select: The policy.
        lifecycle: Starts and preempts.
        retries: Failed jobs, which are tried again first.
        start_on_submit: Whether a job that does not start when it is submitted is an error.
    """

    def __init__(
        self,
        core: Core,
        select: Selector,
        lifecycle: Lifecycle,
        retries: Retries,
        start_on_submit: bool,
    ) -> None:
        self._loop = core.loop
        self._board = core.board
        self._room = core.room
        self._budget = core.budget
        self._select = select
        self._lifecycle = lifecycle
        self._retries = retries
        self._subscribers = core.subscribers
        self._start_on_submit = start_on_submit
        self._idle_wakes = IdleCount(core.board)
        self._wakes = WakeLimit(core.loop)
        core.board.alarm.call = self._wake

    def run(self) -> None:
        """Preempt and start what `Select` chooses, until it chooses nothing."""
        board, select, room = self._board, self._select, self._room
        for part in self._subscribers.share_power:
            part.share_power()
        room.begin_pass()
        if board.stalled:
            self._retries.resume()
        for part in self._subscribers.begin_pass:
            part.begin_pass()
        selection = select.ask(room, board.waiting)
        while selection.start or selection.preempt:
            for job in selection.preempt:
                self._lifecycle.preempt(job)
            for job in selection.start:
                self._start(job)
            if not board.waiting:
                break
            selection = select.ask(room, board.waiting)
        if board.stalled:
            self._retries.resume()
        room.end_pass()
        for part in self._subscribers.end_pass:
            part.end_pass()
        wake_s = select.ask_wake()
        if room.is_timed:
            wake_s = min(wake_s, room.wake_s())
        if wake_s != NEVER or board.alarm.is_set:
            board.alarm.set(wake_s if board.waiting or board.running else NEVER)
        if self._start_on_submit and board.waiting:
            raise self._not_started(next(iter(board.waiting.values())))

    def _start(self, job: Job) -> None:
        """Start a job that `Select` chose, if it has a place."""
        room = self._room
        if room.drop_withdrawn(job):
            self._select.end(job)
            return
        if self._board.waiting.get(job.number) is not job:
            raise PolicyError(f"job {job.job_id} was started, but does not wait", "select")
        placement = room.where(job)
        if placement:
            self._lifecycle.start(job, placement)
        else:
            room.refuse(job)
            self._select.refuse(job)

    def _wake(self) -> None:
        self._loop.pass_is_due = True
        too_often = self._wakes.count()
        if too_often:
            ctx = self._select.ctx
            if self._room.is_timed and self._room.wake_s() < self._select.ask_wake():
                ctx = self._room.ctx
            raise PolicyError(f"{ctx.policy} {too_often}", ctx.point)
        if self._idle_wakes.is_beyond():
            raise self.left_waiting(f", and its policies were asked {MOST_IDLE:,} times")

    def left_waiting(self, more: str = "") -> PolicyError:
        """The error for jobs that wait for ever; `more`: what else the message says."""
        board = self._board
        stalled = (attempt.job for attempt in board.stalled.values())
        job = next(iter((*board.waiting.values(), *stalled)))
        cap_w = self._budget.cap_w
        return PolicyError(
            f"job {job.job_id} was never placed, though {board.free} of {self._room.gpus} GPUs "
            f"are free and it asks for {job.gpus}"
            + (f" under a power cap of {cap_w:g} W" if cap_w else "")
            + more,
            "place",
        )

    def _not_started(self, job: Job) -> InputError:
        return InputError(
            f"occupancy: recorded starts every job when it is submitted, but job {job.job_id} "
            f"finds {self._board.free} of {self._room.gpus} GPUs free at {self._loop.now_s:g} s "
            f"and asks for {job.gpus}: give the cluster more (cluster.gpus)"
        )
