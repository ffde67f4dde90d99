"""Upper bounds of the scores of many parents for one child, from their sketches."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.matching.asbuilt import chains
from wattkeeper.policies.matching.benefit import FITTED
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare
from wattkeeper.policies.matching.sketches import (
    AsBuiltSketch,
    CoverageSketch,
    SketchTable,
    SmallInts,
    sketch_coverage,
)

ROUNDING: Final = 1e-9
"""Relative error of sums that are made in another order than the score's."""


class Tightened(NamedTuple):
    """Smaller bounds of the retained share of some parents, if their scores equal their bounds.

    Attributes:
        retained: The bounds, shape (parents,).
        is_final: Whether they cannot be tightened further, shape (parents,).
    """

    retained: Floats
    is_final: Bools


class Bounds(NamedTuple):
    """Upper bounds of what parents are chosen by.

    Attributes:
        score: Of the score, shape (parents,).
        retained: Of the retained share of each parent, shape (parents,).
        tighten: Returns smaller bounds of the retained share, at more cost, of the parents at some
            indices; not further than is needed to see that a bound is below a share.
    """

    score: Floats
    retained: Floats
    tighten: Callable[[Ints, float], Tightened]


def _not_tightened(retained: Floats) -> Callable[[Ints, float], Tightened]:
    return lambda indices, _: Tightened(retained[indices], np.ones(len(indices), dtype=bool))


def bound_coverage(child: Graph, parents: SketchTable[CoverageSketch]) -> Bounds:
    """Bounds of `coverage` and `retained_share`.

    Both are sums over the pairs of nodes that the alignment matches: of the size of the child's
    node, and of the elements that both nodes have. Matched nodes are of one kind, their weights
    fit, and their order is the canonical one in both models.

    By counts: of a kind of which the parent has `n` nodes with `e` elements, no more than `n` nodes
    of the child are matched. They fill no more than the `n` largest have, and have no more in
    common than that, and than `e`.

    By order: if an alignment fills nodes 0 to `k` of the child, these are matched with ascending
    nodes of the parent. Matching each child's node in turn with the first node after the last match
    that fits finds such nodes if there are any, and none of them is later than in any other
    alignment. If it fails at node `k`, one of the nodes 0 to `k` is not filled, and the sum is at
    least the smallest of them below the child's size.

    Tightened: the retained share decides among parents that fill the whole child. In these, each
    node is matched between its first possible match, and its last possible one, which is found in
    the same way from the end. Each has no more in common with the parent than with its best match
    there, and so does each of the parent's nodes. The most that ascending matches of all nodes can
    have in common is found by a dynamic program, which ends when what it found and the best matches
    of the remaining nodes are not enough. A parent that may not fill the whole child keeps its
    bounds.
    """
    return _bound_coverage(_prepare(child, parents))


class _Query(NamedTuple):
    """A child and the parents in the form of the kernels.

    Attributes:
        kinds: Kinds of the child's nodes, in ascending order, shape (slots,).
        slots: Position of the kind of each of its shapes in `kinds`, shape (shapes,).
        shapes: The columns of its sketch that describe shapes, slots in place of kinds.
        often: Number of its nodes of each shape.
        nodes: Shape of each of its nodes with trained elements.
        sizes: Their elements.
        parents: The columns of the parents' sketches, slots in place of kinds.
    """

    kinds: Ints
    slots: Ints
    shapes: tuple[SmallInts, ...]
    often: SmallInts
    nodes: SmallInts
    sizes: Ints
    parents: tuple[tuple[SmallInts, Ints], ...]


def _prepare(child: Graph, parents: SketchTable[CoverageSketch]) -> _Query:
    sketch = sketch_coverage(child)
    kinds, slots = np.unique(sketch.kind, return_inverse=True)
    shapes = tuple(column.astype(np.int32) for column in (slots, *sketch[1:9]))
    sizes = kernel("bounds_kernel").sizes_of(*shapes[6:9], shapes[5])[sketch.nodes]
    nodes = sketch.nodes[sizes > 0].astype(np.int32)
    often = sketch.often.astype(np.int32)
    columns = _with_slots(parents, kinds)
    return _Query(kinds, slots, shapes, often, nodes, sizes[sizes > 0], columns)


