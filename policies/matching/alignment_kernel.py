"""Dynamic program of the alignment, compiled by numba; imported where it is used.

Models are plain tuples of the arrays of `Prepared`, in its order: numba's cache on disk would
otherwise name that class, and break when it moves.
"""

import numpy as np
from numba import njit

from wattkeeper.policies.arrays import Ints

Arrays = tuple[Ints, ...]

ELEMENT = 1 << 26
"""Gain per element that the child takes over; all other terms only break ties."""
BREAK = 1 << 11
"""Cost of an unmatched node whose omission changes the function, whatever its size: it is neither
the identity nor beside one."""
PLACE = 1 << 9
"""Gain for each property that matched nodes share: the operators before, those after, how often the
input was downsampled, and whether they are beside an identity."""
LIKENESS = 1 << 9
"""Gain of equal shapes, scaled by the similarity of the shapes (0 to 1)."""
EQUAL = 1 << 8
"""Gain of a match of equal shapes."""
LOSS = 1 << 8
"""Cost of all unmatched nodes together, by their share of the model's elements."""
NODE = 1
"""Gain of a match of nodes without weights, and again for each shared property of `PLACE`."""

LEAVE, SKIP, MATCH = 0, 1, 2


@njit(cache=True)
def gains(parent: Arrays, child: Arrays) -> Ints:
    """Gain of matching nodes, by their sorts; -1 where weights do not fit.

    Returns:
        Shape (sorts of the parent, sorts of the child).
    """
    _, _, kind, inputs, outputs, task_in, task_out, _, beside, before, after, stage = child[:12]
    _, _, kind_, inputs_, outputs_, task_in_, task_out_, _, beside_, before_, after_, stage_ = (
        parent[:12]
    )
    size, size_ = child[12], parent[12]
    table = np.full((kind_.size, kind.size), -1, dtype=np.int64)
    for i in range(kind_.size):
        for j in range(kind.size):
            if kind_[i] != kind[j]:
                continue
            if (task_in_[i] or task_in[j]) and inputs_[i] != inputs[j]:
                continue
            if (task_out_[i] or task_out[j]) and outputs_[i] != outputs[j]:
                continue
            common = count_common(parent, i, child, j)
            place = int(before[j] == before_[i]) + int(after[j] == after_[i])
            place += int(stage[j] == stage_[i]) + int(beside[j] == beside_[i])
            if common == 0:
                table[i, j] = NODE * (1 + place)
                continue
            larger = max(size[j], size_[i])
            # Units that grow by one factor on both sides are alike, however large it is.
            grown = (inputs[j] * outputs_[i]) / (inputs_[i] * outputs[j])
            alike = (min(grown, 1 / grown) + common / larger) / 2
            table[i, j] = common * ELEMENT + EQUAL * (common == larger)
            table[i, j] += PLACE * place + int(LIKENESS * alike)
    return table


@njit(cache=True)
def count_common(parent: Arrays, above: int, child: Arrays, below: int) -> int:
    """Trained elements that nodes of two sorts have both, which must fit."""
    starts, first, second, kernel = child[13:]
    starts_, first_, second_, kernel_ = parent[13:]
    common = 0
    # Either may lack tensors that it shares with an earlier node.
    tensors = min(starts[below + 1] - starts[below], starts_[above + 1] - starts_[above])
    for index in range(tensors):
        mine, yours = starts[below] + index, starts_[above] + index
        units = min(first[mine], first_[yours]) * min(second[mine], second_[yours])
        common += units * min(kernel[mine], kernel_[yours])
    return common


@njit(cache=True)
def costs(model: Arrays) -> Ints:
    """Cost of leaving a node unmatched, by sort, shape (sorts,)."""
    sorts, passable, beside, size = model[1], model[7], model[8], model[12]
    total = max(size[sorts].sum(), 1)
    broken = (passable + beside == 0) & (size > 0)
    each: Ints = LOSS * size // total + np.where(broken, BREAK, 0)
    return each


@njit(cache=True)
def align(parent: Arrays, child: Arrays) -> Ints:
    """Compute the best monotone alignment.

    Returns:
        For each child node in canonical order the position of its parent node in canonical order,
        or -1, shape (child nodes,).
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
    matches = np.full(columns, -1, dtype=np.int64)
    i, j = rows - 1, columns - 1
    while i >= 0 and j >= 0:
        step = steps[i, j]
        if step == MATCH:
            matches[j] = i
        if step != SKIP:
            j -= 1
        if step != LEAVE:
            i -= 1
    return matches


@njit(cache=True)
def count_relation(parent: Arrays, child: Arrays) -> tuple[int, ...]:
    """What the best alignment matches and leaves; a layer is a node with trained elements.

    Returns:
        Elements of the child's matched layers; elements that matched nodes have both; those of the
        parent's layers but the last; elements of these layers; matched layers, and those of equal
        shapes; layers of the child that are neither matched, passable nor beside an identity, and
        those of them that are not the last; and last layers of the child that are not matched.
    """
    sorts_, sorts, size_, size = parent[1], child[1], parent[12], child[12]
    last_, last = parent[6], child[6]
    omissible = child[7] + child[8]
    matches = align(parent, child)
    own_body = 0
    for i in range(sorts_.size):
        own_body += 0 if last_[sorts_[i]] else size_[sorts_[i]]
    filled, common, common_body, matched, equal = 0, 0, 0, 0, 0
    added, added_body, added_last = 0, 0, 0
    for j in range(matches.size):
        below = sorts[j]
        if matches[j] >= 0:
            above = sorts_[matches[j]]
            both = count_common(parent, above, child, below)
            filled += size[below]
            common += both
            common_body += 0 if last_[above] else both
            if both > 0:
                matched += 1
                equal += int(both == size[below] and both == size_[above])
        elif size[below] > 0:
            added_last += int(last[below] != 0)
            if omissible[below] == 0:
                added += 1
                added_body += int(last[below] == 0)
    return filled, common, common_body, own_body, matched, equal, added, added_body, added_last
