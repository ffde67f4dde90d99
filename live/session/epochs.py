"""The epochs of a training: how many are done, what they cost, and why no other one follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wattkeeper.live.session.termination import Stopped
from wattkeeper.live.wire.messages import Assignment, Cause
from wattkeeper.policies.errors import InputError, cut_message
from wattkeeper.policies.points.views import Measurement
from wattkeeper.policies.profile import Objective

log = logging.getLogger("wattkeeper.session")


class Steps:
    """An epoch; iterating over it yields the batches of the loader and counts its steps.

    Attributes:
        number: From 1.
    """

    def __init__(
        self, number: int, loader: Iterable[Any] | None, note_step: Callable[[], None]
    ) -> None:
        self.number = number
        self._loader, self._note_step = loader, note_step

    def __iter__(self) -> Iterator[Any]:
        if self._loader is None:
            raise InputError(
                "this epoch has no batches: give epochs() the loader, or call step() after each "
                "step and iterate over your own loader"
            )
        for batch in self._loader:
            yield batch
            self._note_step()


class CostBound:
    """Tells whether one more epoch would make the attempt cost more than it may.

    Attributes:
        is_mixed: Whether the present epoch is not wholly at the limit in force, or is measured.
        is_waived: Whether epochs follow at any cost, as while slices are trained.
    """

    def __init__(self) -> None:
        self.is_mixed = self.is_waived = False
        self._costs: list[float] = []
        self._expected: float | None = None
        self._spent = 0.0

    def begin(self, assignment: Assignment, time_s: float, energy_j: float | None) -> None:
        """Take the bound of an assignment; so much time (s) and energy (J) was spent before."""
        self._objective, self._max_power_w = Objective(assignment.eta), assignment.max_power_w
        self._most = assignment.cost_bound
        self._spent = self._cost(time_s, energy_j)

    def change_limit(self) -> None:
        """Forget what epochs cost: another limit is in force."""
        self._costs, self._expected, self.is_mixed = [], None, True

    def expect(self, point: Measurement) -> None:
        """Expect of an epoch what was measured at the limit in force."""
        energy_j = point.average_power_w * point.time_per_epoch_s
        self._expected = self._cost(point.time_per_epoch_s, energy_j)

    def add_epoch(self, time_s: float, energy_j: float | None) -> None:
        """Count an epoch; so much time (s) and energy (J) was spent until its end."""
        cost = self._cost(time_s, energy_j)
        if not self.is_mixed:
            self._costs.append(cost - self._spent)
        self.is_mixed, self._spent = False, cost

    def is_crossed(self, epochs: int) -> bool:
        """Whether one more epoch, at the mean cost of those at this limit, is too much.

        So many epochs were done at all limits.
        """
        if self.is_waived:
            return False
        if self._costs:
            more = sum(self._costs) / len(self._costs)
        elif self._expected is not None:
            more = self._expected
        elif epochs:
            more = self._spent / epochs
        else:
            return False
        return self._spent + more > self._most

    def _cost(self, time_s: float, energy_j: float | None) -> float:
        return self._objective.cost(energy_j or 0.0, time_s, self._max_power_w)


class Epochs:
    """Counts the epochs of a training, and knows when it is over.

    Attributes:
        bound: What they may cost.
        done: Epochs done, with those before the training was stopped.
        metric: What the script reported last of the present or last epoch; None if nothing.
        begun: Whether the script asked for the first one.
        open: Whether one is being done.
        cause: Why no other one follows; None if one does.
    """

    def __init__(self) -> None:
        self.bound = CostBound()
        self.done = 0
        self.metric: float | None = None
        self.begun = self.open = False
        self.cause: Cause | None = None

    def begin_epoch(self) -> int:
        """Begin the next epoch; its number, from 1."""
        self.open, self.metric = True, None
        return self.done + 1

    def report(self, metric: float) -> None:
        """Take the metric of the epoch.

        Raises:
            InputError: If it is no number, or no epoch is being done.
        """
        if not self.open:
            raise InputError("report() belongs into the loop over epochs()")
        try:
            self.metric = float(metric)
        except (TypeError, ValueError) as error:
            raise InputError(f"found the metric {metric!r}; must be a number") from error

    def end_epoch(self, time_s: float, energy_j: float | None) -> None:
        """Count the epoch; so much time (s) and energy (J) was spent until its end."""
        self.open = False
        self.done += 1
        self.bound.add_epoch(time_s, energy_j)

    def why_last(self, assignment: Assignment) -> Cause | None:
        """Why no other epoch follows; None if one does."""
        if self._reaches_target(assignment):
            return "reached"
        if self.done >= assignment.max_epochs:
            return "epochs"
        return "bound" if self.bound.is_crossed(self.done) else None

    def _reaches_target(self, assignment: Assignment) -> bool:
        target, metric = assignment.target, self.metric
        if target is None or metric is None:
            return False
        return metric >= target if assignment.higher_is_better else metric <= target

    def why_ended(self, error: BaseException | None, assignment: Assignment) -> tuple[Cause, str]:
        """Why the training ended, and the message of a script that failed.

        `error` is what the script left the session with.
        """
        if self.cause is not None:
            return self.cause, ""
        if isinstance(error, Stopped | KeyboardInterrupt):
            return "stopped", ""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            if not self.done:
                log.warning("%s did no epoch: nothing is learnt of it", assignment.job_id)
                return "stopped", "its script did no epoch"
            return ("epochs" if self.done >= assignment.max_epochs else "left"), ""
        return "failed", cut_message(f"{type(error).__name__}: {error}", 500)
