"""Draws that numpy's generators make one by one: the same values, and the same state afterwards."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.generators import unused
from wattkeeper.policies.numerics.draws import WholeNumbers, skip_permutation

seeds = st.integers(0, 2**32)
bounds = st.one_of(st.integers(1, 100), st.integers(1, 2**32), st.just(2**31 + 1))


@given(asked=st.lists(bounds, max_size=200), seed=seeds)
def test_whole_numbers_are_those_of_numpy(asked: list[int], seed: int) -> None:
    """Of the words for 2**31 + 1 every second one is refused."""
    ours, theirs = WholeNumbers(np.random.default_rng(seed)), np.random.default_rng(seed)
    assert [ours.below(bound) for bound in asked] == [int(theirs.integers(n)) for n in asked]


def check_skip(ours: np.random.Generator, theirs: np.random.Generator, length: int) -> None:
    skip_permutation(ours, length)
    theirs.choice(np.arange(length), length, replace=False)
    assert unused(ours) == unused(theirs)


@given(lengths=st.lists(st.integers(1, 40), max_size=20), halves=st.integers(0, 3), seed=seeds)
def test_a_skipped_permutation_consumes_what_a_made_one_does(
    lengths: list[int], halves: int, seed: int
) -> None:
    """Also if half a word of 64 bits is left from a draw before."""
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    for rng in (ours, theirs):
        rng.integers(10, size=halves)
    for length in lengths:
        check_skip(ours, theirs, length)


def test_words_are_refused_in_long_permutations() -> None:
    """In one of fifty or so; above 10,000 entries they are made in another way."""
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(200):
        check_skip(ours, theirs, 9_999)
    check_skip(ours, theirs, 10_000)
    check_skip(ours, theirs, 10_001)
