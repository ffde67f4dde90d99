"""Micro-batches of pipelines of several sizes, as even in time as whole numbers allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_MICROBATCHES: Final = 1_000_000
"""More micro-batches are not shared out: it would take minutes, and much memory."""

TIE = 1e-12
"""Variances that differ by less, relative to the square of the time, are equal."""


class PipelineGroup(NamedTuple):
    """Pipelines of one size.

    Attributes:
        nodes: Of each pipeline.
        pipelines: Their number.
        microbatches: Of each pipeline.
    """

    nodes: int
    pipelines: int
    microbatches: int


class MicrobatchShare(NamedTuple):
    """Micro-batches of one pipeline of each size.

    Attributes:
        microbatches: By size.
        variance_s2: Variance of the times over the sizes, s squared.
    """

    microbatches: tuple[int, ...]
    variance_s2: float


class _Suffix(NamedTuple):
    """Sums over the sizes from an index on.

    Attributes:
        weight: Of counts divided by times, per s.
        square: Of their squares, per s squared.
        fewest: Of counts, the micro-batches if each pipeline has one.
        reachable: Bit n: whether n micro-batches can be shared beyond these.
    """

    weight: float
    square: float
    fewest: int
    reachable: int


def share_microbatches(
    counts: Sequence[int], times_s: Sequence[float], microbatches: int
) -> MicrobatchShare | None:
    """The whole numbers, 1 or more, with the least variance of time over the sizes.

    A branch and bound, exact: it extends a beginning of the numbers only if the least variance of
    all real continuations is not above the best.

    Args:
        counts: Number of pipelines of each size.
        times_s: Time of a micro-batch in a pipeline of each size, s. Of shares with equal variance,
            that with the least largest time is taken; then the first in lexical order.
        microbatches: The sum over all pipelines.

    Returns:
        The share; None if the sum cannot be reached.
    """
    # Sizes with many pipelines come first: their numbers are the hardest to complete.
    order = sorted(range(len(counts)), key=lambda size: -counts[size])
    suffixes = _suffixes([(counts[size], times_s[size]) for size in order], microbatches)
    if not counts or microbatches < suffixes[0].fewest:
        return None
    if not suffixes[0].reachable >> (microbatches - suffixes[0].fewest) & 1:
        return None
    search = _Search(order, counts, times_s, suffixes, microbatches)
    search.visit(0, microbatches, 0.0, 0.0)
    squares_s2, _, share = search.best
    return MicrobatchShare(share, squares_s2 / len(counts))


class _Search:
    """The branch and bound over the sizes in an order; arguments as of `share_microbatches`.

    Attributes:
        best: Sum of squared deviations, s squared, largest time, s, and the share.
    """

    def __init__(
        self,
        order: Sequence[int],
        counts: Sequence[int],
        times_s: Sequence[float],
        suffixes: Sequence[_Suffix],
        microbatches: int,
    ) -> None:
        self.order, self.counts, self.suffixes = order, counts, suffixes
        self.times_s = times_s
        self.best: tuple[float, float, tuple[int, ...]] = (math.inf, math.inf, ())
        self._numbers = [0] * len(counts)
        self._tie_s2 = TIE * (microbatches / suffixes[0].weight) ** 2

    def visit(self, index: int, left: int, mean_s: float, squares_s2: float) -> None:
        """Try all numbers of a size that may lead to the best share.

        Args:
            index: Place of the size in the order.
            left: Micro-batches that the sizes from it on share.
            mean_s: Mean time of the sizes before it.
            squares_s2: Sum of their squared deviations from it, s squared.
        """
        size, rest = self.order[index], self.suffixes[index + 1]
        count, time_s = self.counts[size], self.times_s[size]
        most = (left - rest.fewest) // count
        centre = _best_number(index, left, mean_s, count, time_s, rest)
        nearest = min(max(round(centre), 1), most)
        fewest = 1 if rest.weight else nearest  # the last size takes all that is left
        for number, step in ((nearest, 1), (nearest - 1, -1)):
            while fewest <= number <= most:
                remaining = left - number * count
                change_s = number * time_s - mean_s
                mean = mean_s + change_s / (index + 1)
                squares = squares_s2 + change_s * (number * time_s - mean)
                gap = _gap_s2(index + 1, remaining, mean, rest)
                if squares + gap > self.best[0] + self._tie_s2:
                    if (number - centre) * step >= 0:
                        break
                elif rest.reachable >> (remaining - rest.fewest) & 1:
                    self._numbers[size] = number
                    if index + 1 < len(self.order):
                        self.visit(index + 1, remaining, mean, squares)
                    else:
                        self._compare(squares)
                number += step

    def _compare(self, squares_s2: float) -> None:
        """Keep the share whose numbers are complete if it is the best."""
        numbers = tuple(self._numbers)
        products = (each * number for each, number in zip(self.times_s, numbers, strict=True))
        found = (max(products), numbers)
        if squares_s2 < self.best[0] - self._tie_s2 or found < self.best[1:]:
            self.best = (squares_s2, *found)


def _best_number(
    index: int, left: int, mean_s: float, count: int, time_s: float, rest: _Suffix
) -> float:
    """The real number of micro-batches with the least bound."""
    share = 1 / (index + 1)
    if not rest.weight:
        return left / count
    spread = rest.square + rest.weight**2 * share
    slope = count + rest.weight * time_s * share
    constant = left - rest.weight * mean_s * (1 - share)
    numerator = (1 - share) * time_s * mean_s + constant * slope / spread
    return numerator / ((1 - share) * time_s**2 + slope**2 / spread)


def _gap_s2(sizes: int, left: int, mean_s: float, rest: _Suffix) -> float:
    """Least growth of the sum of squares when real numbers of the rest share what is left."""
    if not rest.weight:
        return 0.0
    return (left - mean_s * rest.weight) ** 2 / (rest.square + rest.weight**2 / sizes)


def _suffixes(sizes: Sequence[tuple[int, float]], microbatches: int) -> list[_Suffix]:
    """Sums over the sizes, counts and times, from each index on, and of none."""
    suffixes = [_Suffix(0.0, 0.0, 0, 1)]
    mask = (1 << (microbatches + 1)) - 1
    for count, time_s in reversed(sizes):
        rest = suffixes[-1]
        reachable, shift = rest.reachable, count
        while shift <= microbatches:
            reachable |= reachable << shift & mask
            shift *= 2
        weight = count / time_s
        suffixes.append(
            _Suffix(rest.weight + weight, rest.square + weight**2, rest.fewest + count, reachable)
        )
    return suffixes[::-1]
