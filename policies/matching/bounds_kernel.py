"""Upper bounds of the scores of many parents, compiled by numba; see `bounds` for their proofs."""

import numpy as np
from numba import njit

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.matching.sketches import SmallInts

Shapes = tuple[SmallInts, ...]
"""The first nine columns of a `CoverageSketch`, of one model."""
Columns = tuple[tuple[SmallInts, Ints], ...]
"""Columns of a `SketchTable`: values of all models, and where each model's begin."""


@njit(cache=True)
def longest_paths(slots: Ints, starts: Ints, before: Ints, kinds: int) -> Ints:
    """Largest number of nodes of each kind on one path, shape (kinds,).

    Args:
        slots: Kind of each node in topological order, below `kinds`, shape (nodes,).
        starts: Where each node's predecessors begin in `before`, shape (nodes + 1,).
        before: Predecessors, -1 for a source.
        kinds: Number of kinds.
    """
    counts = np.zeros((slots.size, kinds), dtype=np.int64)
    largest = np.zeros(kinds, dtype=np.int64)
    for node in range(slots.size):
        for edge in range(starts[node], starts[node + 1]):
            if before[edge] >= 0:
                counts[node] = np.maximum(counts[node], counts[before[edge]])
        counts[node, slots[node]] += 1
        largest = np.maximum(largest, counts[node])
    return largest


@njit(cache=True)
def least_counts(slots: Ints, starts: Ints, before: Ints, kinds: int) -> Ints:
    """By edge into a node, the smallest number of nodes of its kind on a path that ends there.

    The node itself counts. Arguments are those of `longest_paths`.
    """
    counts = np.zeros((slots.size, kinds), dtype=np.int64)
    by_edge = np.ones(before.size, dtype=np.int64)
    for node in range(slots.size):
        slot = slots[node]
        for edge in range(starts[node], starts[node + 1]):
            place = before[edge]
            by_edge[edge] = 1 + (counts[place, slot] if place >= 0 else 0)
            if place < 0:
                counts[node] = 0
            elif edge == starts[node]:
                counts[node] = counts[place]
            else:
                counts[node] = np.minimum(counts[node], counts[place])
        counts[node, slot] += 1
    return by_edge


@njit(cache=True)
def bound_asbuilt(child: tuple[Ints, Ints, Ints, Ints], parents: Columns, kinds: int) -> Floats:
    """Bound of each parent's published score, shape (parents,).

    Args:
        child: Slot of each node's kind, starts and predecessors (see `Chains`), and `least_counts`.
        parents: Columns of the parents' sketches, their kinds slots, and -1 for others.
        kinds: Number of the child's kinds.
    """
    slots, starts, before, least = child
    (parent_slots, parent_starts), (nodes, _) = parents
    bounds = np.zeros(parent_starts.size - 1)
    most = np.zeros(kinds, dtype=np.int64)
    best = np.zeros(slots.size + 1)
    for parent in range(bounds.size):
        most[:] = 0
        for row in range(parent_starts[parent], parent_starts[parent + 1]):
            slot = parent_slots[row]
            if slot >= 0:
                most[slot] = nodes[row]
        for node in range(slots.size):
            total = 0.0
            is_join = starts[node + 1] - starts[node] > 1
            for edge in range(starts[node], starts[node + 1]):
                gain = 1.0 if least[edge] <= most[slots[node]] else -0.25
                head = best[before[edge] + 1] + gain
                total += max(head, 0.0) if is_join else head
            best[node + 1] = total
        bounds[parent] = best[slots.size]
    return bounds


@njit(cache=True)
def sizes_of(first: SmallInts, second: SmallInts, kernel: SmallInts, starts: SmallInts) -> Ints:
    """Elements of each shape of a model, by its columns, shape (shapes,)."""
    sizes = np.zeros(starts.size - 1, dtype=np.int64)
    for shape in range(sizes.size):
        for tensor in range(starts[shape], starts[shape + 1]):
            sizes[shape] += np.int64(first[tensor]) * second[tensor] * kernel[tensor]
    return sizes


