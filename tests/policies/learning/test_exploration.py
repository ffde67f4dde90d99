"""Exploration with pruning, against the published code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.policies.learning.exploration import PruningExploration

SIZES = (8, 16, 32, 64, 128)

Result = tuple[float, bool]
"""Cost, and whether the target was reached."""

Results = Callable[[int, int], Result]
"""By round (1 or 2) and batch size."""


def published_round(sizes: Sequence[int], start: int, results: Callable[[int], Result]) -> dict:
    """A round of the published code; the start is the first of the downward direction.

    Returns:
        The result of each batch size that was visited, in order.
    """
    at = sizes.index(start)
    visited: dict[int, Result] = {}
    for direction in (sizes[at::-1], sizes[at + 1 :]):
        for size in direction:
            visited[size] = results(size)
            if not visited[size][1]:
                break
    return visited


def published(start: int, results: Results) -> tuple[list[int], list[int]]:
    """What the published code visits, and what it is left with."""
    left: Sequence[int] = SIZES
    visits: list[int] = []
    for number in (1, 2):
        seen = published_round(left, start, partial(results, number))
        visits += seen
        good = {size: cost for size, (cost, reached) in seen.items() if reached}
        if not good:
            return visits, []
        start = min(good, key=good.__getitem__)
        left = sorted(good)
    return visits, list(left)


def explore(start: int, results: Results) -> tuple[list[int], list[int]]:
    """The same of ours, up to the failure of a whole round, which the published code refuses."""
    exploration = PruningExploration(SIZES, start)
    visits: list[int] = []
    any_good = {1: False, 2: False}
    while (size := exploration.propose()) is not None:
        visits.append(size)
        assert len(visits) <= 2 * len(SIZES)
        number = visits.count(size)
        cost, reached = results(number, size)
        any_good[number] |= reached
        exploration.report(size, cost, reached)
    return visits, exploration.survivors if all(any_good.values()) else []


Table = dict[tuple[int, int], Result]
some_cost = st.floats(1.0, 1e6) | st.sampled_from([1.0, 2.0])
tables: st.SearchStrategy[Table] = st.fixed_dictionaries(
    {(number, size): st.tuples(some_cost, st.booleans()) for number in (1, 2) for size in SIZES}
)
a_start = st.sampled_from(SIZES)


@settings(max_examples=300)
@given(table=tables, start=a_start)
def test_exploration_whose_starts_reach_the_target(table: Table, start: int) -> None:
    table[1, start] = (table[1, start][0], True)
    seen = published_round(SIZES, start, lambda size: table[1, size])
    second = min((size for size in seen if seen[size][1]), key=lambda size: seen[size][0])
    table[2, second] = (table[2, second][0], True)
    ours = explore(start, lambda number, size: table[number, size])
    assert ours == published(start, lambda number, size: table[number, size])
    assert ours[1]


@settings(max_examples=300)
@given(table=tables, start=a_start)
def test_exploration_of_arbitrary_results(table: Table, start: int) -> None:
    def results(number: int, size: int) -> Result:
        return table[number, size]

    assert explore(start, results) == published(start, results)


def test_a_start_that_misses_prunes_the_smaller_ones() -> None:
    """As in the published code, where the start is the first of the downward direction."""
    exploration = PruningExploration([16, 32, 64], 32)
    assert exploration.propose() == 32
    exploration.report(32, 1.0, False)
    assert exploration.propose() == 64


@pytest.mark.parametrize(
    ("missed", "visits", "survivors"),
    [
        ((), [32, 16, 8, 64, 128, 8, 16, 32, 64, 128], [8, 16, 32, 64, 128]),
        ((16,), [32, 16, 64, 128, 32, 64, 128], [32, 64, 128]),
        ((8, 64), [32, 16, 8, 64, 16, 32], [16, 32]),
        ((16, 64), [32, 16, 64, 32], [32]),
    ],
)
def test_order_of_visits(missed: tuple[int, ...], visits: list[int], survivors: list[int]) -> None:
    """The cost of a batch size is the batch size: the second round begins at the smallest."""
    assert explore(32, lambda _, size: (size, size not in missed)) == (visits, survivors)


@settings(max_examples=200)
@given(
    table=tables,
    start=a_start,
    strays=st.lists(st.tuples(st.sampled_from([*SIZES, 7]), st.booleans()), max_size=30),
    questions=st.lists(st.integers(1, 3), min_size=1, max_size=5),
)
def test_unexpected_results_are_ignored(
    table: Table, start: int, strays: list[tuple[int, bool]], questions: list[int]
) -> None:
    calm, disturbed = PruningExploration(SIZES, start), PruningExploration(SIZES, start)
    disturbed.report(start, 0.5, False)  # nothing was proposed yet
    visits: list[int] = []
    while (size := calm.propose()) is not None:
        for _ in range(questions[len(visits) % len(questions)]):
            assert disturbed.propose() == size, "not the same until its result is reported"
        for stray, reached in strays:
            if stray != size:
                disturbed.report(stray, 0.5, reached)
        visits.append(size)
        result = table[visits.count(size), size]
        calm.report(size, *result)
        disturbed.report(size, *result)
        disturbed.report(size, 0.5, not result[1])  # it came before
    assert disturbed.propose() is None
    assert disturbed.survivors == calm.survivors
