"""Units of a network, unified over everything that forces two tensors to share them.

An `Dim` is one dimension of a tensor. It is `free` (units that may be replicated or left out),
`fixed` (an extent that must be as in the parent: batch, time, classes), a `product` of axes
(heads times units of a head, channels times pixels) or a `concat` of axes, as terms are in
unification. Structural pruning groups layers alike (DepGraph, Fang et al., CVPR '23, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence


class Dim:
    """One dimension of a tensor; axes that must agree are bound to one another.

    Attributes:
        extent: Its number of elements.
        kind: `free`, `fixed`, `product` (parts from the outermost) or `concat`.
        parts: Of a product or a concatenation.
    """

    __slots__ = ("_bound", "extent", "kind", "parts")

    def __init__(self, extent: int, kind: str = "free", parts: tuple[Dim, ...] = ()) -> None:
        self.extent = extent
        self.kind = kind
        self.parts = parts
        self._bound: Dim | None = None

    def find(self) -> Dim:
        """The axis that stands for this one."""
        axis = self
        while axis._bound is not None:
            axis = axis._bound
        if axis is not self:
            self._bound = axis
        return axis

    def bind(self, other: Dim) -> None:
        """Let another axis stand for this one."""
        self._bound = other


def free(extent: int) -> Dim:
    """Units of their own; a single one may still become several."""
    return Dim(extent)


def fixed(extent: int) -> Dim:
    """An extent that must not change."""
    return Dim(extent, "fixed")


def product(parts: Iterable[Dim]) -> Dim:
    """Axes merged into one, the first the outermost."""
    flat = [factor for part in parts for factor in factors(part)]
    flat = [factor for factor in flat if (factor.extent, factor.kind) != (1, "fixed")]
    if len(flat) < 2:
        return flat[0] if flat else fixed(1)
    return Dim(math.prod(part.extent for part in flat), "product", tuple(flat))


def concat(parts: Iterable[Dim]) -> Dim:
    """Axes one after another."""
    flat = [piece for part in parts for piece in pieces(part)]
    if len(flat) == 1:
        return flat[0]
    return Dim(sum(part.extent for part in flat), "concat", tuple(flat))


def factors(axis: Dim) -> list[Dim]:
    """What an axis is a product of; itself if it is none."""
    axis = axis.find()
    if axis.kind != "product":
        return [axis]
    return [factor for part in axis.parts for factor in factors(part)]


def pieces(axis: Dim) -> list[Dim]:
    """What an axis is a concatenation of; itself if it is none."""
    axis = axis.find()
    if axis.kind != "concat":
        return [axis]
    return [piece for part in axis.parts for piece in pieces(part)]


def pin(axis: Dim) -> None:
    """Make an axis and all its parts fixed."""
    axis = axis.find()
    if axis.kind == "free":
        axis.kind = "fixed"
    for part in axis.parts:
        pin(part)


def unify(first: Dim, second: Dim) -> None:
    """Let two axes have the same units; what cannot be reconciled is fixed on both sides."""
    a, b = first.find(), second.find()
    if a is b:
        return
    if a.extent != b.extent:
        pin(a)
        pin(b)
    elif a.kind == "free":
        a.bind(b)
    elif b.kind == "free":
        b.bind(a)
    elif "fixed" in (a.kind, b.kind):
        pin(a)
        pin(b)
        (b if a.kind == "fixed" else a).bind(a if a.kind == "fixed" else b)
    elif a.kind == b.kind == "product":
        _zip(factors(a), factors(b), _outer)
    elif a.kind == b.kind == "concat":
        _zip(pieces(a), pieces(b), _first)
    elif a.kind == "product":
        _distribute(a, b)
    else:
        _distribute(b, a)


def _distribute(whole: Dim, joined: Dim) -> None:
    """Unify a product with a concatenation that cuts nothing but its outermost factor."""
    outer, *inner = factors(whole)
    size = math.prod(axis.extent for axis in inner)
    ends = pieces(joined)
    if any(end.extent % size for end in ends):
        pin(whole)
        pin(joined)
        return
    parts = [free(end.extent // size) for end in ends]
    joined.bind(whole)
    unify(outer, concat(parts))
    for end, part in zip(ends, parts, strict=True):
        unify(end, product((part, *inner)))


def _zip(a: list[Dim], b: list[Dim], cut: Callable[[Dim, int], Dim | None]) -> None:
    """Unify two lists part by part, cutting the larger part where they do not match."""
    while a and b:
        x, y = a.pop(0).find(), b.pop(0).find()
        if x.extent != y.extent:
            large, rest = (x, a) if x.extent > y.extent else (y, b)
            left = cut(large, min(x.extent, y.extent))
            if left is None:
                for axis in (x, y, *a, *b):
                    pin(axis)
                return
            head, tail = left.parts
            rest.insert(0, tail)
            x, y = (head, y) if large is x else (x, head)
        unify(x, y)


def _outer(axis: Dim, extent: int) -> Dim | None:
    if axis.parts or axis.extent % extent:
        return None
    return _replace(axis, "product", (extent, axis.extent // extent))


def _first(axis: Dim, extent: int) -> Dim | None:
    if axis.parts:
        return None
    return _replace(axis, "concat", (extent, axis.extent - extent))


def _replace(axis: Dim, kind: str, extents: Sequence[int]) -> Dim:
    whole = Dim(axis.extent, kind, tuple(Dim(extent, axis.kind) for extent in extents))
    axis.bind(whole)
    return whole


def split(axis: Dim, extents: Sequence[int]) -> tuple[Dim, ...]:
    """Take an axis as a product of these extents, the first the outermost."""
    if sum(extent != 1 for extent in extents) < 2:
        whole = next((at for at, extent in enumerate(extents) if extent != 1), 0)
        return tuple(axis if at == whole else fixed(1) for at in range(len(extents)))
    parts = tuple(fixed(1) if extent == 1 else free(extent) for extent in extents)
    unify(axis, product(parts))
    return parts


def cut(axis: Dim, extents: Sequence[int]) -> tuple[Dim, ...]:
    """Take an axis as a concatenation of these extents."""
    parts = tuple(free(extent) for extent in extents)
    if len(parts) == 1:
        unify(axis, parts[0])
    else:
        unify(axis, concat(parts))
    return parts
