"""The 0-1 knapsack problem, solved for the items that are left out."""

import math
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints

MOST_STATES: Final = 1 << 12
"""Number of states beyond which the least promising ones are dropped, and the result may be
suboptimal."""


def cheapest_cover(values: Floats, sizes: Ints, need: int) -> tuple[int, ...]:
    """The items with the smallest total value whose sizes sum up to at least `need`.

    The items left out of a knapsack are the cheapest cover of its excess size. A dynamic
    program over sets of items that none other dominates (no more value for at least as much size),
    lowest value per size first, with the bound of the continuous relaxation. The work grows with
    the number of items that may have to be left out, which is small in a store that was full
    before.

    Args:
        values: Above 0, shape (items,).
        sizes: Above 0, shape (items,).
        need: At most the sum of all sizes.

    Returns:
        Their positions, ascending; no item of them is superfluous.
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
            state = full[np.argmin(took_lost[full])]
            if took_lost[state] < limit:
                limit = float(took_lost[state])
                best = [item, *_chain(links, int(tail[state]))]
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
    """The first `count` items without superfluous ones, the most valuable dropped first."""
    chosen = set(range(count))
    over = int(size[:count].sum()) - need
    for item in np.argsort(-value[:count], kind="stable").tolist():
        if size[item] <= over:
            over -= int(size[item])
            chosen.remove(item)
    return sorted(chosen)


def _continuous(value_before: Floats, size_before: Ints, item: int, need: Ints) -> Floats:
    """Least value of the items from `item` on, fractions allowed, that cover the needed sizes."""
    target = size_before[item] + need
    last = np.searchsorted(size_before, target)
    within = np.clip(last, 1, len(size_before) - 1)
    part = (target - size_before[within - 1]) / (size_before[within] - size_before[within - 1])
    reached = value_before[within - 1] + part * (value_before[within] - value_before[within - 1])
    return np.where(last < len(size_before), reached - value_before[item], np.inf)


def _chain(links: list[tuple[Ints, int, int]], link: int) -> list[int]:
    """The items that led to a state, from the last to the first."""
    items = []
    for tails, first, item in reversed(links):
        if link >= first:
            items.append(item)
            link = int(tails[link - first])
    return items