@njit(cache=True)
def sizes_of_all(parents: Columns) -> Ints:
    """Elements of each shape of all parents, shape (shapes,)."""
    kinds, kind_starts = parents[0]
    (ends, end_starts), (first, tensor_starts), (second, _), (kernel, _) = parents[5:9]
    sizes = np.zeros(kinds.size, dtype=np.int64)
    for parent in range(kind_starts.size - 1):
        for index in range(kind_starts[parent + 1] - kind_starts[parent]):
            end = end_starts[parent] + index
            for tensor in range(
                tensor_starts[parent] + ends[end], tensor_starts[parent] + ends[end + 1]
            ):
                sizes[kind_starts[parent] + index] += (
                    np.int64(first[tensor]) * second[tensor] * kernel[tensor]
                )
    return sizes


@njit(cache=True)
def bound_coverage(
    child: Shapes, nodes: SmallInts, first: Ints, largest: Ints, parents: Columns
) -> tuple[Ints, Ints, Ints]:
    """Bounds of what each parent fills, and of what it and the child have both, in elements.

    Args:
        child: The child's shapes; their kinds are slots, from 0, and those of other models -1.
        nodes: Shape of each of its nodes, shape (nodes,).
        first: By slot, where the sums of the sizes of its n largest nodes begin in `largest`, n
            from 0, shape (slots + 1,).
        largest: These sums.
        parents: Columns of the parents' sketches, their kinds slots, too.

    Returns:
        Both bounds, and the elements of each parent, shapes (parents,).
    """
    count = parents[0][1].size - 1
    filled, common, own = (
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
    )
    sizes = sizes_of(child[6], child[7], child[8], child[5])
    total = sizes[nodes].sum()
    least = np.zeros(nodes.size, dtype=np.int64)
    for node in range(nodes.size):
        size = sizes[nodes[node]]
        least[node] = min(size, least[node - 1]) if node else size
    slots = first.size - 1
    often, elements = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    slot, inputs, outputs, task_inputs, task_outputs = child[:5]
    (slot_, starts_), (inputs_, _), (outputs_, _), (task_inputs_, _), (task_outputs_, _) = parents[
        :5
    ]
    (often_, _), (nodes_, node_starts_) = parents[9:]
    all_sizes = sizes_of_all(parents)
    for parent in range(count):
        begin = starts_[parent]
        often[:] = 0
        elements[:] = 0
        for shape in range(begin, starts_[parent + 1]):
            here = often_[shape] * all_sizes[shape]
            own[parent] += here
            kind = slot_[shape]
            if kind >= 0:
                often[kind] += often_[shape]
                elements[kind] += here
        for kind in range(slots):
            most = min(often[kind], first[kind + 1] - first[kind] - 1)
            fill = largest[first[kind] + most]
            filled[parent] += fill
            common[parent] += min(fill, elements[kind])
        if filled[parent] < total:
            continue
        done = 0
        wanted = nodes[0]
        for place in range(node_starts_[parent], node_starts_[parent + 1]):
            shape = begin + nodes_[place]
            if slot_[shape] != slot[wanted]:
                continue
            if (task_inputs_[shape] or task_inputs[wanted]) and inputs_[shape] != inputs[wanted]:
                continue
            is_head = task_outputs_[shape] or task_outputs[wanted]
            if is_head and outputs_[shape] != outputs[wanted]:
                continue
            done += 1
            if done == nodes.size:
                break
            wanted = nodes[done]
        if done < nodes.size:
            filled[parent] = total - least[done]
    return filled, common, own


