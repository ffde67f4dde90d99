"""Long columns made short enough to be drawn, without changing what they say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints

SHARES = np.unique(np.concatenate([np.linspace(0, 1, 201), 1 - np.logspace(-2.5, -6, 15)]))
"""Of the jobs, for which a distribution is drawn: each half per cent, and the tail."""


class Bins(NamedTuple):
    """A step function in bins, each of shape (bins,); NaN where it is not defined.

    Attributes:
        mean: Weighed by time.
        low: Smallest value.
        high: Largest value.
    """

    mean: Floats
    low: Floats
    high: Floats


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """Values below which a share of them lies, and the shares: some of the sorted values.

    Args:
        values: Without NaN, of any length; empty gives empty.
    """
    if not len(values):
        return np.empty(0), np.empty(0)
    ranks = np.unique(np.ceil(SHARES * len(values)).astype(np.int64).clip(1, len(values)))
    return np.sort(values)[ranks - 1], ranks / len(values)


def binned(time: Floats, values: Floats, edges: Floats) -> Bins:
    """A step function in bins: means from its integral, so that no change is lost.

    Args:
        time: Change points, ascending, shape (points,); each value holds until the next one.
        values: Shape (points,); the last one holds for no time.
        edges: Of the bins, ascending, shape (bins + 1,).
    """
    known = np.isfinite(values)
    if len(time) < 2 or not known.any():
        nothing = np.full(len(edges) - 1, np.nan)
        return Bins(nothing, nothing, nothing)
    held = np.where(known, values, 0.0)
    integral = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(time))])
    inside = edges.clip(time[0], time[-1])
    width = np.diff(inside)
    there = width > 0
    mean = np.full(len(width), np.nan)
    np.divide(np.diff(np.interp(inside, time, integral)), width, out=mean, where=there)
    first = (np.searchsorted(time, inside[:-1], "right") - 1).clip(0, len(time) - 1)
    after = np.searchsorted(time, inside[1:], "left").clip(first + 1, len(time))
    ends = np.stack([first, after], axis=1).ravel()
    padded = np.append(values, values[-1])
    low, high = (
        np.where(there, best.reduceat(padded, ends)[::2], np.nan)
        for best in (np.minimum, np.maximum)
    )
    # The integral is rounded; a mean is not outside of what it is the mean of.
    return Bins(mean.clip(low, high), low, high)


def thinned(length: int, most: int) -> Ints:
    """At most so many evenly spaced indices, the first and the last among them."""
    if length <= most:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, most).round().astype(np.int64))
