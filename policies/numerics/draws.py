"""The single whole numbers that numpy's generators draw, in less time.

They draw a whole number below a bound from a word of 32 bits: the high word of its product with the
bound, unless the low word is one of a few that are refused (Lemire, TOMACS '19, "Fast random
integer generation in an interval").
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np

WORDS: Final = 1 << 32
"""Number of different words."""
LOW: Final = WORDS - 1
BLOCK: Final = 128
"""Words that are drawn at once."""
MOST_SKIPPED: Final = 10_000
"""Longer permutations are drawn in another way."""


class WholeNumbers:
    """Whole numbers from a generator that nothing else draws from.

    Args:
        rng: The generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._words: Iterator[int] = iter(())

    def below(self, bound: int) -> int:
        """The next `int(rng.integers(bound))`, for a bound of at most 2**32."""
        assert 0 < bound <= WORDS
        if bound == 1:
            return 0
        while True:
            product = self._word() * bound
            if product & LOW >= WORDS % bound:
                return product >> 32

    def _word(self) -> int:
        word = next(self._words, None)
        if word is None:
            self._words = iter(self._rng.integers(WORDS, size=BLOCK, dtype=np.uint32).tolist())
            word = next(self._words)
        return word


def skip_permutation(rng: np.random.Generator, length: int) -> None:
    """Draw what `rng.choice(length, length, replace=False)` draws, without making it."""
    bits = rng.bit_generator
    before = bits.state
    if before["bit_generator"] == "PCG64" and not before["has_uint32"] and length <= MOST_SKIPPED:
        bounds = _bounds(length)
        for two, (first, second) in zip(bits.random_raw(len(bounds)).tolist(), bounds, strict=True):
            if (two & LOW) * first & LOW < first or (two >> 32) * second & LOW < second:
                bits.state = before  # one of them may be refused
                break
        else:
            return
    rng.choice(length, length, replace=False)


@cache
def _bounds(length: int) -> list[tuple[int, int]]:
    """The bounds of what a permutation is made from, two by two.

    It is a sample (Floyd's algorithm) that is shuffled (Fisher and Yates).
    """
    rising = range(2, length + 1)
    bounds = [*rising, *reversed(rising)]
    return list(zip(bounds[::2], bounds[1::2], strict=True))
