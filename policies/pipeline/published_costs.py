"""Costs of instructions by duration, as the published Perseus models them (SOSP '24)."""

from __future__ import annotations

import warnings
from itertools import product
from math import exp, floor, inf, log
from sys import float_info
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.numerics.portable import each
from wattkeeper.policies.pipeline.profile import KINDS, PipelineProfile

NEARLY = 0.95
"""A point that is this much better in both replaces another one where few are left."""
FEW = 3

AMPLITUDES = (10.0, 100.0, 1000.0)
DECAYS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.1)
"""Of the fit's starting points, by ms."""
OFFSETS = (10.0, 100.0, 1000.0)
MOST_EVALUATIONS = 50_000

LARGEST = log(float_info.max)
"""Of more, the exponential is beyond what a number can be."""

UNLIMITED_UJ = 10_000_000_000
"""What bounds the flow where nothing else does: 10,000 J."""


class DurationOption(NamedTuple):
    """A measured point, with its duration in whole units.

    Attributes:
        duration: Whole units of time.
        cost_j: Energy beyond that of waiting as long, J.
        time_s: Measured time.
        point: Index of the point in the profile.
    """

    duration: int
    cost_j: float
    time_s: float
    point: int


class CostModel(NamedTuple):
    """Cost of an operation by duration: ``a * exp(b * duration) + k`` J.

    Attributes:
        options: The points that are left, the slowest first.
        a: Amplitude, J.
        b: Decay by unit of time.
        k: Offset, J.
    """

    options: tuple[DurationOption, ...]
    a: float
    b: float
    k: float

    @property
    def shortest(self) -> int:
        """Smallest duration, units."""
        return self.options[-1].duration

    @property
    def longest(self) -> int:
        """Largest duration, units."""
        return self.options[0].duration

    def cost_j(self, duration: int) -> float:
        """Modelled cost, J."""
        return self.a * exp(self.b * duration) + self.k

    def option(self, duration: int) -> DurationOption:
        """The slowest option that fits."""
        return next(option for option in self.options if option.duration <= duration)


def cost_models(profile: PipelineProfile, unit_s: float) -> tuple[CostModel, ...]:
    """The cost models of all operations, in units of `unit_s` s.

    Raises:
        InputError: If an operation has too few different points for a fit.
        EnvironmentLacks: If scipy is not installed.
    """
    models: list[CostModel] = []
    for operation in range(2 * len(profile.stages)):
        options = duration_options(profile, operation, unit_s)
        fit = _fit(options, unit_s)
        if fit is None:
            raise InputError(
                f"{KINDS[operation % 2]} of stage {operation // 2} has {len(options)} different "
                f"points in units of {unit_s} s; a cost model needs 4 or more that fall with time: "
                "take a shorter unit, or measure more clocks"
            )
        models.append(CostModel(options, *fit))
    return tuple(models)


def duration_options(
    profile: PipelineProfile, operation: int, unit_s: float
) -> tuple[DurationOption, ...]:
    """The points of an operation that are worth while, the slowest first."""
    power_w = profile.blocking_power_w(operation)
    rows = []
    for index, (_, time_s, energy_j) in enumerate(profile.points(operation)):
        duration = int(time_s // unit_s)
        cost_j = energy_j - power_w * duration * unit_s
        rows.append(DurationOption(duration, cost_j, time_s, index))
    options = _thin(rows, 1.0)
    return options if len(options) > FEW else _thin(rows, NEARLY)


def _thin(rows: list[DurationOption], share: float) -> tuple[DurationOption, ...]:
    """Drop rows that others beat in time and cost, and all but the dearest of each duration."""
    dearest: dict[int, DurationOption] = {}
    for row in rows:
        if any(
            other.time_s < share * row.time_s and other.cost_j < share * row.cost_j
            for other in rows
        ):
            continue
        if row.duration not in dearest or row.cost_j > dearest[row.duration].cost_j:
            dearest[row.duration] = row
    return tuple(dearest[duration] for duration in sorted(dearest, reverse=True))


def _fit(options: tuple[DurationOption, ...], unit_s: float) -> tuple[float, float, float] | None:
    """Least squares from each starting point; None if no fit has a finite covariance."""
    try:
        from scipy.optimize import OptimizeWarning, curve_fit
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "the cost models of Perseus need scipy: pip install 'wattkeeper[pipeline]'"
        ) from None
    if len(options) <= FEW:
        return None
    durations = np.array([option.duration for option in options])
    costs = np.array([option.cost_j for option in options])

    def model(duration: Ints, a: float, b: float, k: float) -> Floats:
        cost_j: Floats = a * each(_bounded_exp, b * duration) + k
        return cost_j

    best, least = None, inf
    for a, b, k in product(AMPLITUDES, DECAYS, OFFSETS):
        start = (a, -b * unit_s / 1e-3, k)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore", OptimizeWarning)
                fit, covariance = curve_fit(
                    model, durations, costs, p0=start, maxfev=MOST_EVALUATIONS
                )
        except RuntimeError:  # no convergence
            continue
        if np.isinf(covariance).any() or fit[0] < 0:
            continue
        error = float(np.mean((model(durations, *fit) - costs) ** 2))
        if error < least:
            best, least = (float(fit[0]), float(fit[1]), float(fit[2])), error
    return best


def _bounded_exp(value: float) -> float:
    """The exponential; infinite beyond `LARGEST`."""
    return exp(value) if value < LARGEST else inf


def bounds_uj(model: CostModel) -> tuple[list[int], list[int]]:
    """Bounds of the flow over an operation by duration, from the shortest one, in whole uJ.

    The lower bound is what one unit longer saves, the upper one what one unit shorter costs.
    """
    low, high = [], []
    durations = range(model.shortest, model.longest + 1)
    for duration in durations:
        saving = abs(model.cost_j(duration) - model.cost_j(duration + 1))
        price = abs(model.cost_j(duration - 1) - model.cost_j(duration))
        at_start, at_end = duration == model.shortest, duration == model.longest
        low.append(0 if at_end else floor(saving * 1e6))
        if at_start:
            high.append(UNLIMITED_UJ)
        else:
            high.append(floor((price if at_end else price + 1e-6) * 1e6))
    return low, high