@njit(cache=True)
def bound_common(
    child: Shapes, nodes: SmallInts, parents: Columns, own: Ints, places: Ints, least: float
) -> tuple[Ints, Bools]:
    """Bounds of what parents that fill the whole child and the child have both, in elements.

    A parent whose share of its own elements is found to be below `least`, or below that of a parent
    before it, is not bounded further.

    Args:
        child: As in `bound_coverage`.
        nodes: Shape of each of its nodes, shape (nodes,).
        parents: As in `bound_coverage`.
        own: Elements of each parent.
        places: Indices of the parents.
        least: A share of a parent's elements.

    Returns:
        The bounds, -1 for a parent that cannot fill the whole child, and which of them are final,
        shapes (places,).
    """
    bounds = np.full(places.size, -1, dtype=np.int64)
    is_final = np.ones(places.size, dtype=np.bool_)
    earliest = np.zeros(nodes.size, dtype=np.int64)
    latest = np.zeros(nodes.size, dtype=np.int64)
    rest = np.zeros(nodes.size + 1, dtype=np.int64)
    all_nodes, node_starts = parents[10]
    longest = np.diff(node_starts).max()
    most, row = np.full(longest, -1, dtype=np.int64), np.empty(longest, dtype=np.int64)
    common = np.empty((child[0].size, np.diff(parents[0][1]).max()), dtype=np.int64)
    for index in range(places.size):
        parent = places[index]
        there = all_nodes[node_starts[parent] : node_starts[parent + 1]]
        common_of_shapes(child, parents, parent, common)
        if not find_windows(nodes, there, common, earliest, latest):
            continue
        bounds[index] = sum_largest(nodes, parents, parent, common, rest)
        if bounds[index] < least * own[parent]:
            is_final[index] = False
            continue
        for node in range(nodes.size):
            before, reached = -1, earliest[node - 1]
            if node == 0:
                before, reached = 0, there.size
            best = -1
            for place in range(earliest[node], latest[node] + 1):
                while reached < min(place, latest[node - 1] + 1):
                    before = max(before, most[reached])
                    reached += 1
                shared = common[nodes[node], there[place]]
                row[place] = before + shared if before >= 0 and shared >= 0 else -1
                best = max(best, row[place])
            most[earliest[node] : latest[node] + 1] = row[earliest[node] : latest[node] + 1]
            bounds[index] = min(bounds[index], best + rest[node + 1])
            if bounds[index] < least * own[parent]:
                is_final[index] = node == nodes.size - 1
                break
        least = max(least, bounds[index] / max(own[parent], 1))
    return bounds, is_final


@njit(cache=True)
def find_windows(
    nodes: SmallInts, there: SmallInts, common: Ints, earliest: Ints, latest: Ints
) -> bool:
    """Fill in the first and the last possible match of each node of a child in a parent.

    Args:
        nodes: Shape of each node of the child, shape (nodes,).
        there: Shape of each node of the parent.
        common: As `common_of_shapes` fills it in.
        earliest: Receives the first matches, shape (nodes,).
        latest: Receives the last matches, shape (nodes,).

    Returns:
        Whether all nodes can be matched at once.
    """
    done = 0
    for place in range(there.size):
        if common[nodes[done], there[place]] >= 0:
            earliest[done] = place
            done += 1
            if done == nodes.size:
                break
    if done < nodes.size:
        return False
    for place in range(there.size - 1, -1, -1):
        if common[nodes[done - 1], there[place]] >= 0:
            done -= 1
            latest[done] = place
            if done == 0:
                break
    return True


@njit(cache=True)
def sum_largest(nodes: SmallInts, parents: Columns, parent: int, common: Ints, rest: Ints) -> int:
    """The sum of what each node has in common with its best match, of either model; the smaller.

    Also fills in the sums of the child's nodes from each one on, shape (nodes + 1,).
    """
    often, starts = parents[9]
    shapes = starts[parent + 1] - starts[parent]
    rest[nodes.size] = 0
    best = np.full(common.shape[0], -1, dtype=np.int64)
    for node in range(nodes.size - 1, -1, -1):
        if best[nodes[node]] < 0:
            best[nodes[node]] = common[nodes[node], :shapes].max()
        rest[node] = rest[node + 1] + best[nodes[node]]
    total = 0
    for place in range(shapes):
        largest = 0
        for here in range(best.size):
            if best[here] >= 0:
                largest = max(largest, common[here, place])
        total += largest * often[starts[parent] + place]
    return int(min(total, rest[0]))


