"""Widens the input of layer norms by units that carry the mean of all others.

Where the child's width is no multiple of the parent's, some units are left over. If everything
between the writers of the units and the norm is linear, as in a residual stream, the writers can
give those units the mean of all (average width expansion: LEMON, Wang et al., ICLR '24). Here the
writers also scale the deviations of the others from that mean, so that the variance and the effect
of epsilon are the parent's, and the norm's scale undoes that. Group norm is left out: its mean over
all positions is no linear function of the units at one position.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.equivalence import scalar_factor
from wattkeeper.live.weight_transfer.fill import input_axis, state_tensors
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.ir import Op, Ref
from wattkeeper.live.weight_transfer.program.op_sets import CARRIERS, WRITERS
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps
from wattkeeper.live.weight_transfer.zero_init_blocks import InsertedBlocks


class MeanExpansion(NamedTuple):
    """Operators that write units with the mean of all others, and the norms that read them."""

    writers: frozenset[int]
    norms: frozenset[int]


def expand_norms(
    child: TracedModule, origins: Mapping[int, int], blocks: InsertedBlocks, maps: UnitMaps
) -> MeanExpansion:
    """Find the layer norms that can be widened this way, and record it in the maps."""
    writers: set[int] = set()
    norms: set[int] = set()
    for leaf, leaf_norms in _find_norms(child, blocks).items():
        origin = maps.origins.get(leaf)
        if origin is None or leaf.extent < origin.extent or leaf.extent % origin.extent == 0:
            continue
        leaf_writers = _find_writers(child, leaf, leaf_norms, blocks)
        if leaf_writers is None or leaf in maps.scales:
            continue
        if not origins.keys() >= {*leaf_norms, *leaf_writers}:
            continue
        # The scale undoes the gain.
        if all("weight" in child.program.ops[index].tensors for index in leaf_norms):
            maps.expand_by_mean(leaf, origin)
            writers |= leaf_writers
            norms |= {*leaf_norms}
    return MeanExpansion(frozenset(writers), frozenset(norms))


def _find_norms(child: TracedModule, blocks: InsertedBlocks) -> dict[Dim, list[int]]:
    """Layer norms over one dimension, by the leaf of their units."""
    norms: dict[Dim, list[int]] = defaultdict(list)
    for index, op in enumerate(child.program.ops):
        is_over_units = op.kind == "layer_norm" and len(op.integers("normalized_shape")) == 1
        if is_over_units and index not in blocks.inside:
            norms[child.dims.of(Ref(op.refs[0]))[-1].find()].append(index)
    return norms


def _find_writers(
    child: TracedModule, leaf: Dim, norms: Sequence[int], blocks: InsertedBlocks
) -> set[int] | None:
    """The operators that write the units that norms read; None if these must not be expanded.

    All operators between writers and norms must be linear and treat all units alike. No other
    operator may read the units on that path, or share a tensor with a writer or a norm.
    """
    ops, tensors = child.program.ops, state_tensors(child)
    writers: set[int] = set()
    carriers: set[int] = set()
    pending = [ops[index].refs[0] for index in norms]
    while pending:
        index = pending.pop()
        op = ops[index]
        if index in writers | carriers:
            continue
        if index in blocks.shortcuts:
            carriers.add(index)
            pending.append(blocks.shortcuts[index])
        elif op.kind in WRITERS and _writes(child, tensors, op, leaf):
            writers.add(index)
        elif op.kind in CARRIERS or scalar_factor(op) is not None:
            carriers.add(index)
            pending += op.refs
        else:
            return None
    values = writers | carriers
    others = {*range(len(ops))} - carriers - {*norms} - blocks.inside
    is_read = any(_reads(ops[index], values) for index in others)
    return None if is_read or not _own_tensors(ops, writers, norms) else writers


def _writes(child: TracedModule, tensors: Mapping[str, Tensor], op: Op, leaf: Dim) -> bool:
    """Whether the units are outputs of an operator's own floating-point weights."""
    if op.args.get("groups", 1) != 1 or isinstance(op.args.get("bias"), Ref):
        return False
    name = op.tensors.get("out_proj.weight" if op.kind == "attention" else "weight")
    if name is None or not tensors[name].is_floating_point():
        return False
    dims = child.dims.tensors[name]
    summed_axis = input_axis(op.kind, "weight", len(dims))
    return any(dim.find() is leaf for axis, dim in enumerate(dims) if axis != summed_axis)


def _reads(op: Op, values: Collection[int]) -> bool:
    """Whether an operator reads one of these values, other than the weights of attention."""
    return any(ref in values for ref in op.refs) and not (
        op.kind == "getitem" and op.args["index"] != 0
    )


def _own_tensors(ops: Sequence[Op], writers: Iterable[int], norms: Iterable[int]) -> bool:
    """Whether each tensor of writers and norms has one role, and no other holders."""
    groups = {**dict.fromkeys(writers, "writer"), **dict.fromkeys(norms, "norm")}
    uses: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for index, op in enumerate(ops):
        for role, name in op.tensors.items():
            uses[name].add((groups.get(index, ""), role))
    held = [name for index in groups for name in ops[index].tensors.values()]
    return all(len(uses[name]) == 1 for name in held)


def expand_norm_tensor(
    maps: UnitMaps, value: Tensor, role: str, dims: tuple[Dim, Dim], rng: np.random.Generator
) -> Tensor:
    """The scale or shift of a norm of which some units carry the mean of all others.

    `value` has the shape (units,), `role` is `weight` or `bias`. Those units get unequal values, so
    that their readers learn from them and they diverge.
    """
    is_copied = torch.from_numpy(maps.map_any(*dims) >= 0).to(value.device)
    unequal = torch.from_numpy(rng.exponential(size=len(value))).to(value)
    return torch.where(is_copied, value / maps.gain(*dims) if role == "weight" else value, unequal)
