"""Maps from the child's units to the parent's units that they copy.

A replicated unit preserves the function if every operator that reads it splits its weight among the
replicas (Net2Net, Chen et al., ICLR '16, section 3.2).
"""

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from wattkeeper.live.weight_transfer.dims.dim import Dim, factors, pieces
from wattkeeper.policies.arrays import Floats, Ints

NO_UNIT = -1
"""In a map: the child's unit copies no unit of the parent."""


class UnitMaps:
    """Maps of units, the same for all dimensions that share units.

    A free dimension (neither product nor concatenation) is called a leaf.

    Attributes:
        origins: By leaf of the child, the leaf of the parent that its units come from.
        scales: By leaf of the child, the sum of squared amplitudes of a unit's replicas (see
            `amplitude`).
    """

    def __init__(self, importance: Callable[[Dim], Floats], rng: np.random.Generator) -> None:
        self.origins: dict[Dim, Dim] = {}
        self.scales: dict[Dim, float] = {}
        self._importance = importance
        self._rng = rng
        self._mean_expanded: set[tuple[Dim, Dim]] = set()
        self._leaf_maps: dict[tuple[Dim, Dim], Ints] = {}
        self._amplitudes: dict[tuple[Dim, Dim], Floats] = {}

    def relate(self, child: Dim, parent: Dim) -> None:
        """Record where the child's units come from; the first record of a leaf counts."""
        for split in (factors, pieces):
            child_parts, parent_parts = split(child), split(parent)
            if len(child_parts) == len(parent_parts) > 1:
                for x, y in zip(child_parts, parent_parts, strict=True):
                    self.relate(x, y)
                return
        if child.find().kind == parent.find().kind == "free":
            self.origins.setdefault(child.find(), parent.find())

    def map_units(self, child: Dim, parent: Dim) -> Ints | None:
        """The parent's unit of each unit of the child, shape (child's extent,), or `NO_UNIT`.

        None if the dimensions have different structures, a fixed extent differs, or units would
        move that have a place.
        """
        units = self._map_parts(child, parent)
        is_ordered = child.find().ordered or parent.find().ordered
        if units is not None and is_ordered and not np.array_equal(units, np.arange(parent.extent)):
            return None
        return units

    def _map_parts(self, child: Dim, parent: Dim) -> Ints | None:
        child_parts, parent_parts = factors(child), factors(parent)
        if len(child_parts) > 1 or len(parent_parts) > 1:
            return self._map_product(child_parts, parent_parts)
        child_parts, parent_parts = pieces(child), pieces(parent)
        if len(child_parts) > 1 or len(parent_parts) > 1:
            return self._map_concat(child_parts, parent_parts)
        return self._map_leaf(child.find(), parent.find())

    def map_any(self, child: Dim, parent: Dim) -> Ints:
        """As `map_units`; dimensions of different structures are mapped as if they were leaves."""
        units = self.map_units(child, parent)
        return np.arange(child.extent) % parent.extent if units is None else units

    def _map_product(self, child: list[Dim], parent: list[Dim]) -> Ints | None:
        if len(child) != len(parent):
            return None
        outer = np.zeros(1, dtype=np.int64)
        for x, y in zip(child, parent, strict=True):
            inner = self.map_units(x, y)
            if inner is None:
                return None
            merged = outer[:, None] * y.extent + inner
            merged[(outer[:, None] < 0) | (inner < 0)] = NO_UNIT
            outer = merged.ravel()
        return outer

    def _map_concat(self, child: list[Dim], parent: list[Dim]) -> Ints | None:
        """Each piece is mapped to the parent's piece that its units come from."""
        starts = np.cumsum([0, *(piece.extent for piece in parent)])
        parts = []
        sources = self._match_pieces(child, parent)
        if all(source is None for source in sources):
            return None
        for piece, source in zip(child, sources, strict=True):
            if source is None:
                parts.append(np.full(piece.extent, NO_UNIT))
                continue
            units = self.map_units(piece, parent[source])
            if units is None:
                return None
            parts.append(np.where(units < 0, NO_UNIT, units + starts[source]))
        return np.concatenate(parts)

    def _match_pieces(self, child: list[Dim], parent: list[Dim]) -> list[int | None]:
        """By piece of the child, the index of the parent's piece; None if there is none."""
        leading = [outer_leaf(piece) for piece in parent]
        sources: list[int | None] = []
        for piece in child:
            leaf = outer_leaf(piece)
            origin = self.origins.get(leaf)
            unused = (
                index
                for index, other in enumerate(leading)
                if index not in sources
                and (other is origin or leaf.kind == other.kind == "fixed")
                and (other is origin or piece.extent == parent[index].extent)
            )
            sources.append(next(unused, None))
        if len(child) == len(parent):
            for index, source in enumerate(sources):
                if source is None and index not in sources:
                    sources[index] = index
        return sources

    def _map_leaf(self, child: Dim, parent: Dim) -> Ints | None:
        if child.extent == parent.extent:
            return np.arange(child.extent)
        if "fixed" in (child.kind, parent.kind):
            return None
        key = (child, parent)
        if key not in self._leaf_maps:
            if child.extent > parent.extent:
                units = np.arange(child.extent) % parent.extent
                if key in self._mean_expanded:
                    units[_replicated_extent(child, parent) :] = NO_UNIT
                self._leaf_maps[key] = units
            else:
                order = np.argsort(-self._importance(parent), kind="stable")
                self._leaf_maps[key] = np.sort(order[: child.extent])
        return self._leaf_maps[key]

    def expand_by_mean(self, child: Dim, parent: Dim) -> None:
        """Replicate all units of a leaf equally often; the remaining ones carry their mean.

        Replicas deviate from it `gain` times as much as in the parent, which keeps the variance.
        """
        self._mean_expanded.add((child.find(), parent.find()))

    def is_mean_expanded(self, child: Dim, parent: Dim) -> bool:
        """Whether some units carry the mean of all others."""
        return (child.find(), parent.find()) in self._mean_expanded

    def gain(self, child: Dim, parent: Dim) -> float:
        """The factor on the units' deviation from their mean."""
        if not self.is_mean_expanded(child, parent):
            return 1.0
        return math.sqrt(child.extent / _replicated_extent(child, parent))

    def mixture(self, child: Dim, parent: Dim) -> Floats | None:
        """The child's units as linear combinations of the parent's; None if none carries the mean.

        The shape is (child's extent, parent's extent).
        """
        if not self.is_mean_expanded(child, parent):
            return None
        units = self.map_any(child, parent)
        mean = 1 / parent.extent
        plain: Floats = np.where(units[:, None] < 0, mean, np.eye(parent.extent)[units])
        return mean + self.gain(child, parent) * (plain - mean)

    def amplitude(self, child: Dim, parent: Dim) -> Floats | None:
        """The factor on each unit of the child, shape (child's extent,); None if all are 1.

        Where two computed tensors are multiplied and summed over units (queries and keys), there
        is no weight to split among replicas. Both factors then carry an amplitude, unequal among
        replicas. Its squares sum to 1 over a unit's replicas, or to the value that compensates for
        a scale that depends on the width, such as 1 / sqrt(units).
        """
        for split, join in ((factors, _outer), (pieces, _append)):
            child_parts, parent_parts = split(child), split(parent)
            if len(child_parts) == len(parent_parts) > 1:
                return self._join_amplitudes(child_parts, parent_parts, join)
        child, parent = child.find(), parent.find()
        scale = self.scales.get(child)
        units = self._map_leaf(child, parent) if scale is not None else None
        if scale is None or units is None or (scale == 1 and child.extent <= parent.extent):
            return None
        key = (child, parent)
        if key not in self._amplitudes:
            self._amplitudes[key] = np.sqrt(scale * self.draw_shares(units, 1)[0])
        return self._amplitudes[key]

    def _join_amplitudes(
        self, child: list[Dim], parent: list[Dim], join: Callable[[Floats, Floats], Floats]
    ) -> Floats | None:
        parts = [self.amplitude(x, y) for x, y in zip(child, parent, strict=True)]
        if all(part is None for part in parts):
            return None
        known = (
            np.ones(dim.extent) if part is None else part
            for dim, part in zip(child, parts, strict=True)
        )
        return reduce(join, known)

    def draw_shares(self, units: Ints, rows: int) -> Floats:
        """Draw how each reader splits its weight among the replicas of a unit.

        The shares, shape (rows, units), are positive and sum to 1 over the replicas of a unit;
        those of `NO_UNIT` are 0. They differ from reader to reader, so that gradients of replicas
        differ in direction, and the replicas diverge at the first step of any optimiser.
        """
        raw = self._rng.exponential(size=(rows, len(units)))
        raw[:, units < 0] = 0
        sums = np.zeros((rows, int(units.max(initial=0)) + 1))
        np.add.at(sums.T, np.maximum(units, 0), raw.T)
        shares: Floats = raw / np.where(sums > 0, sums, 1)[:, np.maximum(units, 0)]
        return shares


