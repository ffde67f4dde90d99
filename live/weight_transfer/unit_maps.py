"""Which unit of the parent each unit of the child copies.

A unit that is replicated keeps the function if what reads it splits its weight among the replicas
(Net2Net, Chen et al., ICLR '16, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wattkeeper.live.weight_transfer.dims.dim import Dim, factors, pieces
from wattkeeper.policies.arrays import Floats, Ints

NOBODY = -1
"""Stands for the parent's unit of a unit of the child that has none."""


class UnitMaps:
    """Maps from units of the child to units of the parent, the same wherever units are the same.

    Attributes:
        origins: Of a free axis of the child, the axis of the parent that its units come from.
        scales: Of a free axis of the child, by what the sum over its squared amplitudes must
            exceed 1 (see `amplitude`).
    """

    def __init__(self, importance: Callable[[Dim], Floats], rng: np.random.Generator) -> None:
        self.origins: dict[Dim, Dim] = {}
        self.scales: dict[Dim, float] = {}
        self._importance = importance
        self._rng = rng
        self._averaged: set[tuple[Dim, Dim]] = set()
        self._leaves: dict[tuple[Dim, Dim], Ints] = {}
        self._amplitudes: dict[tuple[Dim, Dim], Floats] = {}

    def relate(self, child: Dim, parent: Dim) -> None:
        """Note where the child's units come from; the first to say so is believed."""
        for split in (factors, pieces):
            mine, theirs = split(child), split(parent)
            if len(mine) == len(theirs) > 1:
                for x, y in zip(mine, theirs, strict=True):
                    self.relate(x, y)
                return
        if child.find().kind == parent.find().kind == "free":
            self.origins.setdefault(child.find(), parent.find())

    def build(self, child: Dim, parent: Dim) -> Ints | None:
        """The parent's unit of each unit of the child.

        Returns:
            Shape (child's extent,), `NOBODY` where there is none; None if the axes are not built
            alike, or a fixed extent differs.
        """
        mine, theirs = factors(child), factors(parent)
        if len(mine) > 1 or len(theirs) > 1:
            if len(mine) != len(theirs):
                return None
            whole = np.zeros(1, dtype=np.int64)
            for x, y in zip(mine, theirs, strict=True):
                part = self.build(x, y)
                if part is None:
                    return None
                merged = whole[:, None] * y.extent + part
                merged[(whole[:, None] < 0) | (part < 0)] = NOBODY
                whole = merged.ravel()
            return whole
        mine, theirs = pieces(child), pieces(parent)
        if len(mine) > 1 or len(theirs) > 1:
            return self._joined(mine, theirs)
        return self._leaf(child.find(), parent.find())

    def forced(self, child: Dim, parent: Dim) -> Ints:
        """As `build`; axes that are not built alike are mapped as if they were plain units."""
        found = self.build(child, parent)
        return np.arange(child.extent) % parent.extent if found is None else found

    def _leaf(self, child: Dim, parent: Dim) -> Ints | None:
        if child.extent == parent.extent:
            return np.arange(child.extent)
        if "fixed" in (child.kind, parent.kind):
            return None
        key = (child, parent)
        if key not in self._leaves:
            if child.extent > parent.extent:
                units = np.arange(child.extent) % parent.extent
                if key in self._averaged:
                    units[_replicated(child, parent) :] = NOBODY
                self._leaves[key] = units
            else:
                order = np.argsort(-self._importance(parent), kind="stable")
                self._leaves[key] = np.sort(order[: child.extent])
        return self._leaves[key]

    def average(self, child: Dim, parent: Dim) -> None:
        """Replicate all units of a free axis equally often; what is left over carries their mean.

        The others stand away from that mean by more than in the parent, by the `gain`, so that the
        variance is the parent's.
        """
        self._averaged.add((child.find(), parent.find()))

    def is_averaged(self, child: Dim, parent: Dim) -> bool:
        """Whether some units carry the mean of all others."""
        return (child.find(), parent.find()) in self._averaged

    def gain(self, child: Dim, parent: Dim) -> float:
        """By how much units stand further away from their mean than in the parent."""
        if not self.is_averaged(child, parent):
            return 1.0
        return math.sqrt(child.extent / _replicated(child, parent))

    def mixture(self, child: Dim, parent: Dim) -> Floats | None:
        """How units are made of the parent's if some carry the mean of all others.

        Returns:
            Shape (child's extent, parent's extent); None if none does.
        """
        if not self.is_averaged(child, parent):
            return None
        units = self.forced(child, parent)
        gain = self.gain(child, parent)
        mean = 1 / parent.extent
        apart: Floats = np.where(units[:, None] < 0, mean, np.eye(parent.extent)[units])
        return mean + gain * (apart - mean)

    def _joined(self, mine: list[Dim], theirs: list[Dim]) -> Ints | None:
        """Concatenations: every piece goes where its units come from."""
        starts = np.cumsum([0, *(axis.extent for axis in theirs)])
        roots = [root(axis) for axis in theirs]
        places: list[int | None] = []
        for axis in mine:
            origin = self.origins.get(root(axis))
            free = (at for at, root in enumerate(roots) if root is origin and at not in places)
            places.append(None if origin is None else next(free, None))
        if len(mine) == len(theirs):
            for at, place in enumerate(places):
                if place is None and at not in places:
                    places[at] = at
        if all(place is None for place in places):
            return None
        parts = []
        for axis, place in zip(mine, places, strict=True):
            part = np.full(axis.extent, NOBODY)
            if place is not None:
                found = self.build(axis, theirs[place])
                if found is None:
                    return None
                part = np.where(found < 0, NOBODY, found + starts[place])
            parts.append(part)
        return np.concatenate(parts)

    def amplitude(self, child: Dim, parent: Dim) -> Floats | None:
        """By what each unit of the child exceeds the parent's unit that it copies.

        Where two computed tensors are multiplied and summed over units (queries and keys), no
        weight is there to be split among replicas. Both sides then carry an amplitude, unequal
        among replicas; its squares sum to 1, or to what else makes up for a scale that depends on
        the width, such as 1 / sqrt(units).

        Returns:
            Shape (child's extent,); None if all are 1.
        """
        mine, theirs = factors(child), factors(parent)
        if len(mine) == len(theirs) > 1:
            return self._nested(mine, theirs, np.kron)
        mine, theirs = pieces(child), pieces(parent)
        if len(mine) == len(theirs) > 1:
            return self._nested(mine, theirs, _append)
        child, parent = child.find(), parent.find()
        scale = self.scales.get(child)
        units = self._leaf(child, parent) if scale is not None else None
        if scale is None or units is None:
            return None
        if scale == 1 and child.extent <= parent.extent:
            return None
        key = (child, parent)
        if key not in self._amplitudes:
            self._amplitudes[key] = np.sqrt(scale * self.shares(units, 1)[0])
        return self._amplitudes[key]

    def _nested(
        self, mine: list[Dim], theirs: list[Dim], join: Callable[[Floats, Floats], Any]
    ) -> Floats | None:
        parts = [self.amplitude(x, y) for x, y in zip(mine, theirs, strict=True)]
        if all(part is None for part in parts):
            return None
        whole: Floats | None = None
        for axis, part in zip(mine, parts, strict=True):
            own = np.ones(axis.extent) if part is None else part
            whole = own if whole is None else join(whole, own)
        return whole

    def shares(self, units: Ints, rows: int) -> Floats:
        """How each reader splits its weight among the replicas of a unit.

        Shares are positive, unequal, and differ from reader to reader, so that replicas get
        different gradients, not only longer ones, and part at the first step of any optimiser.

        Returns:
            Shape (rows, units); over the replicas of a unit they sum to 1, over `NOBODY` 0.
        """
        raw = self._rng.exponential(size=(rows, len(units)))
        raw[:, units < 0] = 0
        sums = np.zeros((rows, int(units.max(initial=0)) + 1))
        np.add.at(sums.T, np.maximum(units, 0), raw.T)
        share: Floats = raw / np.where(sums > 0, sums, 1)[:, np.maximum(units, 0)]
        return share


