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
from wattkeeper.policies.learning.normal import hazard, mean_of_largest, survival

LEVEL: Final = math.log(10.0)
LEVEL_SD: Final = 2.0
SLOPE: Final = 0.10
SLOPE_SD: Final = 0.15
BEND_SD: Final = 0.35
BEND_OCTAVES: Final = 2.0
UNEVEN_SD: Final = 0.03
"""The prior: mean and deviation of f at b0 and of its slope an octave; deviation and length of what
is smooth besides; deviation of each batch size from its neighbours."""
NOISE_SD: Final = 0.10
NOISE_RUNS: Final = 4.0
"""Deviation of ln(epochs) from run to run, and how many degrees of freedom that guess counts."""
MOST_DEGREES: Final = 10.0
"""Degrees of freedom that one batch size counts at most in the noise."""
DRIFT: Final = 0.75
ALARM: Final = 6.0
LARGEST_Z: Final = 4.0
SHIFT_SD: Final = 1.0
TILT_SD: Final = 0.5
APART_SD: Final = 0.1
"""A change is noticed by two cumulative sums of standardised results, less `DRIFT` each, above
`ALARM`. What was known holds then up to a shift of ln(epochs), a slope an octave, and what is
uneven besides, of these deviations."""


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
        self._up = self._down = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether no run was seen."""
        return not self._arms

    def add(self, batch_size: int, epochs: float, reached: bool) -> None:
        """Learn from a run that reached its target after so many epochs, or did not within them."""
        if not epochs:
            return
        self._watch(batch_size, epochs, reached)
        arm = self._arms.setdefault(batch_size, Arm())
        if reached:
            arm.add(math.log(epochs))
            return
        if len(arm.stops) == STOPS:
            oldest, later, arm.stops = arm.stops[0], arm.stops[1:], []
            expected = self._expect(batch_size, math.log(oldest + 0.5))
            arm.count_stop(hopeless(expected.misses, survival(expected.z)))
            arm.stops = later
        arm.stops.append(epochs)

    def _expect(self, batch_size: int, log_epochs: float) -> _Expected:
        """What is expected of a run, against what it was."""
        belief = self.posterior((batch_size,))
        spread = math.sqrt(belief.covariance[0, 0] + belief.noise[0])
        return _Expected((log_epochs - float(belief.mean[0])) / spread, float(belief.misses[0]))

    def _watch(self, batch_size: int, epochs: float, reached: bool) -> None:
        """Notice a change of epochs over time (cumulative sums; Page, Biometrika 1954).

        A stop as unlikely as p counts as the mean of the p largest deviations.
        """
        arm = self._arms.get(batch_size)
        if arm is None or arm.runs < 2:
            return
        if reached:
            z = self._expect(batch_size, math.log(epochs)).z
            self._down = max(0.0, self._down + min(-z, LARGEST_Z) - DRIFT)
        else:
            expected = self._expect(batch_size, math.log(epochs + 0.5))
            z = mean_of_largest(expected.misses + (1 - expected.misses) * survival(expected.z))
        self._up = max(0.0, self._up + min(z, LARGEST_Z) - DRIFT)
        if max(self._up, self._down) > ALARM:
            self._up = self._down = 0.0
            noise = self._noise()
            for each in self._arms.values():
                each.begin_anew(noise)

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
        mean, covariance = self._prior(x)
        noise = self._noise()
        seen = [index for index, arm in enumerate(arms) if arm.runs]
        rounding = np.zeros(len(sizes))
        if seen:
            means = np.array([arms[index].mean for index in seen])
            rounding[seen] = np.exp(-2 * means) / 12
        rows, found, errors = self._regressed(arms, x, noise + rounding)
        if rows:
            cross = covariance[:, rows]
            gain = np.linalg.solve(covariance[np.ix_(rows, rows)] + errors, cross.T).T
            mean = mean + gain @ (found - mean[rows])
            covariance = covariance - gain @ cross.T
        unseen = [index for index, arm in enumerate(arms) if not arm.runs]
        rounding[unseen] = np.exp(-2 * np.maximum(mean[unseen], 0.0)) / 12
        total = noise + rounding
        misses = np.array([
            arm.misses(arm.stopped) if arm.has_reached else arm.never for arm in arms
        ])  # fmt: skip
        for index, arm in enumerate(arms):
            if arm.stops:
                mean, covariance, misses[index] = _fold_stops(
                    mean, covariance, total[index], index, arm
                )
        count = len(batch_sizes)
        return Posterior(
            x[:count], mean[:count], covariance[:count, :count], total[:count], misses[:count],
            np.array([arm.has_reached for arm in arms[:count]]),
        )  # fmt: skip

    @staticmethod
    def _regressed(
        arms: Sequence[Arm], x: Floats, noise: Floats
    ) -> tuple[list[int], Floats, Floats]:
        """Indices of the means that are known, the means, and the covariance of their errors.

        Those from before a change come last: their errors are what it may have changed.
        """
        new = [index for index, arm in enumerate(arms) if arm.runs]
        old = [index for index, arm in enumerate(arms) if arm.before is not None]
        means = [*(arms[index].mean for index in new), *(arms[index].before for index in old)]
        variances = [*(noise[index] / arms[index].runs for index in new),
                     *(arms[index].variance for index in old)]  # fmt: skip
        errors = np.diag(np.array(variances, dtype=np.float64))
        if old:
            change = SHIFT_SD**2 + TILT_SD**2 * np.outer(x[old], x[old])
            change = change + APART_SD**2 * np.eye(len(old))
            errors[len(new) :, len(new) :] += change
        return [*new, *old], np.array(means, dtype=np.float64), errors

    def _prior(self, x: Floats) -> tuple[Floats, Floats]:
        apart = (x[:, None] - x[None, :]) / BEND_OCTAVES
        covariance = LEVEL_SD**2 + SLOPE_SD**2 * np.outer(x, x)
        covariance = covariance + BEND_SD**2 * np.exp(-0.5 * apart**2)
        covariance = covariance + UNEVEN_SD**2 * np.eye(len(x))
        return LEVEL + SLOPE * x, covariance

    def _noise(self) -> float:
        """Variance of ln(epochs) from run to run."""
        scatter, degrees = NOISE_RUNS * NOISE_SD**2, NOISE_RUNS
        for arm in self._arms.values():
            if arm.runs > 1:
                share = min(1.0, MOST_DEGREES / (arm.runs - 1))
                scatter += share * arm.scatter
                degrees += share * (arm.runs - 1)
        return scatter / degrees

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as JSON values."""
        return {
            "default": self._default, "up": self._up, "down": self._down,
            "arms": [[size, arm.state_dict()] for size, arm in self._arms.items()],
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpochBelief:
        """What `state_dict` returned."""
        belief = cls(state["default"])
        belief._arms = {size: Arm.from_state(arm) for size, arm in state["arms"]}
        belief._up, belief._down = state["up"], state["down"]
        return belief


class _Expected(NamedTuple):
    """A run against what is expected of it.

    Attributes:
        z: By how many deviations it differs.
        misses: How probable it was that it never reaches its target.
    """

    z: float
    misses: float


def _fold_stops(
    mean: Floats, covariance: Floats, noise: float, index: int, arm: Arm
) -> tuple[Floats, Floats, float]:
    """The moments, and how probably runs miss, once an arm's runs of `stops` did.

    Each takes longer than it was stopped, unless it was without hope.
    """
    stopped, never = arm.stopped, arm.never
    for epochs in arm.stops:
        variance = float(covariance[index, index]) + noise
        s = math.sqrt(variance)
        z = (math.log(epochs + 0.5) - float(mean[index])) / s
        never = hopeless(arm.misses(stopped) if arm.has_reached else never, survival(z))
        stopped += never
        rate, share = hazard(z), 1 - never
        gain = covariance[:, index] / variance
        shrunk = share * variance * rate * (rate - z)
        mean = mean + share * s * rate * gain
        covariance = covariance - shrunk * np.outer(gain, gain)
    return mean, covariance, arm.misses(stopped) if arm.has_reached else never
