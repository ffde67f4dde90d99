"""Statistics over few seeds: of values, and of pairs with one pair for each seed."""

import math
from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints

Values: TypeAlias = Sequence[float] | Floats

Verdict = Literal["identical", "noise", "cannot tell", "lower", "higher", "one seed"]

RESAMPLES = 2000

BLOCK = 8
"""Fewer values are added up from the first to the last, by numpy, too."""

FEWEST = 5
"""Of fewer values, a bootstrap holds the mean too seldom (`benchmarks/interval_coverage.py`), and
an interval that includes no change does not say that there is none."""

ROUNDING = 1e-12
"""Relative difference up to which values count as equal."""

MOST_KNOWN = 4096
"""Values whose statistics are kept: the same ones often come again, of a part that is the whole,
and at points of a sweep where they do not change."""

NOT_COMPARED: dict[str, Any] = {"ratio": None, "ci95": None, "effect": None, "verdict": None}


def _pack(values: Values) -> bytes:
    """Values as a key; other than in a tuple, 0.0 and -0.0 differ."""
    return array("d", values).tobytes()


def _unpack(packed: bytes) -> list[float]:
    return array("d", packed).tolist()


def over_seeds(values: Values) -> dict[str, Any]:
    """Mean, sample standard deviation, 95 % interval of the mean, and number of seeds.

    Statistics that are not defined, as the interval of one seed, are None. Equal values
    give the same object: do not change it.
    """
    return _over_seeds(_pack(values))


@lru_cache(MOST_KNOWN)
def _over_seeds(packed: bytes) -> dict[str, Any]:
    known = [value for value in _unpack(packed) if math.isfinite(value)]
    if not known:
        return {"mean": None, "std": None, "ci95": None, "n": 0}
    std = _deviation(known) if len(known) > 1 else None
    return {"mean": _mean(known), "std": std, "ci95": interval(known), "n": len(known)}


def versus(values: Values, baseline: Values) -> dict[str, Any]:
    """Compare values with the baseline's, seed by seed.

    Returns:
        ``ratio``: Mean of the ratios; None where there are none: `relative_changes`.
        ``ci95``: Its 95 % interval, which ends at 0 if no value is below 0; None of one seed.
        ``effect``: Mean of the differences over their standard deviation: `effect`.
        ``verdict``: ``identical`` if all pairs are equal. Else from the interval of the ratios, or
        of the differences if there are none: ``lower`` or ``higher``, or, if it includes no change,
        ``noise``, of fewer than `FEWEST` pairs ``cannot tell``; ``one seed`` without an interval.
        All are None if a value is absent with any seed. Equal values give the same object: do
        not change it.
    """
    return _versus(_pack(values), _pack(baseline))


@lru_cache(MOST_KNOWN)
def _versus(packed: bytes, packed_baseline: bytes) -> dict[str, Any]:
    values, baseline = _unpack(packed), _unpack(packed_baseline)
    if len(values) != len(baseline) or not all(map(math.isfinite, (*values, *baseline))):
        return NOT_COMPARED
    changes, neutral = relative_changes(values, baseline)
    bounds, equal = interval(changes), all_equal(values, baseline)
    if bounds is not None and neutral and min(values) >= 0:  # no ratio is less than 0
        bounds = [max(0.0, bound) for bound in bounds]
    return {
        "ratio": _mean(changes) if neutral else None,
        "ci95": bounds if neutral else None,
        "effect": None if equal else effect(values, baseline),
        "verdict": "identical" if equal else verdict(bounds, neutral, len(values)),
    }


def relative_changes(values: Values, baseline: Values) -> tuple[list[float], float]:
    """The changes of pairs, and the change of equal pairs.

    Where some baseline is near 0, its ratio alone makes the mean of the ratios, which then says
    nothing of the means that are shown beside it.

    Returns:
        Ratios and 1; or differences and 0 if a baseline is not above 0, or if the mean of the
        ratios is more than twice the ratio of the means, and at least 1 above it.
    """
    pairs = list(zip(values, baseline, strict=True))
    if all(base > 0 for base in baseline):
        ratios, of_means = [value / base for value, base in pairs], _mean(values) / _mean(baseline)
        if _mean(ratios) - of_means <= max(1.0, of_means):
            return ratios, 1.0
    return [value - base for value, base in pairs], 0.0


def all_equal(values: Values, baseline: Values) -> bool:
    """Whether all pairs are equal up to rounding."""
    return all(
        abs(value - base) <= ROUNDING * max(abs(value), abs(base))
        for value, base in zip(values, baseline, strict=True)
    )


def verdict(bounds: Sequence[float] | None, neutral: float, pairs: int) -> Verdict:
    """The verdict on pairs that differ.

    Args:
        bounds: Interval of the changes of `relative_changes`; None of one pair.
        neutral: The change of equal pairs.
        pairs: Their number.
    """
    if bounds is None:
        return "one seed"
    low, high = bounds
    if low <= neutral <= high:
        return "noise" if pairs >= FEWEST else "cannot tell"
    return "higher" if low > neutral else "lower"


