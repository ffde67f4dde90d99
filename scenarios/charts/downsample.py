"""Reduction of long columns to what can be drawn, without changing their message."""

from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints

SHARES = np.unique(np.concatenate([np.linspace(0, 1, 201), 1 - np.logspace(-2.5, -6, 15)]))
"""Shares of jobs at which a distribution is drawn: each half per cent, and the tail."""


class Bins(NamedTuple):
    """A step function in bins, each of shape (bins,); NaN where it is not defined.

    Attributes:
        mean: Time-weighted mean.
        low: Smallest value.
        high: Largest value.
    """

    mean: Floats
    low: Floats
    high: Floats


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """Empirical quantiles at `SHARES`: values, and the share of values that are at most as large.

    Args:
        values: Without NaN, of any length; empty gives empty.
    """
    if not len(values):
        return np.empty(0), np.empty(0)
    ranks = np.unique(np.ceil(SHARES * len(values)).astype(np.int64).clip(1, len(values)))
    return np.sort(values)[ranks - 1], ranks / len(values)


def bin_steps(time: Floats, values: Floats, edges: Floats) -> Bins:
    """Reduce a step function to bins; means come from its integral, so that no change is lost.

    Args:
        time: Change points, ascending, shape (points,); each value holds until the next one.
        values: Shape (points,); the last one holds for no time.
        edges: Edges of the bins, ascending, shape (bins + 1,).
    """
    known = np.isfinite(values)
    if len(time) < 2 or not known.any():
        undefined = np.full(len(edges) - 1, np.nan)
        return Bins(undefined, undefined, undefined)
    steps = np.diff(time)
    steps *= values[:-1] if known.all() else np.where(known, values, 0.0)[:-1]
    integral = np.zeros(len(time))
    np.cumsum(steps, out=integral[1:])
    del steps, known  # large for millions of jobs
    inside = edges.clip(time[0], time[-1])
    width = np.diff(inside)
    covered = width > 0
    mean = np.full(len(width), np.nan)
    np.divide(np.diff(np.interp(inside, time, integral)), width, out=mean, where=covered)
    del integral
    first = (np.searchsorted(time, inside[:-1], "right") - 1).clip(0, len(time) - 1)
    after = np.searchsorted(time, inside[1:], "left").clip(first + 1, len(time))
    ends = np.stack([first, after], axis=1).ravel()
    padded = np.append(values, values[-1])
    low, high = (
        np.where(covered, extreme.reduceat(padded, ends)[::2], np.nan)
        for extreme in (np.minimum, np.maximum)
    )
    # The integral is rounded; a mean never lies outside the extremes.
    return Bins(mean.clip(low, high), low, high)


def spaced_indices(length: int, most: int) -> Ints:
    """At most `most` evenly spaced indices, the first and the last among them."""
    if length <= most:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, most).round().astype(np.int64))
