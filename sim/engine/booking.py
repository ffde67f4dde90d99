"""Books what attempts used: power over time, and a row of results at their end."""

from __future__ import annotations

import math

from wattkeeper.policies.profile import cost as cost_of
from wattkeeper.sim.attempts.attempt import Attempt, Execution, LostWork
from wattkeeper.sim.attempts.decided import AttemptTotals, Decided, Tuned
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.engine.subscriber import Moments
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.recording.recorder import Recorder, whole_units
from wattkeeper.sim.recording.row_types import (
    REACHED,
    REPLAYED,
    ClockRow,
    DelayRow,
    HoldRow,
    SliceRow,
    SlowRow,
    TrainingRow,
)


class Booking:
    """Books attempts in the records of a run.

    Args:
        loop: The event loop of the run.
        recorder: The records.
        backend: Gives the most power that a job may draw.
        eta: Zeus's knob: the weight of energy in the cost.
        subscribers: Parts that act when power changes, and that add to the row of an attempt.
    """

    def __init__(
        self,
        loop: EventLoop,
        recorder: Recorder,
        backend: Backend,
        eta: float,
        subscribers: Moments,
    ) -> None:
        self._loop = loop
        self._recorder = recorder
        self._backend = backend
        self._eta = eta
        self._subscribers = subscribers

    def hold(self, attempt: Attempt) -> None:
        """Count that an attempt holds its GPUs without training from now on."""
        now_s = self._loop.now_s
        attempt.hold(now_s)
        if attempt.draws is not None:
            attempt.draws.append((now_s, attempt.idle_w))
        if attempt.power:
            self._set_power(attempt, 0, now_s)

    def vacate(self, attempt: Attempt) -> None:
        """Count that an attempt gives up its GPUs now."""
        now_s = self._loop.now_s
        attempt.count_idle(now_s)
        self._set_power(attempt, 0, now_s)
        if attempt.draws is not None:
            attempt.draws.append((now_s, 0.0))

    def draw(self, attempt: Attempt, power_w: float, since_s: float, settled: bool) -> None:
        """Count that an attempt trains at a power; see `Listener.draws`."""
        attempt.train(since_s)
        power = whole_units(power_w - attempt.idle_w)
        if attempt.begun_s == self._loop.now_s and not (attempt.power or attempt.preemptions):
            attempt.first_power = attempt.power = power
        elif power != attempt.power:
            self._set_power(attempt, power, since_s)
        if attempt.draws is not None:
            attempt.draws.append((since_s, power_w))
        for part in self._subscribers.draw:
            part.draw(attempt, power_w, settled)

    def _set_power(self, attempt: Attempt, power: int, since_s: float) -> None:
        self._recorder.add_power_change(attempt.job.number, since_s, power - attempt.power)
        attempt.power = power

    def book_run(
        self, attempt: Attempt, most_w: float, time_s: float, energy_j: float, limit_w: float
    ) -> float:
        """Book an attempt of a job without a workload; returns its cost, J.

        `most_w`: the most that its GPUs draw, W; the others: see `Listener.ran`.
        """
        now_s = self._loop.now_s
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        if attempt.losses:
            own_s = max(0.0, time_s - attempt.kept_time_s)
            own_j = max(0.0, energy_j - attempt.kept_energy_j)
            self._book(attempt, own_j, own_s, cost_of(self._eta, own_j, own_s, most_w), now_s)
        else:
            self._book(attempt, energy_j, time_s, cost, now_s)
        reached = not attempt.is_stopped
        if not math.isnan(limit_w) or not reached or attempt.losses:
            flags = reached * REACHED
            row = TrainingRow(attempt.number, power_limit_w=limit_w, flags=flags)
            self._recorder.add_detail(row)
        return cost

    def book_training(
        self, attempt: Attempt, decided: Decided, limit_w: float, totals: AttemptTotals, flags: int
    ) -> float:
        """Book an attempt of a job with a workload; returns its cost as profiled, J."""
        scale, time_s, energy_j = attempt.job.time_scale, totals.time_s, totals.energy_j
        most_w, now_s = decided.max_power_w, self._loop.now_s
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        if attempt.losses:
            own_s = max(0.0, time_s * scale - attempt.kept_time_s)  # but for rounding
            own_j = max(0.0, energy_j * scale - attempt.kept_energy_j)
            self._book(attempt, own_j, own_s, cost_of(self._eta, own_j, own_s, most_w), now_s)
        else:
            self._book(attempt, energy_j * scale, time_s * scale, cost * scale, now_s)
        size, epochs = decided.batch_size, totals.epochs
        row = TrainingRow(attempt.number, size, limit_w, epochs, flags | REPLAYED)
        self._recorder.add_detail(row)
        if totals.slices.slices:
            self._recorder.add_detail(SliceRow.scaled(totals.slices, scale))
        if isinstance(decided, Tuned) and decided.clock_mhz and not decided.start.options.pipeline:
            self._recorder.add_detail(ClockRow(decided.clock_mhz))
        return cost

    def book_broken_off(self, execution: Execution, lost: LostWork, ended_s: float) -> None:
        """Book an attempt that ended without an end of its training, at a time, s."""
        attempt = execution.attempt
        most_w = self._backend.most_power_w(attempt.job, attempt.gpu_type)
        cost = cost_of(self._eta, lost.energy_j, lost.time_s, most_w)
        self._book(attempt, lost.energy_j, lost.time_s, cost, ended_s)
        batch_size, limit_w = execution.configured()
        replayed = REPLAYED if attempt.job.workload is not None else 0
        row = TrainingRow(attempt.number, batch_size, limit_w, flags=replayed)
        self._recorder.add_detail(row)

    def book_shape(
        self, attempt: Attempt, energy_j: float, time_s: float, most_w: float, reached: bool
    ) -> float:
        """Book an attempt of an elastic job that ends now, with its training time and energy.

        `most_w`: the most that its GPUs draw, W. Returns its cost, J.
        """
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        self._book(attempt, energy_j, time_s, cost, self._loop.now_s)
        self._recorder.add_detail(TrainingRow(attempt.number, flags=reached * REACHED))
        return cost

    def _book(
        self, attempt: Attempt, energy_j: float, time_s: float, cost: float, ended_s: float
    ) -> None:
        attempt.count_idle(ended_s)
        if attempt.power != attempt.first_power:
            self._set_power(attempt, attempt.first_power, ended_s)
        self._recorder.add_attempt(
            attempt.job.number,
            attempt.begun_s,
            ended_s,
            energy_j + attempt.overhead_j,
            time_s,
            cost,
            attempt.where,
            attempt.first_power,
        )
        if attempt.overhead_s or attempt.preemptions:
            self._recorder.add_detail(DelayRow(attempt.overhead_s, attempt.preemptions))
            if attempt.slow_s:
                self._recorder.add_detail(SlowRow(attempt.slow_s))
            idle = whole_units(attempt.idle_w)
            for from_s, to_s in attempt.holds:
                self._recorder.add_event(HoldRow(from_s, to_s, idle))
        for part in self._subscribers.book:
            part.book(attempt, ended_s)