@njit(cache=True)
def common_of_shapes(child: Shapes, parents: Columns, parent: int, common: Ints) -> None:
    """Fill in the elements that a child's and a parent's shapes have both, -1 if they do not fit.

    `common` has the shape (child's shapes, most shapes of a parent).
    """
    kind, inputs, outputs, task_inputs, task_outputs, starts, first, second, kernel = child
    kind_, shape_starts = parents[0]
    inputs_, outputs_, task_inputs_ = parents[1][0], parents[2][0], parents[3][0]
    task_outputs_, (starts_, end_starts) = parents[4][0], parents[5]
    (first_, tensor_starts), second_, kernel_ = parents[6], parents[7][0], parents[8][0]
    ends, tensors = end_starts[parent], tensor_starts[parent]
    for place in range(shape_starts[parent + 1] - shape_starts[parent]):
        shape = shape_starts[parent] + place
        for here in range(kind.size):
            common[here, place] = -1
            if kind_[shape] != kind[here]:
                continue
            if (task_inputs_[shape] or task_inputs[here]) and inputs_[shape] != inputs[here]:
                continue
            if (task_outputs_[shape] or task_outputs[here]) and outputs_[shape] != outputs[here]:
                continue
            begin, count = tensors + starts_[ends + place], starts_[ends + place + 1]
            count = min(count - starts_[ends + place], starts[here + 1] - starts[here])
            total = 0
            for tensor in range(count):
                mine, yours = starts[here] + tensor, begin + tensor
                units = np.int64(min(first[mine], first_[yours])) * min(
                    second[mine], second_[yours]
                )
                total += units * min(kernel[mine], kernel_[yours])
            common[here, place] = total


@njit(cache=True)
def bound_equal(
    child: Shapes, often: SmallInts, needed: Ints, parents: Columns
) -> tuple[Ints, Ints, Ints, Bools]:
    """Bounds of how many layers of each parent are matched with equal ones of the child.

    Args:
        child: As in `bound_coverage`.
        often: Number of the child's nodes of each shape, shape (shapes,).
        needed: By slot, the number of the child's layers that a parent must have to be kept, shape
            (slots,).
        parents: As in `bound_coverage`.

    Returns:
        The bounds; a bound of the number of matched layers; the number of the parents' layers; and
        whether each could be kept, shapes (parents,).
    """
    kind, _, _, _, _, starts, first, second, kernel = child
    kind_, shape_starts = parents[0]
    starts_, end_starts = parents[5]
    (first_, tensor_starts), second_, kernel_ = parents[6], parents[7][0], parents[8][0]
    often_ = parents[9][0]
    sizes, all_sizes = sizes_of(first, second, kernel, starts), sizes_of_all(parents)
    count = shape_starts.size - 1
    equal, layers = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    matched, fits = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_)
    kinds = needed.size
    total = np.zeros(kinds, dtype=np.int64)
    for here in range(kind.size):
        total[kind[here]] += often[here] if sizes[here] > 0 else 0
    of_kind = np.zeros(kinds, dtype=np.int64)
    with_tied = np.zeros(kinds, dtype=np.int64)
    left = np.zeros(kind.size, dtype=np.int64)
    for parent in range(count):
        of_kind[:] = 0
        with_tied[:] = 0
        left[:] = often
        for shape in range(shape_starts[parent], shape_starts[parent + 1]):
            if kind_[shape] >= 0:
                with_tied[kind_[shape]] += often_[shape]
            if all_sizes[shape] == 0:  # it shares all its tensors with an earlier one
                continue
            layers[parent] += often_[shape]
            if kind_[shape] < 0:
                fits[parent] = False
                continue
            of_kind[kind_[shape]] += often_[shape]
            place = shape - shape_starts[parent]
            begin = tensor_starts[parent] + starts_[end_starts[parent] + place]
            tensors = tensor_starts[parent] + starts_[end_starts[parent] + place + 1] - begin
            there = often_[shape]
            is_contained = False
            for here in range(kind.size):
                if kind[here] != kind_[shape] or tensors > starts[here + 1] - starts[here]:
                    continue
                contains, is_equal = True, sizes[here] == all_sizes[shape]
                for tensor in range(tensors):
                    mine, yours = starts[here] + tensor, begin + tensor
                    contains = contains and (
                        first[mine] >= first_[yours]
                        and second[mine] >= second_[yours]
                        and kernel[mine] >= kernel_[yours]
                    )
                is_contained = is_contained or contains
                if is_equal and contains:
                    taken = min(there, left[here])
                    equal[parent] += taken
                    left[here] -= taken
                    there -= taken
            fits[parent] = fits[parent] and is_contained
        for slot in range(kinds):
            matched[parent] += min(of_kind[slot], total[slot])
            fits[parent] = fits[parent] and needed[slot] <= with_tied[slot]
            fits[parent] = fits[parent] and of_kind[slot] <= total[slot]
    return equal, matched, layers, fits