def _replicated(child: Dim, parent: Dim) -> int:
    """How many units there are if all are replicated equally often."""
    return child.extent - child.extent % parent.extent


def _append(first: Floats, second: Floats) -> Floats:
    return np.concatenate([first, second])


def root(axis: Dim) -> Dim:
    """The axis whose units tell pieces of a concatenation apart."""
    return factors(axis)[0].find()


def spread(axis: Dim, leaf: Dim) -> Ints:
    """Which unit of `leaf` every element of an axis belongs to, `NOBODY` if none."""
    parts: Any = factors(axis)
    if len(parts) > 1:
        whole = np.full(1, NOBODY)
        for part in parts:
            own = spread(part, leaf)
            whole = np.where(own[None] >= 0, own[None], whole[:, None]).ravel()
        return whole
    parts = pieces(axis)
    if len(parts) > 1:
        return np.concatenate([spread(part, leaf) for part in parts])
    if axis.find() is leaf:
        return np.arange(leaf.extent)
    return np.full(axis.extent, NOBODY)


def covers(units: Ints, extent: int) -> bool:
    """Whether every unit of the parent is copied."""
    return len(np.unique(units[units >= 0])) == extent


def evenly(units: Ints, extent: int) -> bool:
    """Whether every unit of the parent is copied equally often and nothing else is there."""
    counts = np.bincount(units[units >= 0], minlength=extent)
    return bool((units >= 0).all() and (counts == counts[0]).all())
