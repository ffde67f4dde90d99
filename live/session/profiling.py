"""What a session measures of power limits and batch sizes, and does upon the answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from wattkeeper.live.session import distributed
from wattkeeper.live.session.checkpoint import KeptObjects
from wattkeeper.live.session.epochs import CostBound
from wattkeeper.live.session.instruments import Instruments
from wattkeeper.live.session.power_profiler import PowerProfiler, Profiler, SliceProfiler
from wattkeeper.live.wire.messages import Assignment, Coordinator, ProfileReport
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.views import Measurement, Slice

Probe = Callable[[int], Iterable[Any]]
"""Given a batch size, trains with it, and yields after each step."""

log = logging.getLogger("wattkeeper.session")


class AssignmentProfiler:
    """Measures what an assignment asks for, reports it, and puts the answers in force.

    Args:
        instruments: Measure, and put limits in force.
        bound: Hears of limits that change, and of what epochs cost at them.
    """

    def __init__(self, instruments: Instruments, bound: CostBound) -> None:
        self._instruments, self._bound = instruments, bound
        self._profiler = Profiler(instruments)
        self._measured: tuple[Measurement, ...] = ()

    def begin(self, assignment: Assignment, coordinator: Coordinator, steps: int | None) -> None:
        """Begin to measure, if that is asked for; `steps` of an epoch, if their number is known.

        Raises:
            InputError: If slices are asked for, and `samples_per_epoch` is of other steps.
        """
        self._assignment, self._coordinator = assignment, coordinator
        self._reports = assignment.reports
        if assignment.slice is not None and distributed.is_leader():
            self._check_steps(steps)
            epoch_steps = steps or self._steps_at(assignment.batch_size)
            self._profiler = SliceProfiler(
                assignment.slice, assignment.batch_size, epoch_steps, self._instruments
            )
            self._bound.is_waived = True
        elif assignment.profile_w and self._instruments.limiter.allowed:
            self._profiler = PowerProfiler(assignment.profile_w, steps, self._instruments)

    def _steps_at(self, batch_size: int) -> float:
        """Steps of an epoch at a batch size."""
        return self._assignment.samples_per_epoch / batch_size

    def _check_steps(self, steps: int | None) -> None:
        """A loader must have the steps of `samples_per_epoch`, within one."""
        size = self._assignment.batch_size
        if steps is not None and abs(steps - self._steps_at(size)) > 1:
            raise InputError(
                f"found {steps} steps an epoch with batch size {size}, but "
                f"samples_per_epoch={self._assignment.samples_per_epoch:g}; slices compare batch "
                "sizes by it: both must agree"
            )

    def change_limit(self, limit_w: float) -> None:
        """Put a limit (W) in force, if another one is."""
        if limit_w != self._instruments.power_limit_w:
            self._instruments.limit(limit_w)
            self._bound.change_limit()

    @property
    def steps_to_reading(self) -> int | None:
        """Number of steps until power is read next, at least; None if nothing is measured."""
        return self._profiler.steps_to_reading

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        self._profiler.begin_epoch()

    def step(self) -> None:
        """Note a step."""
        if self._profiler.step():
            self._report_profile()

    def end_epoch(self) -> None:
        """End an epoch."""
        if self.steps_to_reading is not None:
            self._bound.is_mixed = True
        if self._profiler.end_epoch():
            self._report_profile()

    def begin_next(self) -> None:
        """Report a slice that ended with an epoch, since another epoch follows."""
        if self._profiler.over:
            self._report_profile()
            self._bound.is_mixed = False

    def _report_profile(self) -> None:
        """Report what was measured, and do what follows."""
        profiler, profile = self._profiler, tuple(self._profiler.measurements)
        self._measured += profile
        answer = self._report(profile)
        if isinstance(answer, Slice):
            assert isinstance(profiler, SliceProfiler), "no slice follows a profile"
            profiler.begin(answer)
            return
        assert answer is not None, "an attempt has a power limit"
        self._profiler, self._bound.is_waived = Profiler(self._instruments), False
        self._bound.change_limit()
        self._instruments.limit(answer)
        for point in self._measured:
            if point.power_limit_w == answer:
                self._bound.expect(point)

    def _report(
        self, measured: tuple[Measurement, ...], reached: bool = False
    ) -> float | Slice | None:
        report = ProfileReport(measured, self._reports, *self._instruments.spent(), reached)
        self._reports += 1
        return self._coordinator.report_profile(report)

    def train_others(self, probe: Probe, kept: KeptObjects, goes_on: Callable[[], bool]) -> None:
        """Train slices of other batch sizes as long as some are asked for; nothing is kept of them.

        The target is reached. A slice that fails, as where its batch size needs too much memory, is
        the last one. Then the power limit of before is in force again.

        Args:
            probe: Trains the steps.
            kept: What these change, which gets back the states that it has now.
            goes_on: Notes a step; whether the next one may follow.
        """
        limit_w = self._instruments.power_limit_w
        try:
            self._train_slices(probe, kept, goes_on)
        finally:
            self._profiler = Profiler(self._instruments)
            if limit_w is not None:
                self._instruments.limit(limit_w)

    def _train_slices(self, probe: Probe, kept: KeptObjects, goes_on: Callable[[], bool]) -> None:
        states: dict[str, Any] | None = None
        piece = self._ask_for_slice(())
        try:
            while piece is not None and goes_on():
                try:
                    if states is None:
                        states = kept.copy_states()
                    measured = self._train_slice(probe, piece, goes_on)
                except Exception as error:
                    log.warning(
                        "a slice of batch size %s failed, and no other one follows: %s: %s",
                        piece.batch_size,
                        type(error).__name__,
                        error,
                    )
                    return
                piece = self._ask_for_slice(measured) if measured else None
        finally:
            kept.put_back(states or {})

    def _ask_for_slice(self, measured: tuple[Measurement, ...]) -> Slice | None:
        """Report the last slice, nothing at first; the next one."""
        answer = self._report(measured, reached=True)
        assert answer is None or isinstance(answer, Slice), "the attempt has reached its target"
        return answer

    def _train_slice(
        self, probe: Probe, piece: Slice, goes_on: Callable[[], bool]
    ) -> tuple[Measurement, ...]:
        """What a slice measured; nothing if the training shall stop meanwhile.

        Raises:
            ValueError: If the script trains no step.
        """
        size = piece.batch_size or self._assignment.batch_size
        profiler = SliceProfiler(piece, size, self._steps_at(size), self._instruments)
        self._profiler = profiler
        steps = iter(probe(size))
        profiler.begin_epoch()
        trained = False
        try:
            for _ in steps:
                trained = True
                profiler.step()
                if not goes_on():
                    return ()
                if profiler.over:
                    break
        finally:
            close = getattr(steps, "close", None)
            if close is not None:
                close()
        if not trained:
            raise ValueError("the script's `probe` trained no step")
        profiler.end()
        return tuple(profiler.measurements)
