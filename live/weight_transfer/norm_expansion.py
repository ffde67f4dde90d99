"""Widens what a layer norm takes its statistics over by units that carry the mean of all others.

Replicas of all units, equally many, keep the statistics of a layer norm. Where the widths do not
divide, some units are left over. If what leads to the norm is linear, as a residual stream is, what
writes it can give those the mean of all units (average width expansion: LEMON, Wang et al.,
ICLR '24). Here it also moves the others away from that mean by as much as makes up for the smaller
variance, and the norm's scale takes that back, so that its epsilon counts as in the parent. After
the norm, the units that are left over are constants, which nothing reads at first.

Group norm takes its statistics over positions, too: the mean of units at one position is not that
of all, and nothing linear knows the latter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.equivalence import scalar
from wattkeeper.live.weight_transfer.fill import read_dim, state
from wattkeeper.live.weight_transfer.ir import Op, Ref
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.op_sets import CARRIERS, WRITERS
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps
from wattkeeper.live.weight_transfer.zero_init_blocks import InsertedBlocks


class MeanUnits(NamedTuple):
    """Operators of a child with units that carry the mean of all others.

    Attributes:
        writers: Their weights give the units that mean.
        norms: They take statistics over the units.
    """

    writers: frozenset[int]
    norms: frozenset[int]


def average(
    child: TracedModule, origins: Mapping[int, int], blocks: InsertedBlocks, maps: UnitMaps
) -> MeanUnits:
    """Find the units that can be widened so, and let the maps do it.

    Args:
        child: What takes weights.
        origins: Of its operators that take weights, the parent's that give them.
        blocks: What it has inserted.
        maps: Which units become which.
    """
    writers: set[int] = set()
    norms: set[int] = set()
    for leaf, readers in _normalised(child, blocks).items():
        origin = maps.origins.get(leaf)
        if origin is None or leaf.extent < origin.extent or leaf.extent % origin.extent == 0:
            continue
        given = _writers(child, leaf, readers, blocks)
        if given is None or leaf in maps.scales or not origins.keys() >= {*readers, *given}:
            continue
        if all("weight" in child.program.ops[at].tensors for at in readers):  # to take the gain
            maps.average(leaf, origin)
            writers |= given
            norms |= {*readers}
    return MeanUnits(frozenset(writers), frozenset(norms))


def _normalised(child: TracedModule, blocks: InsertedBlocks) -> dict[Dim, list[int]]:
    """Layer norms over units alone, by those units."""
    found: dict[Dim, list[int]] = defaultdict(list)
    for at, op in enumerate(child.program.ops):
        alone = op.kind == "layer_norm" and len(op.args["normalized_shape"]) == 1
        if alone and at not in blocks.inside:
            found[child.spaces.of(Ref(op.refs[0]))[-1].find()].append(at)
    return found


def _writers(
    child: TracedModule, leaf: Dim, norms: Sequence[int], blocks: InsertedBlocks
) -> frozenset[int] | None:
    """What gives the units that norms read; None if they must not be averaged.

    Between writers and norms, all must be linear and the same for all units; nothing else may read
    the units on that way, or share a tensor with a writer or a norm.
    """
    ops, tensors = child.program.ops, state(child)
    writers: set[int] = set()
    carriers: set[int] = set()
    ahead = [ops[at].refs[0] for at in norms]
    while ahead:
        at = ahead.pop()
        if at in writers | carriers:
            continue
        if at in blocks.passed:
            carriers.add(at)
            ahead.append(blocks.passed[at])
        elif ops[at].kind in WRITERS and _gives(child, tensors, ops[at], leaf):
            writers.add(at)
        elif ops[at].kind in CARRIERS or scalar(ops[at]) is not None:
            carriers.add(at)
            ahead += ops[at].refs
        else:
            return None
    values = writers | carriers
    readers = {*range(len(ops))} - carriers - {*norms} - blocks.inside
    if any(_reads(ops[at], values) for at in readers) or not _hold_alone(ops, writers, norms):
        return None
    return frozenset(writers)


def _gives(child: TracedModule, tensors: Mapping[str, Tensor], op: Op, leaf: Dim) -> bool:
    """Whether the units are what an operator's own floating-point weights give."""
    if op.args.get("groups", 1) != 1 or isinstance(op.args.get("bias"), Ref):
        return False
    name = op.tensors.get("out_proj.weight" if op.kind == "attention" else "weight")
    if name is None or not tensors[name].is_floating_point():
        return False
    axes = child.spaces.tensors[name]
    read = read_dim(op.kind, "weight", len(axes))
    return any(axis.find() is leaf for dim, axis in enumerate(axes) if dim != read)


def _reads(op: Op, values: Collection[int]) -> bool:
    """Whether an operator takes one of some values, and not just weights of attention."""
    return any(ref in values for ref in op.refs) and not (
        op.kind == "getitem" and op.args["index"] != 0
    )


def _hold_alone(ops: Sequence[Op], writers: Iterable[int], norms: Iterable[int]) -> bool:
    """Whether no tensor of writers and norms has another role, or another holder."""
    ours = {**dict.fromkeys(writers, "writer"), **dict.fromkeys(norms, "norm")}
    roles: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for at, op in enumerate(ops):
        for role, name in op.tensors.items():
            roles[name].add((ours.get(at, ""), role))
    held = [name for at in ours for name in ops[at].tensors.values()]
    return all(len(roles[name]) == 1 for name in held)


def norm_tensor(
    maps: UnitMaps, value: Tensor, role: str, axes: tuple[Dim, Dim], rng: np.random.Generator
) -> Tensor:
    """The scale or shift of a norm of which some units carry the mean of all others.

    Those get unequal ones, so that what reads them learns to, and they part.

    Args:
        maps: Which units become which.
        value: The tensor as the parent and the child's own initialisation give it, shape (units,).
        role: `weight` or `bias`.
        axes: The child's and the parent's.
        rng: Gives the unequal ones.
    """
    copied = torch.from_numpy(maps.forced(*axes) >= 0).to(value.device)
    unequal = torch.from_numpy(rng.exponential(size=len(value))).to(value)
    return torch.where(copied, value / maps.gain(*axes) if role == "weight" else value, unequal)
