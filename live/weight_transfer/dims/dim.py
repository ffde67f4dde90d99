"""Dimensions of tensors as terms that are unified wherever two tensors must share units.

A `Dim` is `free` (units that may be replicated or removed), `fixed` (an extent that must equal the
parent's: batch, time, classes), a `product` of dimensions (heads times units of a head, channels
times pixels) or a `concat` of dimensions. Structural pruning groups layers in the same way
(DepGraph, Fang et al., CVPR '23, section 3). Names: `dim` is a `Dim`, `axis` a position in a shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence


class Dim:
    """One dimension of a tensor; unified dimensions are bound to one representative.

    Attributes:
        extent: Its number of elements.
        kind: `free`, `fixed`, `product` (outermost factor first) or `concat`.
        parts: The parts of a product or a concatenation.
        ordered: Whether an operator treats its units by their places, so that none may move.
    """

    __slots__ = ("_bound", "extent", "kind", "ordered", "parts")

    def __init__(self, extent: int, kind: str = "free", parts: tuple[Dim, ...] = ()) -> None:
        self.extent = extent
        self.kind = kind
        self.parts = parts
        self.ordered = False
        self._bound: Dim | None = None

    def find(self) -> Dim:
        """The representative of all dimensions that were unified with this one."""
        dim = self
        while dim._bound is not None:
            dim = dim._bound
        if dim is not self:
            self._bound = dim
        return dim


def free(extent: int) -> Dim:
    """A dimension of units whose number may change."""
    return Dim(extent)


def fixed(extent: int) -> Dim:
    """A dimension whose extent must not change."""
    return Dim(extent, "fixed")


def product(parts: Iterable[Dim]) -> Dim:
    """Dimensions flattened into one, the outermost first."""
    flat = [factor for part in parts for factor in factors(part)]
    flat = [factor for factor in flat if (factor.extent, factor.kind) != (1, "fixed")]
    if len(flat) < 2:
        return flat[0] if flat else fixed(1)
    return Dim(math.prod(part.extent for part in flat), "product", tuple(flat))


def concat(parts: Iterable[Dim]) -> Dim:
    """Dimensions concatenated into one."""
    flat = [piece for part in parts for piece in pieces(part)]
    if len(flat) == 1:
        return flat[0]
    return Dim(sum(part.extent for part in flat), "concat", tuple(flat))


def factors(dim: Dim) -> list[Dim]:
    """The factors of a product; any other dimension is its own only factor."""
    return _flatten(dim.find(), "product")


def pieces(dim: Dim) -> list[Dim]:
    """The pieces of a concatenation; any other dimension is its own only piece."""
    return _flatten(dim.find(), "concat")


def _flatten(dim: Dim, kind: str) -> list[Dim]:
    if dim.kind != kind:
        return [dim]
    return [item for part in dim.parts for item in _flatten(part.find(), kind)]


def pin(dim: Dim) -> None:
    """Make a dimension and all its parts fixed, each unit at its place."""
    dim = dim.find()
    dim.ordered = True
    if dim.kind == "free":
        dim.kind = "fixed"
    for part in dim.parts:
        pin(part)


def unify(first: Dim, second: Dim) -> None:
    """Give two dimensions the same units; pin both if they cannot be reconciled."""
    a, b = first.find(), second.find()
    if a is b:
        return
    _bind(a, b)
    if a.ordered or b.ordered:
        pin(a)
        pin(b)


def _bind(a: Dim, b: Dim) -> None:
    """Unify two representatives."""
    if a.extent != b.extent:
        pin(a)
        pin(b)
    elif a.kind == "free":
        a._bound = b
    elif b.kind == "free":
        b._bound = a
    elif "fixed" in (a.kind, b.kind):
        pin(a)
        pin(b)
        bound, representative = (b, a) if a.kind == "fixed" else (a, b)
        bound._bound = representative
    elif a.kind == b.kind == "product":
        _unify_parts(factors(a), factors(b), _cut_product)
    elif a.kind == b.kind == "concat":
        _unify_parts(pieces(a), pieces(b), _cut_concat)
    elif a.kind == "product":
        _distribute(a, b)
    else:
        _distribute(b, a)


def _distribute(whole: Dim, joined: Dim) -> None:
    """Unify a product with a concatenation that divides only its outermost factor."""
    outer, *inner = factors(whole)
    size = math.prod(dim.extent for dim in inner)
    ends = pieces(joined)
    if any(end.extent % size for end in ends):
        pin(whole)
        pin(joined)
        return
    parts = [free(end.extent // size) for end in ends]
    joined._bound = whole
    unify(outer, concat(parts))
    for end, part in zip(ends, parts, strict=True):
        unify(end, product((part, *inner)))


def _unify_parts(a: list[Dim], b: list[Dim], cut: Callable[[Dim, int], Dim | None]) -> None:
    """Unify two lists part by part, cutting the larger part where extents differ."""
    while a and b:
        x, y = a.pop(0).find(), b.pop(0).find()
        if x.extent != y.extent:
            large, rest = (x, a) if x.extent > y.extent else (y, b)
            halves = cut(large, min(x.extent, y.extent))
            if halves is None:
                for dim in (x, y, *a, *b):
                    pin(dim)
                return
            head, tail = halves.parts
            rest.insert(0, tail)
            x, y = (head, y) if large is x else (x, head)
        unify(x, y)


def _cut_product(dim: Dim, extent: int) -> Dim | None:
    is_uncut = dim.parts or dim.extent % extent
    return None if is_uncut else _replace(dim, "product", (extent, dim.extent // extent))


def _cut_concat(dim: Dim, extent: int) -> Dim | None:
    return None if dim.parts else _replace(dim, "concat", (extent, dim.extent - extent))


def _replace(dim: Dim, kind: str, extents: Sequence[int]) -> Dim:
    whole = Dim(dim.extent, kind, tuple(Dim(extent, dim.kind) for extent in extents))
    dim._bound = whole
    return whole


def split_product(dim: Dim, extents: Sequence[int]) -> tuple[Dim, ...]:
    """Split a dimension into factors of these extents, the outermost first."""
    if sum(extent != 1 for extent in extents) < 2:
        whole = next((axis for axis, extent in enumerate(extents) if extent != 1), 0)
        return tuple(dim if axis == whole else fixed(1) for axis in range(len(extents)))
    parts = tuple(fixed(1) if extent == 1 else free(extent) for extent in extents)
    unify(dim, product(parts))
    return parts


def split_concat(dim: Dim, extents: Sequence[int]) -> tuple[Dim, ...]:
    """Split a dimension into consecutive pieces of these extents."""
    parts = tuple(map(free, extents))
    unify(dim, concat(parts))
    return parts
