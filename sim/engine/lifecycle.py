"""The life of a job: it starts, pauses, resumes, loses its node, is tried again, and ends."""

from __future__ import annotations

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.views import Outcome
from wattkeeper.sim.attempts.attempt import Attempt, Execution, Paused
from wattkeeper.sim.attempts.decided import untrained
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.inheritances import Inheritances
from wattkeeper.sim.engine.preparation import Preparation
from wattkeeper.sim.engine.selection.selector import Selector
from wattkeeper.sim.engine.submission import Submission


class Lifecycle:
    """Moves jobs from state to state, with their GPUs, their power, and what policies hear of it.

    Args:
        core: What the parts of the world share.
        select: Is told of jobs that end, pause and resume.
        submission: Submits jobs that follow those that end.
        preparation: Makes executions of attempts.
        inheritances: What jobs leave to the zoo.
    """

    def __init__(
        self,
        core: Core,
        select: Selector,
        submission: Submission,
        preparation: Preparation,
        inheritances: Inheritances,
    ) -> None:
        self._loop = core.loop
        self._cluster = core.cluster
        self._nodes = core.nodes
        self._budget = core.budget
        self._room = core.room
        self._board = core.board
        self._select = select
        self._submission = submission
        self._preparation = preparation
        self._inheritances = inheritances
        self._booking = core.booking
        self._recorder = core.recorder
        self._subscribers = core.subscribers
        self._journal = core.recorder.journal
        self._by_select = self._journal.maker_of("select")
        self._preempts = self._journal.index_choice("preempt")
        self._idle_w = {name: power.idle_w for name, power in core.cluster.spec.power.items()}

    def start(self, job: Job, placement: Placement) -> None:
        """Start a waiting job, or resume a preempted one."""
        board, cluster, now_s = self._board, self._cluster, self._loop.now_s
        free, waiting = cluster.free_gpus, len(board.waiting)
        paused = board.start(job)
        delay_s = self._nodes.occupy(placement, now_s) if self._nodes.vary else 0.0
        placement = cluster.take(job, placement)
        gpu_type = cluster.gpu_type(placement)
        where = self._journal.index_placement(placement)
        number = 1 if paused is None else paused.execution.attempt.number
        self._journal.add(now_s, self._by_select, job.number, number, where, waiting, free)
        self._budget.reserve(job, gpu_type)
        self._room.shrink()
        if paused is not None:
            self._resume(paused, placement, where, delay_s)
            return
        if job.workload is not None:
            board.enter_group(job)
        idle_w = self._idle_w[gpu_type] * job.gpus_held
        self.decide(Attempt(job, 1, placement, where, gpu_type, now_s, idle_w), delay_s)

    def decide(self, attempt: Attempt, delay_s: float) -> None:
        """Ask the policies about an attempt that holds its GPUs, and begin it after a delay (s)."""
        self.begin(self._preparation.prepare(attempt), delay_s)

    def begin(self, execution: Execution, delay_s: float) -> None:
        """Begin or resume an attempt after a delay (s), unless a part takes it over."""
        for part in self._subscribers.begin:
            part.begin(execution)
        self._board.run(execution)
        for part in self._subscribers.holds_back:
            if part.holds_back(execution):
                return
        execution.go_on(delay_s)

    def _resume(self, paused: Paused, placement: Placement, where: int, delay_s: float) -> None:
        """Resume an attempt on the GPUs that it now holds."""
        execution = paused.execution
        attempt, cluster, now_s = execution.attempt, self._cluster, self._loop.now_s
        if cluster.gpu_type(placement) != attempt.gpu_type:
            raise PolicyError(
                f"job {attempt.job.job_id} goes on on {attempt.gpu_type}, placed on {placement}",
                "place",
            )
        attempt.placement, attempt.where = placement, where
        if attempt.waits_anew:
            attempt.waits_anew = False
            attempt.begun_s = now_s
            for part in self._subscribers.resume_lost:
                delay_s += part.resume_lost(execution)
        else:
            self._recorder.add_pause(attempt.job.number, paused.since_s, now_s)
            if attempt.has_trained:
                delay_s += cluster.spec.restore_s
        self.begin(execution, delay_s)

    def preempt(self, job: Job) -> None:
        """Take the GPUs from a running job for `Select`; it waits.

        Raises:
            PolicyError: If it does not run.
        """
        board = self._board
        execution = board.running.get(job.number)
        if execution is None or execution.attempt.job is not job:
            raise PolicyError(f"job {job.job_id} was preempted, but does not run", "select")
        self._take_gpus(execution, self._by_select)
        board.pause(execution, self._loop.now_s)

    def evict(self, execution: Execution, maker: int) -> None:
        """Take the GPUs from a running job for another policy than `Select`; it waits."""
        board, attempt = self._board, execution.attempt
        if attempt.is_paused_by_tune:
            board.note(maker, attempt, self._preempts)
            self.suspend(execution)
            return
        self._take_gpus(execution, maker)
        self._select.pause(attempt.job)
        self._pin(execution.attempt)
        board.pause(execution, self._loop.now_s)
        self._select.resume(execution.attempt.job)
        self._loop.pass_is_due = True

    def _take_gpus(self, execution: Execution, maker: int) -> None:
        """Halt a running attempt, whose job a policy preempts."""
        board, attempt = self._board, execution.attempt
        number = attempt.job.number
        board.halt(number)
        board.note(maker, attempt, self._preempts)
        if board.services and number in board.services:
            board.services[number].preempt(execution)
        else:
            execution.pause()
            self._vacate(attempt)
            attempt.preemptions += 1

    def suspend(self, execution: Execution) -> None:
        """Take the GPUs from an attempt that `Tune` paused."""
        attempt, board = execution.attempt, self._board
        board.halt(attempt.job.number)
        self._vacate(attempt)
        board.suspend(execution, self._loop.now_s)
        self._select.pause(attempt.job)
        board.ask_for_pass()

    def resume_suspended(self, execution: Execution) -> None:
        """Let a suspended job wait for GPUs."""
        self._pin(execution.attempt)
        job = execution.attempt.job
        self._board.resume(job.number)
        self._select.resume(job)
        self._loop.pass_is_due = True

    def requeue(self, execution: Execution) -> None:
        """Let a job of a service, which gave up its GPUs, wait for others."""
        job = execution.attempt.job
        self._board.halt(job.number)
        self._select.pause(job)
        self._board.pause(execution, self._loop.now_s)
        self._select.resume(job)
        self._loop.pass_is_due = True

    def requeue_lost(self, execution: Execution) -> None:
        """Let a job, whose attempt a lost node ended, wait for its next attempt."""
        self._pin(execution.attempt)
        for part in self._subscribers.requeue_lost:
            part.requeue_lost(execution)
        self._board.pause(execution, self._loop.now_s)
        self._select.resume(execution.attempt.job)
        self._loop.pass_is_due = True

    def _pin(self, attempt: Attempt) -> None:
        """Let the job of an attempt ask for the GPU type that it resumes on."""
        if len(self._cluster.gpu_types) > 1 and attempt.job.gpu_type != attempt.gpu_type:
            attempt.job = attempt.job.replace(gpu_type=attempt.gpu_type)

    def _vacate(self, attempt: Attempt) -> None:
        """Take the GPUs from a paused attempt, whose nodes save its state."""
        self._booking.vacate(attempt)
        self._nodes.save_checkpoint(attempt.placement, self._loop.now_s)
        self.release(attempt)

    def release(self, attempt: Attempt) -> None:
        """Release the GPUs and power of an attempt."""
        job = attempt.job
        self._cluster.release(job, attempt.placement)
        if self._nodes.vary:
            self._nodes.vacate(attempt.placement, self._loop.now_s)
        self._budget.release(job)
        self._room.give_back()
        for part in self._subscribers.release:
            part.release(attempt)

    def end_training(
        self, attempt: Attempt, reached: bool, saved_s: float = 0.0, accuracy: float | None = None
    ) -> None:
        """End a job with a workload with its last attempt; see `end`."""
        self._board.leave_group(attempt.job)
        self.end(attempt, reached, saved_s, accuracy)

    def end(
        self, attempt: Attempt, reached: bool, saved_s: float, accuracy: float | None = None
    ) -> None:
        """End a job with its last attempt.

        Args:
            attempt: The attempt.
            reached: Whether it reached its target.
            saved_s: Time that its parent saved, s.
            accuracy: What its model reached; None: it is modelled.
        """
        job = attempt.job
        self._inheritances.end(attempt, self._loop.now_s, saved_s, reached, accuracy)
        if self._board.end(job.number):
            self.release(attempt)
            self._select.end(job)

    def follow_up(self, outcome: Outcome) -> None:
        """Submit the jobs that follow one that ended, or have `Select` asked."""
        if not (self._submission.follows and self._submission.follow_up(outcome)):
            self._board.ask_for_pass()

    def give_up(self, attempt: Attempt) -> None:
        """End a halted job that lost nodes again and again."""
        job = attempt.job
        self._recorder.unable.append(job.number)
        if job.workload is not None:
            self._board.leave_group(job)
        self._select.end(job)
        self._submission.follow_up(untrained(job, attempt.number))

    def withdraw(self, job: Job) -> None:
        """End a job that waits; it never got GPUs, or gave back those that it had."""
        paused = self._board.withdraw(job.number)
        if paused is not None and job.workload is not None:
            self._board.leave_group(job)
        self._recorder.unable.append(job.number)
        self._room.withdraw(job)
        self._board.ask_for_pass()
        number = 1 if paused is None else paused.execution.attempt.number
        self._submission.follow_up(untrained(job, number))