def _bound_coverage(query: _Query) -> Bounds:
    kinds, slots, shapes, _, nodes, sizes, columns = query
    kernels, count = kernel("bounds_kernel"), len(columns[0][1]) - 1
    if not len(nodes) or not count:
        none = np.zeros(count)
        return Bounds(none, none, _not_tightened(none))
    largest = [
        np.cumsum([0, *-np.sort(-sizes[slots[nodes] == slot])]) for slot in range(len(kinds))
    ]
    first = np.cumsum([0, *map(len, largest)])
    filled, common, own = kernels.bound_coverage(
        shapes, nodes, first, np.concatenate(largest), columns
    )
    score, own = filled / sizes.sum(), np.maximum(own, 1)

    def tighten(indices: Ints, least: float) -> Tightened:
        closer, is_final = kernels.bound_common(shapes, nodes, columns, own, indices, least)
        closer = np.where(closer < 0, common[indices], np.minimum(closer, common[indices]))
        return Tightened(closer / own[indices], is_final)

    return Bounds(score, common / own, tighten)


def bound_saving(child: Graph, parents: SketchTable[CoverageSketch]) -> Bounds:
    """Bounds of `expected_saving`, and those of `retained_share` that `bound_coverage` gives.

    A parent is kept only if each of its layers is matched with a larger or equal one, so that the
    child has one of each shape, and enough of each kind; and if the parent has as many of each kind
    as the child has layers that can neither be the identity nor lie beside one. Matched layers of
    equal shapes are no more than both models have of each shape, and matched ones no more than both
    have of each kind; a larger number of either raises their share, as long as the equal ones are
    not more than the matched. Heads that begin anew can only lower the saving, and are left out.
    """
    query = _prepare(child, parents)
    coverage = _bound_coverage(query)
    if not coverage.score.any():
        return coverage
    needed = _needed(prepare(child), query.kinds)
    equal, matched, layers, fits = kernel("bounds_kernel").bound_equal(
        query.shapes, query.often, needed, query.parents
    )
    saving = FITTED.filled * coverage.score + FITTED.lost * (1 - coverage.retained)
    saving += FITTED.equal * equal / np.maximum(layers + len(query.nodes) - matched, 1)
    saving += FITTED.kept * (fits & (coverage.retained >= 1 - ROUNDING))
    saving = np.where(coverage.score > 0, np.maximum(saving, 0), 0) + ROUNDING
    return Bounds(saving, coverage.retained, _not_tightened(coverage.retained))


def _needed(child: Prepared, kinds: Ints) -> Ints:
    """By kind, the number of layers that a parent must have to be kept, shape (kinds,)."""
    is_needed = (child.size > 0) & (child.passable + child.beside == 0)
    needed = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(needed, np.searchsorted(kinds, child.kind[child.sorts[is_needed[child.sorts]]]), 1)
    return needed


def bound_asbuilt(child: Graph, parents: SketchTable[AsBuiltSketch]) -> Bounds:
    """Bounds of `asbuilt`; those of the retained share are 1.

    The score of a cell is a sum over a tree of the child's nodes: a node with one predecessor has
    the tree of that predecessor below it, and a join has, for each branch that finds a row of its
    own, a copy of itself with the branch's tree below. A node of the tree adds 1 if it is matched
    with a node of the parent of its kind, else at most -1/4; skipped nodes of the parent add less
    than 0. The nodes that are matched along a path from the root to a leaf of the tree are matched
    with different nodes on one path of the parent. So of a kind of which the parent has at most `c`
    nodes on a path, at most `c` are matched on each path of the tree.

    Let `U` be the nodes of the kind that have fewer than `c` nodes of the kind below them on some
    path to a leaf. No set `F` with at most `c` nodes of the kind on each path is larger. By
    induction over the tree: let `F` hold the root, and let each path below it have at least `c`
    nodes of the kind, since otherwise the root is in `U` too. Then `F` has at most `c - 1` of them
    on each path below. In one of the trees below, adding a node that `F` lacks gives a set with at
    most `c` on each path, and this, like those in the other trees, is no larger than `U` there. So
    `F` is no larger than `U` in all trees below together.

    Hence a score is at most the sum over its tree of 1 for the nodes of `U` and of -1/4 for the
    others. The kernel computes this with a tree in which all branches find rows, and counts nothing
    for a branch that adds less than 0: leaving out a branch leaves out paths, and `U` shrinks.
    """
    model = chains(child)
    kinds, slots = np.unique(model.kinds, return_inverse=True)
    kernels = kernel("bounds_kernel")
    least = kernels.least_counts(slots, model.starts, model.before, len(kinds))
    score = kernels.bound_asbuilt(
        (slots, model.starts, model.before, least), _with_slots(parents, kinds), len(kinds)
    )
    score += ROUNDING * np.abs(score)
    retained = np.ones(len(parents))
    return Bounds(score, retained, _not_tightened(retained))


def _with_slots(parents: SketchTable[Any], kinds: Ints) -> tuple[tuple[SmallInts, Ints], ...]:
    """The parents' columns with slots in place of kinds: positions in `kinds`, or -1."""
    (numbers, starts), *columns = parents.columns
    return (parents.slots(kinds)[numbers].astype(np.int32), starts), *columns
