"""Dynamic program of ModelKeeper's published matcher, compiled by numba.

The table is stored child node by child node, so that a parent's rows are contiguous. Models are
plain tuples of the arrays of `Chains`: numba's cache on disk would otherwise name that class, and
break when it moves.
"""

import numpy as np
from numba import njit

from wattkeeper.policies.arrays import Floats, Ints

Arrays = tuple[Ints, ...]

MATCH, SKIP_CHILD, OTHER = 0, 1, 2
"""Kinds of candidates, in the order in which equal values are taken."""
CHILD_SKIPPED = 0.25
PARENT_SKIPPED = 1.0


@njit(cache=True)
def score(parent: Arrays, child: Arrays) -> float:
    """The raw score: the last cell of the table."""
    parent_kinds, parent_starts, parent_before = parent
    child_kinds, child_starts, child_before = child
    rows, columns = parent_kinds.size, child_kinds.size
    table = np.empty((columns + 1, rows + 1))
    _edge(table[0], parent, PARENT_SKIPPED)
    _edge(table[:, 0], child, CHILD_SKIPPED)
    widest = np.diff(parent_starts).max() + 1 if rows else 1
    branches = np.diff(child_starts).max() if columns else 1
    values = np.empty((branches, widest))
    kinds = np.empty((branches, widest), dtype=np.int64)
    taken = np.empty((branches, widest), dtype=np.int64)
    heads = np.empty(branches, dtype=np.int64)
    used_rows = np.empty(branches, dtype=np.int64)
    for j in range(columns):
        before = child_before[child_starts[j] : child_starts[j + 1]]
        if before.size == 1:
            _follow(table[before[0] + 1], table[j + 1], parent, child_kinds[j])
            continue
        for i in range(rows):
            parents = parent_before[parent_starts[i] : parent_starts[i + 1]]
            pair = 1.0 if parent_kinds[i] == child_kinds[j] else -1.0
            if before.size == 2 and parents.size == 1:
                table[j + 1, i + 1] = _join_two(
                    table[before[0] + 1], table[before[1] + 1], i + 1, parents[0] + 1, pair
                )
            else:
                _candidates(table, before, parents, i, pair, values, kinds, taken)
                table[j + 1, i + 1] = _join(
                    before.size, parents.size + 1, values, taken, heads, used_rows
                )
    return float(table[columns, rows])


@njit(cache=True)
def _edge(edge: Floats, model: Arrays, cost: float) -> None:
    """Fill the row or column in which all nodes so far are skipped."""
    _, starts, before = model
    edge[0] = 0.0
    for node in range(starts.size - 1):
        best = -np.inf
        for place in before[starts[node] : starts[node + 1]]:
            best = max(best, edge[place + 1] - cost)
        edge[node + 1] = best


@njit(cache=True)
def _follow(last: Floats, mine: Floats, parent: Arrays, kind: int) -> None:
    """Fill the cells of a child node with one predecessor, whose cells are `last`."""
    kinds, starts, before = parent
    for i in range(kinds.size):
        pair = 1.0 if kinds[i] == kind else -1.0
        best = last[i + 1] - CHILD_SKIPPED
        for edge in range(starts[i], starts[i + 1]):
            row = before[edge] + 1
            best = max(best, max(last[row] + pair, mine[row] - PARENT_SKIPPED))
        mine[i + 1] = best


@njit(cache=True)
def _join_two(first: Floats, second: Floats, row: int, above: int, pair: float) -> float:
    """Sum of two branches at a parent node with one predecessor.

    Each branch has two candidates in different rows, so the one that yields takes its other one.
    """
    skip_first, match_first = first[row] - CHILD_SKIPPED, first[above] + pair
    skip_second, match_second = second[row] - CHILD_SKIPPED, second[above] + pair
    matches_first = match_first > skip_first or (match_first == skip_first and pair > 0)
    matches_second = match_second > skip_second or (match_second == skip_second and pair > 0)
    head_first = match_first if matches_first else skip_first
    head_second = match_second if matches_second else skip_second
    if matches_first != matches_second:
        return float(head_first + head_second)
    if head_first >= head_second:
        return float(head_first + (skip_second if matches_second else match_second))
    return float(head_second + (skip_first if matches_first else match_first))


@njit(cache=True)
def _candidates(
    table: Floats,
    before: Ints,
    parents: Ints,
    i: int,
    pair: float,
    values: Floats,
    kinds: Ints,
    taken: Ints,
) -> None:
    """List the candidates of each branch in descending order: their values and rows."""
    for branch in range(before.size):
        last = table[before[branch] + 1]
        for candidate in range(parents.size + 1):
            if candidate == 0:
                value, kind, row = last[i + 1] - CHILD_SKIPPED, SKIP_CHILD, i + 1
            else:
                row = parents[candidate - 1] + 1
                value, kind = last[row] + pair, MATCH if pair > 0 else OTHER
            place = candidate
            while place > 0 and (
                values[branch, place - 1] < value
                or (values[branch, place - 1] == value and kinds[branch, place - 1] > kind)
            ):
                values[branch, place] = values[branch, place - 1]
                kinds[branch, place] = kinds[branch, place - 1]
                taken[branch, place] = taken[branch, place - 1]
                place -= 1
            values[branch, place], kinds[branch, place], taken[branch, place] = value, kind, row


@njit(cache=True)
def _join(
    branches: int, length: int, values: Floats, taken: Ints, heads: Ints, used_rows: Ints
) -> float:
    """Sum of the branches' best candidates, at most one in each row."""
    heads[:branches] = 0
    closed, added, total = 0, 0, 0.0
    while closed < branches:
        best = -1
        for branch in range(branches):
            if heads[branch] < length and (
                best < 0 or values[branch, heads[branch]] > values[best, heads[best]]
            ):
                best = branch
        row = taken[best, heads[best]]
        free = True
        for index in range(added):
            free &= used_rows[index] != row
        if free:
            total += values[best, heads[best]]
            used_rows[added] = row
            added += 1
            heads[best] = length
        else:
            heads[best] += 1
        closed += heads[best] == length
    return total
