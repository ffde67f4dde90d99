"""The 0-1 knapsack problem, from the side of what is left out."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints

MOST_STATES: Final = 1 << 12
"""Beyond as many the least promising ones are given up, and with them the proof of the optimum."""


def cheapest_cover(values: Floats, sizes: Ints, need: int) -> tuple[int, ...]:
    """The items of the least total value whose sizes sum up to at least `need`.

    What is left out of a knapsack is the cheapest cover of what does not fit in it. A dynamic
    program over sets of items that none other dominates (no more value for at least as much size),
    cheapest value by size first, with the bound of the continuous problem. The work grows with
    the number of items that may have to go, which is small in a store that was full before.

    Args:
        values: Above 0, shape (items,).
        sizes: Above 0, shape (items,).
        need: At most the sum of all sizes.

    Returns:
        Their positions, ascending; none of them can be spared.
    """
    if need <= 0:
        return ()
    order = np.argsort(values / sizes, kind="stable")
    value, size = values[order], sizes[order]
    value_before = np.concatenate([[0.0], np.cumsum(value)])
    size_before = np.concatenate([[0], np.cumsum(size)])
    best = _spared(value, size, need, int(np.searchsorted(size_before, need)))
    limit = math.fsum(value[best])
    freed, lost = np.zeros(1, dtype=np.int64), np.zeros(1)
    tail = np.full(1, -1)  # of each state: its last link
    links: list[tuple[Ints, int, int]] = []  # tails before an item was taken, first link, item
    count = 0
    for item in range(len(order)):
        took_freed, took_lost = freed + size[item], lost + value[item]
        full = np.flatnonzero(took_freed >= need)
        if len(full):
            at = full[np.argmin(took_lost[full])]
            if took_lost[at] < limit:
                limit = float(took_lost[at])
                best = [item, *_chain(links, int(tail[at]))]
        links.append((tail, count, item))
        took_tail = np.arange(count, count + len(tail))
        count += len(tail)
        freed = np.concatenate([freed, took_freed])
        lost = np.concatenate([lost, took_lost])
        tail = np.concatenate([tail, took_tail])
        bound = lost + _continuous(value_before, size_before, item + 1, need - freed)
        keep = np.flatnonzero((freed < need) & (bound < limit))
        keep = keep[np.lexsort((-freed[keep], lost[keep]))]
        most = np.maximum.accumulate(freed[keep])
        keep = keep[np.diff(most, prepend=-1) > 0]
        if len(keep) > MOST_STATES:
            keep = keep[np.sort(np.argsort(bound[keep], kind="stable")[:MOST_STATES])]
        if not len(keep):
            break
        freed, lost, tail = freed[keep], lost[keep], tail[keep]
    return tuple(sorted(int(order[item]) for item in best))


def _spared(value: Floats, size: Ints, need: int, count: int) -> list[int]:
    """The first items, without those that can be spared, the most valuable ones first."""
    chosen = set(range(count))
    over = int(size[:count].sum()) - need
    for item in np.argsort(-value[:count], kind="stable").tolist():
        if size[item] <= over:
            over -= int(size[item])
            chosen.remove(item)
    return sorted(chosen)


def _continuous(value_before: Floats, size_before: Ints, item: int, need: Ints) -> Floats:
    """The least value of the items from one on, also parts of them, that have the sizes needed."""
    target = size_before[item] + need
    last = np.searchsorted(size_before, target)
    within = np.clip(last, 1, len(size_before) - 1)
    part = (target - size_before[within - 1]) / (size_before[within] - size_before[within - 1])
    reached = value_before[within - 1] + part * (value_before[within] - value_before[within - 1])
    return np.where(last < len(size_before), reached - value_before[item], np.inf)


def _chain(links: list[tuple[Ints, int, int]], link: int) -> list[int]:
    """The items that led to a link, from the last to the first."""
    items = []
    for tails, first, item in reversed(links):
        if link >= first:
            items.append(item)
            link = int(tails[link - first])
    return items