def _outer(first: Floats, second: Floats) -> Floats:
    return np.outer(first, second).ravel()


def _append(first: Floats, second: Floats) -> Floats:
    return np.concatenate([first, second])


def _replicated_extent(child: Dim, parent: Dim) -> int:
    """Number of units if all are replicated equally often."""
    return child.extent - child.extent % parent.extent


def outer_leaf(dim: Dim) -> Dim:
    """The outermost factor, by which pieces of a concatenation are identified."""
    return factors(dim)[0].find()


def locate_units(dim: Dim, leaf: Dim) -> Ints:
    """The unit of `leaf` that each element of a dimension belongs to, `NO_UNIT` if none."""
    parts = factors(dim)
    if len(parts) > 1:
        outer = np.full(1, NO_UNIT)
        for part in parts:
            inner = locate_units(part, leaf)
            outer = np.where(inner[None] >= 0, inner[None], outer[:, None]).ravel()
        return outer
    parts = pieces(dim)
    if len(parts) > 1:
        return np.concatenate([locate_units(part, leaf) for part in parts])
    if dim.find() is leaf:
        return np.arange(leaf.extent)
    return np.full(dim.extent, NO_UNIT)


def covers_all(units: Ints, extent: int) -> bool:
    """Whether every unit of the parent is copied."""
    return len(np.unique(units[units >= 0])) == extent


def is_even(units: Ints, extent: int) -> bool:
    """Whether all units are copies, and every unit of the parent is copied equally often."""
    counts = np.bincount(units[units >= 0], minlength=extent)
    return bool((units >= 0).all() and (counts == counts[0]).all())