def effect(values: Values, baseline: Values) -> float | None:
    """Standardised mean difference of pairs, d_z: the mean difference over its standard deviation.

    As in Cohen, Statistical Power Analysis (1988), section 2.3.5, and Lakens, Frontiers in
    Psychology 4:863 (2013). None of one pair, or where all differ equally.
    """
    differences = [value - base for value, base in zip(values, baseline, strict=True)]
    if not _varies(differences, max(map(abs, [*values, *baseline]))):
        return None
    return _mean(differences) / _deviation(differences)


def p_value(values: Values, baseline: Values) -> float | None:
    """Two-sided p-value of a paired t test that `relative_changes` are neutral.

    None of one pair.
    """
    changes, neutral = relative_changes(values, baseline)
    if len(changes) < 2:
        return None
    if all_equal(values, baseline):
        return 1.0
    if not _varies(changes, max(map(abs, changes))):
        return 0.0
    error = _deviation(changes) / math.sqrt(len(changes))
    return 1 - _within(abs(_mean(changes) - neutral) / error, len(changes) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number: Holm, Scandinavian Journal of Statistics 6 (1979).

    The family-wise error rate is controlled under any dependence.
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = least
    return adjusted


def interval(values: Values) -> list[float] | None:
    """95 % interval of the mean; None of one value.

    A percentile bootstrap is too narrow for few values: Hesterberg, The American Statistician 69
    (2015), section 3, widens it by sqrt(n / (n - 1)) and by Student's t over the normal quantile.
    There it is the levels that are widened; here the distances of the ends to the mean are, since
    beyond the smallest and the largest of few values there is no level. Of fewer than `FEWEST`, it
    is Student's interval.
    """
    size = len(values)
    if size < 2:
        return None
    mean = _mean(values)
    if all(value == values[0] for value in values):
        return [mean] * 2
    t = t_quantile(0.95, size - 1)
    if size < FEWEST:
        half = t * _deviation(values) / math.sqrt(size)
        return [mean - half, mean + half]
    wider = math.sqrt(size / (size - 1)) * t / t_quantile(0.95, None)
    ends = _middle(_resampled_means(np.array(values)))
    return [mean + wider * (end - mean) for end in ends]


def _varies(values: Values, size: float) -> bool:
    """Whether values differ by more than rounding, given the size of their inputs."""
    return len(values) > 1 and max(values) - min(values) > ROUNDING * size


def _mean(values: Values) -> float:
    """The mean, added up as numpy does, which takes longer for few values."""
    return float(np.mean(values)) if len(values) >= BLOCK else _add_up(values) / len(values)


def _deviation(values: Values) -> float:
    """The sample standard deviation; likewise."""
    if len(values) >= BLOCK:
        return float(np.std(values, ddof=1))
    mean = _mean(values)
    squares = [(value - mean) * (value - mean) for value in values]
    return math.sqrt(_add_up(squares) / (len(values) - 1))


def _add_up(values: Values) -> float:
    """The sum from the first value to the last, each step rounded: not so `sum` of Python 3.12."""
    total = values[0]
    for value in values[1:]:
        total += value
    return total


def _resampled_means(values: Floats) -> Floats:
    """Means of resamples, shape (RESAMPLES,)."""
    if len(values) >= BLOCK:
        means: Floats = values[_resamples(len(values))].mean(axis=1)
        return means
    total = np.zeros(RESAMPLES)
    for drawn in _resamples(len(values)).T:
        total += values.take(drawn)
    return total / len(values)


def _middle(values: Floats) -> list[float]:
    """The 2.5 % and the 97.5 % quantile, between two values in proportion, as `numpy.quantile`."""
    places = [(len(values) - 1) * level for level in (0.025, 0.975)]
    indices = [(int(place), int(place) + 1) for place in places]
    ordered = np.partition(values, [*indices[0], *indices[1]])
    ends = []
    for place, (index, following) in zip(places, indices, strict=True):
        (low, high), part = ordered[[index, following]].tolist(), place - index
        ends.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return ends


@cache
def _resamples(size: int) -> Ints:
    """Indices of the resamples of so many values; those of few are stored by column."""
    drawn = np.random.default_rng(0).integers(size, size=(RESAMPLES, size))
    return np.asfortranarray(drawn) if size < BLOCK else drawn


@cache
def t_quantile(level: float, freedom: int | None) -> float:
    """The t that holds `level` of Student's distribution between -t and t.

    Args:
        level: From 0 to 1.
        freedom: Degrees of freedom, at least 1; None: the normal distribution.

    Returns:
        To nine decimals, so that it is the same whatever library computes an arctangent.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < level:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return round(middle, 9)


def _within(t: float, freedom: int | None) -> float:
    """How much of Student's distribution lies between -t and t.

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    if freedom is None:
        return math.erf(t / math.sqrt(2))
    angle = math.atan(t / math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for power in range(2 + odd, freedom - 1, 2):
        term *= square * (power - 1) / power
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
