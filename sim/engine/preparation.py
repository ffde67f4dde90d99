"""Prepares attempts: policies decide on them, and a backend makes their executions."""

from __future__ import annotations

import math

from wattkeeper.policies.points.views import NO_KNOBS, Configuration, Options, Start
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import Decision, Tuned
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.inheritances import Inheritances


class Preparation:
    """Makes the executions of attempts that hold their GPUs.

    Args:
        core: What the parts of the world share.
        decisions: Asks `Configure` and `Tune`.
        inheritances: What attempts start from.
        backend: Runs them.
        queue_gpus: GPUs that the queue is measured by; 0: `Configure` does not see the queue.
        limits_unprofiled: Whether `Tune` chooses power limits of jobs without a workload.
    """

    def __init__(
        self,
        core: Core,
        decisions: DecisionMaker,
        inheritances: Inheritances,
        backend: Backend,
        queue_gpus: int,
        limits_unprofiled: bool,
    ) -> None:
        self._board = core.board
        self._decisions = decisions
        self._inheritances = inheritances
        self._backend = backend
        self._subscribers = core.subscribers
        self._queue_gpus = queue_gpus
        self._limits_unprofiled = limits_unprofiled

    def prepare(self, attempt: Attempt) -> Execution:
        """Ask the policies about an attempt."""
        board, job = self._board, attempt.job
        if board.services and job.number in board.services:
            return board.services[job.number].start(attempt)
        if job.workload is None:
            return self._prepare_unprofiled(attempt)
        options = self._backend.options(job, attempt.gpu_type)
        waiting = len(board.waiting) / self._queue_gpus if self._queue_gpus else 0.0
        start = Start(job, attempt.number, options, board.others_in_group(job), 1.0, waiting)
        decision = self._decisions.decide(start)
        if decision.configuration.trial is not None:
            parent = self._backend.try_parents(attempt, decision.configuration)
            decision = self._decisions.settle_parent(decision, parent)
        inheritance = self._inheritances.take(job, decision.configuration)
        execution = self._backend.train(attempt, decision, inheritance)
        self._follow(execution, decision)
        return execution

    def repeat(self, attempt: Attempt, lost: Decision) -> Execution:
        """Decide on an attempt as on one that was lost to an accident."""
        decision = self._decisions.repeat(lost)
        inheritance = self._inheritances.take_again(attempt.job)
        execution = self._backend.train(attempt, decision, inheritance)
        self._follow(execution, decision)
        if isinstance(decision, Tuned):
            for part in self._subscribers.repeat:
                part.repeat(execution)
        return execution

    def _prepare_unprofiled(self, attempt: Attempt) -> Execution:
        job = attempt.job
        start: Start | None = None
        knobs = NO_KNOBS
        if self._limits_unprofiled:
            options: Options = self._backend.options(job, attempt.gpu_type)
            start = Start(job, attempt.number, options, 0)
            knobs = self._decisions.choose_limit(start)
        limit_w = math.nan if knobs.power_limit_w is None else knobs.power_limit_w
        execution = self._backend.run(attempt, self._inheritances.ask(attempt), limit_w)
        if start is not None:
            configuration = Configuration(start.options.default_batch_size)
            for part in self._subscribers.prepare:
                part.prepare(execution, start, configuration, knobs)
        return execution

    def _follow(self, execution: Execution, decision: Decision) -> None:
        knobs = decision.knobs if isinstance(decision, Tuned) else NO_KNOBS
        for part in self._subscribers.prepare:
            part.prepare(execution, decision.start, decision.configuration, knobs)
