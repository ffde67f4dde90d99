"""What a group has learnt of the epochs that it needs at each batch size.

ln(epochs) at batch size b is f(b) plus noise. f is a Gaussian process over x = log2(b/b0), where b0
is the default batch size: smooth, nearly linear, of unknown level. Runs that reached their target
are regression points; runs that were stopped say that ln(epochs) is above a bound, or that the
batch size never reaches the target. Epochs depend on neither GPU type nor power limit, so all GPU
types share one belief.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning.arm import STOPS, Arm, hopeless
from wattkeeper.policies.learning.regression import Regressed, mix, regress
from wattkeeper.policies.learning.watch import ChangeWatch, EndedRun
from wattkeeper.policies.numerics.normal import mean_of_largest, survival

NOISE_SD: Final = 0.10
NOISE_RUNS: Final = 4.0
"""Deviation of ln(epochs) from run to run, and how many degrees of freedom that guess counts."""
MOST_DEGREES: Final = 10.0
MOST_BEFORE: Final = 20.0
"""Degrees of freedom that one batch size counts at most in the noise, and all runs before a
change."""
SHIFT_SD: Final = 1.0
TILT_SD: Final = 0.3
APART_SD: Final = 0.1
OWN_SD: Final = 1.0
OWN: Final = 0.2
"""A change is common to all batch sizes: a shift of ln(epochs), a slope an octave, and what is
uneven besides, of these deviations. Or, with probability `OWN`, only the batch size at which it was
noticed changed, by `OWN_SD`."""


class Posterior(NamedTuple):
    """The belief on ln(epochs) at some batch sizes.

    Attributes:
        x: Octaves above the default batch size, shape (batch sizes,).
        mean: Of f, same shape.
        covariance: Of f, shape (batch sizes, batch sizes).
        noise: Variance of a run, same shape as `x`.
        misses: Probability that a run never reaches the target, same shape.
        reached: Whether a run ever did, same shape.
    """

    x: Floats
    mean: Floats
    covariance: Floats
    noise: Floats
    misses: Floats
    reached: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    def expect(self, index: int) -> Posterior:
        """The belief while a run at a batch size is under way, whose result will come."""
        column = self.covariance[:, index]
        variance = self.covariance[index, index] + self.noise[index]
        return self._replace(covariance=self.covariance - np.outer(column, column) / variance)


class EpochBelief:
    """What a group has learnt of epochs.

    Args:
        default: The batch size b0.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._arms: dict[int, Arm] = {}
        self._watch = ChangeWatch()
        self._changed: int | None = None
        self._before = (0.0, 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether no run was seen."""
        return not self._arms

    def add(self, batch_size: int, epochs: float, reached: bool) -> None:
        """Learn from a run that reached its target after so many epochs, or did not within them."""
        if not epochs:
            return
        run = EndedRun(batch_size, epochs, reached)
        changed = self._watch.add(run, self._deviation(run))
        self._insert(run)
        if changed:
            self._begin_anew(changed)

    def _insert(self, run: EndedRun) -> None:
        arm = self._arms.setdefault(run.batch_size, Arm())
        if run.reached:
            arm.add(math.log(run.epochs))
            return
        if len(arm.stops) == STOPS:
            oldest, later, arm.stops = arm.stops[0], arm.stops[1:], []
            expected = self._expect(run.batch_size, math.log(oldest + 0.5))
            arm.count_stop(hopeless(expected.misses, survival(expected.z)))
            arm.stops = later
        arm.stops.append(run.epochs)

    def _begin_anew(self, changed: Sequence[EndedRun]) -> None:
        """Take all but the last runs as what was before a change, which the last one showed."""
        for run in reversed(changed):
            arm = self._arms[run.batch_size]
            if run.reached:
                arm.remove(math.log(run.epochs))
            else:
                arm.stops.pop()
        noise, misses = self._noise(), self.posterior([*self._arms]).misses
        scatter, degrees = self._scatter()
        share = MOST_BEFORE / max(MOST_BEFORE, degrees)
        for arm, never in zip(self._arms.values(), misses.tolist(), strict=True):
            arm.begin_anew(noise, never)
        self._changed = changed[-1].batch_size
        self._before = share * scatter, share * degrees
        for run in changed:
            self._insert(run)

    def _expect(self, batch_size: int, log_epochs: float) -> _Expected:
        """What is expected of a run, against what it was."""
        belief = self.posterior((batch_size,))
        spread = math.sqrt(belief.covariance[0, 0] + belief.noise[0])
        return _Expected((log_epochs - float(belief.mean[0])) / spread, float(belief.misses[0]))

    def _deviation(self, run: EndedRun) -> float | None:
        """By how many deviations a run took longer than expected; None: nothing was expected.

        A stop as unlikely as p counts as the mean of the p largest deviations.
        """
        arm = self._arms.get(run.batch_size)
        if arm is None or arm.runs + (arm.before is not None) < 2:
            return None
        if run.reached:
            return self._expect(run.batch_size, math.log(run.epochs)).z
        expected = self._expect(run.batch_size, math.log(run.epochs + 0.5))
        return mean_of_largest(expected.misses + (1 - expected.misses) * survival(expected.z))

    def has_reached(self, batch_size: int) -> bool:
        """Whether a run reached the target."""
        arm = self._arms.get(batch_size)
        return arm is not None and arm.has_reached

    def stops(self, batch_size: int) -> int:
        """How many runs did not reach the target; at most `STOPS`."""
        arm = self._arms.get(batch_size)
        return 0 if arm is None else len(arm.stops)

    def typical_epochs(self, batch_size: int) -> float:
        """Median of the epochs that a run takes."""
        return math.exp(float(self.posterior((batch_size,)).mean[0]))

    def posterior(self, batch_sizes: Sequence[int]) -> Posterior:
        """The belief at some batch sizes, those without a run included."""
        sizes = list(dict.fromkeys((*batch_sizes, *self._arms)))
        arms = [self._arms.get(size) or Arm() for size in sizes]
        x = np.array([math.log2(size / self._default) for size in sizes])
        found, count = self._regress(sizes, arms, x), len(batch_sizes)
        return Posterior(
            x[:count],
            found.mean[:count],
            found.covariance[:count, :count],
            found.noise[:count],
            found.misses[:count],
            np.array([arm.has_reached for arm in arms[:count]]),
        )

    def _regress(self, sizes: Sequence[int], arms: Sequence[Arm], x: Floats) -> Regressed:
        """The moments at all batch sizes, by what the last change may have been."""
        noise = self._noise()
        if self._changed is None:
            return regress(arms, x, noise, None)
        own = np.zeros((len(x), len(x)))
        at = sizes.index(self._changed)
        own[at, at] = OWN_SD**2
        common = SHIFT_SD**2 + TILT_SD**2 * np.outer(x, x) + APART_SD**2 * np.eye(len(x))
        return mix(regress(arms, x, noise, common), regress(arms, x, noise, own), OWN)

    def _noise(self) -> float:
        """Variance of ln(epochs) from run to run."""
        scatter, degrees = self._scatter()
        return (NOISE_RUNS * NOISE_SD**2 + scatter) / (NOISE_RUNS + degrees)

    def _scatter(self) -> tuple[float, float]:
        """Sum of squared deviations from means, and its degrees of freedom."""
        scatter, degrees = self._before
        for arm in self._arms.values():
            if arm.runs > 1:
                share = min(1.0, MOST_DEGREES / (arm.runs - 1))
                scatter += share * arm.scatter
                degrees += share * (arm.runs - 1)
        return scatter, degrees

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as JSON values."""
        return {
            "default": self._default,
            "changed": self._changed,
            "before": [*self._before],
            "watch": self._watch.state_dict(),
            "arms": [[size, arm.state_dict()] for size, arm in self._arms.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpochBelief:
        """What `state_dict` returned."""
        belief = cls(state["default"])
        belief._arms = {size: Arm.from_state(arm) for size, arm in state["arms"]}
        belief._watch = ChangeWatch.from_state(state["watch"])
        belief._changed = state["changed"]
        scatter, degrees = state["before"]
        belief._before = scatter, degrees
        return belief


class _Expected(NamedTuple):
    """A run against what is expected of it.

    Attributes:
        z: By how many deviations it differs.
        misses: How probable it was that it never reaches its target.
    """

    z: float
    misses: float
