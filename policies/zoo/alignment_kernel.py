"""The dynamic program of the alignment, compiled by numba; imported where it is used.

Models come as plain tuples of the arrays of `Prepared`, in its order: numba's cache on disk would
otherwise name that class, and fail when it moves.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from wattkeeper.policies.zoo.graph import Ints

Arrays = tuple[Ints, ...]

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
def gains(parent: Arrays, child: Arrays) -> Ints:
    """What it is worth to match nodes by their sorts, -1 where they do not fit.

    Returns:
        Shape (sorts of the parent, sorts of the child).
    """
    _, _, kind, inputs, outputs, task_in, task_out, _, size, starts, first, second, kernel = child
    _, _, kind_, inputs_, outputs_, task_in_, task_out_, _, size_, starts_, first_, second_, _ = (
        parent
    )
    table = np.full((kind_.size, kind.size), -1, dtype=np.int64)
    for i in range(kind_.size):
        for j in range(kind.size):
            if kind_[i] != kind[j]:
                continue
            if (task_in_[i] or task_in[j]) and inputs_[i] != inputs[j]:
                continue
            if (task_out_[i] or task_out[j]) and outputs_[i] != outputs[j]:
                continue
            common = 0
            # Either may lack tensors that it shares with an earlier node.
            for at in range(min(starts[j + 1] - starts[j], starts_[i + 1] - starts_[i])):
                mine, yours = starts[j] + at, starts_[i] + at
                units = min(first[mine], first_[yours]) * min(second[mine], second_[yours])
                common += units * kernel[mine]
            likeness = common / max(size[j], size_[i], 1)
            table[i, j] = 1 + common * ELEMENT + int(LIKENESS * common * likeness)
    return table


@njit(cache=True)
def costs(model: Arrays) -> Ints:
    """What it costs to leave a node out, by sort, shape (sorts,)."""
    _, _, _, _, _, _, _, passable, size, _, _, _, _ = model
    each = np.where(passable > 0, LOSS, BREAK)
    return each * size


@njit(cache=True)
def align(parent: Arrays, child: Arrays) -> Ints:
    """The best monotone alignment.

    Returns:
        For each child node in canonical order the place of its parent node in canonical order, or
        -1, shape (child nodes,).
    """
    table, skip, leave = gains(parent, child), costs(parent), costs(child)
    above_sorts, sorts = parent[1], child[1]
    rows, columns = above_sorts.size, sorts.size
    steps = np.empty((rows, columns), dtype=np.int8)
    score = np.zeros(columns + 1, dtype=np.int64)
    for j in range(columns):
        score[j + 1] = score[j] - leave[sorts[j]]
    for i in range(rows):
        gain = table[above_sorts[i]]
        skipped = skip[above_sorts[i]]
        diagonal = score[0]
        left = score[0] - skipped
        score[0] = left
        for j in range(columns):
            sort = sorts[j]
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
def filled(parent: Arrays, child: Arrays) -> int:
    """Trained elements of the child's nodes that the best alignment matches."""
    _, sorts, _, _, _, _, _, _, size, _, _, _, _ = child
    found = align(parent, child)
    total = 0
    for j in range(found.size):
        if found[j] >= 0:
            total += size[sorts[j]]
    return total
