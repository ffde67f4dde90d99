"""The dynamic program of the alignment, compiled by numba; imported where it is used."""

from __future__ import annotations

import numpy as np
from numba import njit

from wattkeeper.policies.zoo.fitting import Prepared
from wattkeeper.policies.zoo.graph import Ints

ELEMENT = 1 << 14
"""What one of the parent's elements that the child takes over is worth."""
BREAK = ELEMENT // 10
"""What an element is worth of a node left out that cannot be the identity."""
LIKENESS = ELEMENT // 100
"""What an element is worth for a node of equal shape, and less the more the shapes differ."""
LOSS = ELEMENT // 1000
"""What an element is worth of any other node left out."""

LEAVE, SKIP, MATCH = 0, 1, 2


@njit(cache=True)
def gains(parent: Prepared, child: Prepared) -> Ints:
    """What it is worth to match nodes by their sorts, -1 where they do not fit.

    Returns:
        Shape (sorts of the parent, sorts of the child).
    """
    table = np.full((parent.kind.size, child.kind.size), -1, dtype=np.int64)
    for i in range(parent.kind.size):
        for j in range(child.kind.size):
            if parent.kind[i] != child.kind[j]:
                continue
            if (parent.task_inputs[i] or child.task_inputs[j]) and (
                parent.inputs[i] != child.inputs[j]
            ):
                continue
            if (parent.task_outputs[i] or child.task_outputs[j]) and (
                parent.outputs[i] != child.outputs[j]
            ):
                continue
            common = 0
            start, other = child.starts[j], parent.starts[i]
            paired = min(child.starts[j + 1] - start, parent.starts[i + 1] - other)
            for at in range(paired):
                mine, yours = start + at, other + at
                common += (
                    min(parent.first[yours], child.first[mine])
                    * min(parent.second[yours], child.second[mine])
                    * child.kernel[mine]
                )
            larger = max(parent.size[i], child.size[j], 1)
            table[i, j] = 1 + common * ELEMENT + int(LIKENESS * common * (common / larger))
    return table


@njit(cache=True)
def costs(model: Prepared) -> Ints:
    """What it costs to leave a node out, by sort, shape (sorts,)."""
    each = np.where(model.passable > 0, LOSS, BREAK)
    return each * model.size


@njit(cache=True)
def align(parent: Prepared, child: Prepared) -> Ints:
    """The best monotone alignment.

    Returns:
        For each child node in canonical order the place of its parent node in canonical order, or
        -1, shape (child nodes,).
    """
    table, skip, leave = gains(parent, child), costs(parent), costs(child)
    rows, columns = parent.sorts.size, child.sorts.size
    steps = np.empty((rows, columns), dtype=np.int8)
    score = np.zeros(columns + 1, dtype=np.int64)
    for j in range(columns):
        score[j + 1] = score[j] - leave[child.sorts[j]]
    for i in range(rows):
        gain = table[parent.sorts[i]]
        skipped = skip[parent.sorts[i]]
        diagonal = score[0]
        left = score[0] - skipped
        score[0] = left
        for j in range(columns):
            sort = child.sorts[j]
            # Of equal scores, leaving the child's node wins: matches move to the front.
            best, step = left - leave[sort], LEAVE
            above = score[j + 1] - skipped
            if above > best:
                best, step = above, SKIP
            if gain[sort] >= 0 and diagonal + gain[sort] > best:
                best, step = diagonal + gain[sort], MATCH
            diagonal = score[j + 1]
            score[j + 1] = best
            left = best
            steps[i, j] = step
    found = np.full(columns, -1, dtype=np.int64)
    i, j = rows - 1, columns - 1
    while i >= 0 and j >= 0:
        step = steps[i, j]
        if step == MATCH:
            found[j] = i
        if step != SKIP:
            j -= 1
        if step != LEAVE:
            i -= 1
    return found


@njit(cache=True)
def filled(parent: Prepared, child: Prepared) -> int:
    """Trained elements of the child's nodes that the best alignment matches."""
    found = align(parent, child)
    total = 0
    for j in range(found.size):
        if found[j] >= 0:
            total += child.size[child.sorts[j]]
    return total
