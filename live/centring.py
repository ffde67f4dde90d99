"""Widens what a norm takes its statistics over by units that carry the mean of all others.

Replicas of all units, equally many, keep the statistics of a layer norm. Where the widths do not
divide, some units are left over. If what leads to the norm is linear, as a residual stream is, its
writers can give the units that are left over the mean of all, and move the others away from that
mean by as much as makes up for the smaller variance. The norm's scale takes it back. After the
norm, the units that are left over are constants, which nothing reads at first.

Group norm takes its statistics over positions, too: the mean of units at one position is not that
of all, and nothing linear knows the latter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.axes import Axis
from wattkeeper.live.graphs import Traced
from wattkeeper.live.inserting import Blocks
from wattkeeper.live.kinds import CONVOLUTIONS, ORDERINGS, TABLES, TRANSPARENT, TRANSPOSED, VIEWS
from wattkeeper.live.program import Ref
from wattkeeper.live.units import UnitMaps

_WRITERS: Final = CONVOLUTIONS | TRANSPOSED | TABLES | {"linear", "embedding", "attention"}
_CARRIERS: Final = TRANSPARENT | VIEWS | ORDERINGS | {"add", "cat", "expand", "getitem"}
"""Operators that do the same to all units, and linearly."""


class Centring(NamedTuple):
    """Where units that are left over carry the mean of all.

    Attributes:
        writers: Operators of the child whose weights give them that mean.
        norms: Operators of the child that take statistics over them.
    """

    writers: frozenset[int]
    norms: frozenset[int]


def centre(
    child: Traced, parent: Traced, origins: Mapping[int, int], blocks: Blocks, maps: UnitMaps
) -> Centring:
    """Find the units that can be widened so, and let the maps do it.

    Args:
        child: What takes weights.
        parent: What gives them.
        origins: Of the child's operators that take weights, the parent's that give them.
        blocks: What the child has inserted.
        maps: Which units become which.
    """
    over: dict[Axis, list[int]] = defaultdict(list)
    for at, op in enumerate(child.program.ops):
        alone = op.kind == "layer_norm" and len(op.args["normalized_shape"]) == 1
        if alone and at not in blocks.inside:
            over[child.spaces.of(Ref(op.refs[0]))[-1].find()].append(at)
    writers: set[int] = set()
    norms: set[int] = set()
    for leaf, found in over.items():
        origin = maps.origins.get(leaf)
        if origin is None or leaf.extent < origin.extent or leaf.extent % origin.extent == 0:
            continue
        giving = _Way(child, leaf, found, blocks).writers()
        if giving is None or leaf in maps.scales:
            continue
        pairs = ((at, origins.get(at)) for at in (*found, *giving))
        if all(_corresponds(child, parent, *pair, (leaf, origin)) for pair in pairs):
            maps.centre(leaf, origin)
            writers |= giving
            norms |= {*found}
    return Centring(frozenset(writers), frozenset(norms))


def _corresponds(
    child: Traced, parent: Traced, at: int, there: int | None, leaves: tuple[Axis, Axis]
) -> bool:
    """Whether an operator's weights come from one where the parent's units stand at the same place.

    Norms need a scale, so that there is something that takes the gain back.
    """
    if there is None:
        return False
    mine, theirs = child.program.ops[at], parent.program.ops[there]
    if mine.kind != theirs.kind or (mine.kind == "layer_norm" and "weight" not in mine.tensors):
        return False
    for role, name in mine.tensors.items():
        source = theirs.tensors.get(role)
        if source is None:
            return False
        axes = child.spaces.tensors[name], parent.spaces.tensors[source]
        for x, y in zip(*axes, strict=True):
            if (x.find() is leaves[0]) != (y.find() is leaves[1]):
                return False
    return True


class _Way:
    """What leads to some norms, from what writes the units that they take statistics over."""

    def __init__(self, traced: Traced, leaf: Axis, norms: Sequence[int], blocks: Blocks) -> None:
        self.ops, self.outputs = traced.program.ops, traced.program.outputs
        self.values = traced.spaces.values
        self.leaf, self.norms, self.blocks = leaf, norms, blocks

    def writers(self) -> set[int] | None:
        """Operators that give the units; None if anything else comes between or reads them."""
        writers: set[int] = set()
        seen: set[int] = set()
        ahead = [self.ops[at].refs[0] for at in self.norms]
        while ahead:
            at = ahead.pop()
            if at in seen:
                continue
            seen.add(at)
            refs = self._refs(at)
            if refs is None or not self._stands(at):
                return None
            ahead += refs
            if not refs:
                writers.add(at)
        if seen & {*self.outputs} or not all(self._reads(at, seen) for at in range(len(self.ops))):
            return None
        held = {name for at in writers for name in self.ops[at].tensors.values()}
        others = (op for at, op in enumerate(self.ops) if at not in writers)
        return None if any(held & {*op.tensors.values()} for op in others) else writers

    def _refs(self, at: int) -> Sequence[int] | None:
        """Whose units an operator passes on: nobody's if it writes them, None if it does else."""
        op = self.ops[at]
        if at in self.blocks.passed:
            return [self.blocks.passed[at]]
        if op.kind in _WRITERS:
            return [] if op.args.get("groups", 1) == 1 else None
        return op.refs if op.kind in _CARRIERS else None

    def _stands(self, at: int) -> bool:
        """Whether one dimension of a value is the units, alone."""
        axes = self.values[at]
        if axes and not isinstance(axes[0], Axis):
            axes = axes[0]
        return [axis.find() for axis in axes].count(self.leaf) == 1

    def _reads(self, at: int, seen: set[int]) -> bool:
        """Whether an operator takes none of the values in question, or may take them."""
        if at in seen or at in self.norms or at in self.blocks.inside:
            return True
        op = self.ops[at]
        others = op.kind == "getitem" and op.args["index"] != 0  # such as weights of attention
        return others or not seen & {*op.refs}


def settled(
    maps: UnitMaps, value: Tensor, role: str, axes: tuple[Axis, Axis], rng: np.random.Generator
) -> Tensor:
    """The scale or shift of a norm of which some units carry the mean of all others.

    These get unequal shifts, so that what reads them learns to, and they part.

    Args:
        maps: Which units become which.
        value: The tensor as the parent and the child's own initialisation give it, shape (units,).
        role: `weight` or `bias`.
        axes: The child's and the parent's.
        rng: Gives the shifts.
    """
    known = torch.from_numpy(maps.forced(*axes) >= 0).to(value.device)
    if role == "weight":
        return torch.where(known, value / maps.gain(*axes), value)
    shifts = torch.from_numpy(rng.exponential(size=len(value))).to(value)
    return torch.where(known, value, shifts)
