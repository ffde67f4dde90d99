"""Accounts for the time and energy of live attempts as their processes report them."""

from typing import Final

from wattkeeper.live.controller.attempt import NOTHING, LiveAttempt, ProcessPhase, Standing
from wattkeeper.live.wire.messages import EpochReport
from wattkeeper.sim.attempts.decided import NO_SLICES, Tuned
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import EventLoop

SHORTEST_SETUP_S: Final = 1e-6
"""Less is rounding, s: rehearsals set nothing up."""


class Accounting:
    """Tells the listener of a backend what attempts draw, and counts their overheads."""

    def __init__(self, backend: Backend, loop: EventLoop) -> None:
        self._backend, self._loop = backend, loop

    def hold(self, run: LiveAttempt) -> None:
        """Begin a time in which an attempt holds its GPUs idle."""
        run.since_s = self._loop.now_s
        self._backend.listener.holds(run.attempt)

    def begin(self, run: LiveAttempt) -> None:
        """Begin a time in which the process of an attempt sets up, and then trains."""
        run.since_s = self._loop.now_s
        run.attempt.train(run.since_s)

    def account(self, run: LiveAttempt, now: EpochReport) -> None:
        """Report the mean power since the last report."""
        if not run.process.epoch and now.time_s < run.saved.time_s:
            # It starts over: its last state was not saved.
            run.attempt.add_overhead(run.saved.time_s, run.saved.energy_j or 0.0)
            run.last = run.saved = NOTHING
            run.profile.slices = NO_SLICES
        before, now_s = run.last, self._loop.now_s
        run.last = now
        if run.standing is Standing.PAUSED:
            return
        self._count_setup(run, now.time_s - before.time_s)
        spent_j = (now.energy_j or 0.0) - (before.energy_j or 0.0)
        if spent_j > 0 and now_s > run.since_s:
            power_w, settled = spent_j / (now_s - run.since_s), isinstance(run.decision, Tuned)
            self._backend.listener.draws(run.attempt, power_w, run.since_s, settled)
            run.since_s = now_s

    def _count_setup(self, run: LiveAttempt, trained_s: float) -> None:
        """Count what a process did between its session's begin and its first epoch as overhead."""
        if run.process.phase is not ProcessPhase.SETS_UP or trained_s <= 0:
            return
        run.process.begin_training()
        setup_s = self._loop.now_s - run.since_s - trained_s
        if setup_s > SHORTEST_SETUP_S:
            run.attempt.add_overhead(setup_s, setup_s * run.attempt.idle_w)
            run.since_s += setup_s
