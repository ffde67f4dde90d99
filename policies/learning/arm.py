"""The runs of a batch size: how many epochs they took, and how far others came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

MOST_NEVER: Final = 0.97
"""Largest probability that a batch size never reaches the target."""
RARELY: Final = 0.005
"""Misses that count beforehand for a batch size that reached the target, in addition to those seen:
without any, the first miss could not be told from a long run."""
STOPS: Final = 20
"""Stopped runs that are kept of a batch size, the last ones."""


class Arm:
    """The runs of a batch size.

    Attributes:
        runs: How many reached the target, since the last change.
        total: Sum of their ln(epochs).
        squares: Sum of the squares of these.
        stops: How far the last runs came that did not, epochs.
        stopped: How many earlier ones are thought to have been without hope.
        never: Least probability that it never reaches the target, before its first run that does
            and without the runs of `stops`.
        before: Mean of ln(epochs) before the last change; None: it did not reach the target then.
        variance: Of that mean.
    """

    def __init__(self) -> None:
        self.runs = self.total = self.squares = 0.0
        self.stops: list[float] = []
        self.stopped = self.never = 0.0
        self.before: float | None = None
        self.variance = 0.0

    @property
    def has_reached(self) -> bool:
        """Whether a run reached the target."""
        return self.runs > 0 or self.before is not None

    @property
    def mean(self) -> float:
        """Mean of ln(epochs) of runs that reached the target."""
        return self.total / self.runs

    @property
    def rounding(self) -> float:
        """Variance of ln(epochs) that whole epochs add."""
        return math.exp(-2 * self.mean) / 12

    @property
    def scatter(self) -> float:
        """Sum of squared deviations from the mean."""
        return max(0.0, self.squares - self.total * self.mean)

    def misses(self, stopped: float) -> float:
        """Probability that a run never reaches the target; `stopped`: so many did not yet."""
        return (stopped + RARELY) / (self.runs + stopped + 1)

    def add(self, log_epochs: float) -> None:
        """Add a run that reached the target."""
        self.runs += 1
        self.total += log_epochs
        self.squares += log_epochs**2

    def remove(self, log_epochs: float) -> None:
        """Remove a run that was added."""
        self.runs -= 1
        self.total, self.squares = (
            (self.total - log_epochs, self.squares - log_epochs**2) if self.runs else (0.0, 0.0)
        )

    def count_stop(self, never: float) -> None:
        """Count a run that is none of `stops` any more by how probably it was without hope."""
        self.stopped += never
        self.never = max(self.never, never)

    def begin_anew(self, noise: float, never: float) -> None:
        """Take what is known as what was before a change.

        Args:
            noise: Variance of a run, without that of whole epochs.
            never: Probability that it never reaches the target. A change leaves it as it is.
        """
        if self.runs:
            self.before, self.variance = self.mean, (noise + self.rounding) / self.runs
        self.runs = self.total = self.squares = self.stopped = 0.0
        self.stops = []
        self.never = 0.0 if self.has_reached else never

    def state_dict(self) -> list[Any]:
        """The runs as JSON values."""
        return [
            self.runs,
            self.total,
            self.squares,
            [*self.stops],
            self.stopped,
            self.never,
            self.before,
            self.variance,
        ]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> Arm:
        """The runs that `state_dict` returned."""
        arm = cls()
        (
            arm.runs,
            arm.total,
            arm.squares,
            stops,
            arm.stopped,
            arm.never,
            arm.before,
            arm.variance,
        ) = state
        arm.stops = list(stops)
        return arm


def hopeless(misses: float, longer: float) -> float:
    """Probability that a stopped run would never have reached the target.

    Args:
        misses: The same before the run.
        longer: The share of the runs that reach it which take longer.
    """
    return min(MOST_NEVER, misses / (misses + (1 - misses) * longer))
