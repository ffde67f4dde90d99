"""Widens layers that share their weight with an embedding, as the heads of language models do.

Replicas of a unit share the weight of a layer that reads them, but an embedding needs it whole. The
last scale before such a layer can carry the shares instead, if nothing else reads what it writes:
a norm's scale and shift, or a parameter that is multiplied. It makes up for constants that depend
on the width, too, such as 1 / sqrt(units).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.equivalence import scalar_factor
from wattkeeper.live.weight_transfer.fill import input_axis
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.program.op_sets import DENSE, REARRANGING
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps, covers_all
from wattkeeper.policies.arrays import Floats

NORMS: Final = ("layer_norm", "rms_norm")


class Share(NamedTuple):
    """What a scale must carry: `factors` of its units, shape (units,), applied to it + `offset`."""

    factors: Floats
    offset: float

    def apply(self, value: Tensor) -> Tensor:
        """The scale that carries the shares."""
        factors = torch.from_numpy(self.factors).to(value.device)
        return factors * (value.double() + self.offset) - self.offset


class TiedReaders(NamedTuple):
    """Layers of the child whose replicas do not share a weight: an earlier one has it whole.

    Attributes:
        readers: Those layers.
        shares: By operator that holds a scale before one, what the scale carries.
        scalings: Operators whose constants the scales make up for.
    """

    readers: frozenset[int]
    shares: dict[int, Share]
    scalings: frozenset[int]


class _Path(NamedTuple):
    """The way from the operators that hold a scale, by operator its offset, to a layer."""

    holders: dict[int, float]
    scalings: frozenset[int]
    factor: float


def find_tied_readers(
    child: TracedModule,
    parent: TracedModule,
    origins: Mapping[int, int],
    maps: UnitMaps,
    users: tuple[Mapping[int, Sequence[int]], Mapping[int, Sequence[int]]],
) -> TiedReaders:
    """Find layers of which the scale before them can carry the shares.

    `users` are the readers of the child's and of the parent's values; see `find_users`.
    """
    readers: set[int] = set()
    shares: dict[int, Share] = {}
    scalings: set[int] = set()
    for index, origin in sorted(origins.items()):
        op, parent_op = child.program.ops[index], parent.program.ops[origin]
        if op.kind not in DENSE or not _is_tied(child.program, index):
            continue
        axis = input_axis(op.kind, "weight", 2) or 0
        x = child.dims.tensors[op.tensors["weight"]][axis]
        y = parent.dims.tensors[parent_op.tensors["weight"]][axis]
        units = maps.map_units(x, y)
        if x.extent <= y.extent or units is None or not covers_all(units, y.extent):
            continue
        mine = _find_path(child.program, op.refs[0], users[0])
        yours = _find_path(parent.program, parent_op.refs[0], users[1])
        if mine is None or yours is None or maps.amplitude(x, y) is not None:
            continue
        if any(origins.get(holder) not in yours.holders for holder in mine.holders):
            continue
        factors = maps.draw_shares(units, 1)[0] * yours.factor / mine.factor
        readers.add(index)
        shares |= {holder: Share(factors, offset) for holder, offset in mine.holders.items()}
        scalings |= mine.scalings
    return TiedReaders(frozenset(readers), shares, frozenset(scalings))


def _is_tied(program: Program, index: int) -> bool:
    """Whether an earlier operator holds a layer's weight, and does not sum over the same axis."""
    op = program.ops[index]
    name = op.tensors.get("weight")
    axis = input_axis(op.kind, "weight", 2)
    for other in program.ops[:index]:
        for role, tensor in other.tensors.items():
            if tensor == name:
                return input_axis(other.kind, role, 2) != axis
    return False


def _find_path(program: Program, index: int, users: Mapping[int, Sequence[int]]) -> _Path | None:
    """The scale that writes a value which one operator reads; None if there is none."""
    factor, scalings = 1.0, set()
    while True:
        if not _has_one_reader(program, index, users):
            return None
        op = program.ops[index]
        step = scalar_factor(op)
        if step:
            factor *= step
            scalings.add(index)
        elif op.kind not in REARRANGING:
            break
        index = op.refs[0]
    if op.kind in NORMS and len(op.integers("normalized_shape")) == 1 and "weight" in op.tensors:
        holders = {index: 0.0}
    elif op.kind == "mul" and len(op.refs) == 2:
        found = [_find_parameter(program, ref, users) for ref in op.refs]
        known = [item for item in found if item is not None]
        if len(known) != 1:
            return None
        holders = dict(known)
    else:
        return None
    if not all(_owns_tensors(program, holder) for holder in holders):
        return None
    return _Path(holders, frozenset(scalings), factor)


def _find_parameter(
    program: Program, index: int, users: Mapping[int, Sequence[int]]
) -> tuple[int, float] | None:
    """A vector that is a factor, and the constant that is added to it first."""
    offset = 0.0
    while _has_one_reader(program, index, users):
        op = program.ops[index]
        if op.kind == "parameter":
            return (index, offset) if len(op.shape) == 1 else None
        other = op.args.get("other")
        if op.kind == "add" and isinstance(other, int | float) and op.args.get("alpha", 1) == 1:
            offset += other
        elif op.kind not in ("to", "_to_copy", "detach", "alias", "contiguous", "clone"):
            return None
        index = op.refs[0]
    return None


def _has_one_reader(program: Program, index: int, users: Mapping[int, Sequence[int]]) -> bool:
    value = program.values[index]
    is_output = any(program.values[output] == value for output in program.outputs)
    return len(users.get(value, ())) == 1 and not is_output


def _owns_tensors(program: Program, index: int) -> bool:
    """Whether no other operator holds a tensor of this one."""
    held = set(program.ops[index].tensors.values())
    return not any(
        held & {*op.tensors.values()} for other, op in enumerate(program.ops) if other != index
    )
