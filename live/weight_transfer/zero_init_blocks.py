"""Residual blocks that only the child has are initialised to add nothing.

The last scale of a branch starts at zero (Goyal et al., 2017, section 5.1), so the block is the
identity in train mode, too.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.identity_init import find_identity_taps
from wattkeeper.live.weight_transfer.program.ir import Op, Program
from wattkeeper.live.weight_transfer.program.op_sets import CONVOLUTIONS, PASSES_ZERO

_AFFINE: Final = (
    "batch_norm",
    "layer_norm",
    "group_norm",
    "conv1d",
    "conv2d",
    "linear",
    "transposed_linear",
)
ZERO_ROLES: Final = dict.fromkeys(_AFFINE, ("weight", "bias")) | {
    "attention": ("out_proj.weight", "out_proj.bias")
}
"""By kind of operator, the tensors whose zeros make its result zero."""


class InsertedBlocks(NamedTuple):
    """Residual blocks that only the child has.

    Attributes:
        inside: Operators of their branches.
        shortcuts: By addition that ends a block, the operator of the value that it passes on.
        ends: Operators whose last scale becomes zero.
        tensors: Names of all tensors in the branches.
    """

    inside: frozenset[int]
    shortcuts: dict[int, int]
    ends: frozenset[int]
    tensors: frozenset[str]


class _Branch(NamedTuple):
    """An operand `end`, the other operand `shortcut`, and the operators before `end` alone."""

    shortcut: int
    end: int
    members: list[int]


def find_inserted_blocks(program: Program, filled: frozenset[int]) -> InsertedBlocks:
    """Find additions and concatenations with a branch whose weights all lack an origin.

    A branch of a concatenation has no effect at first, because its readers' weights are zero.
    """
    ancestors = _find_ancestors(program)
    inside: set[int] = set()
    shortcuts: dict[int, int] = {}
    ends: set[int] = set()
    for index, op in enumerate(program.ops):
        if op.kind == "cat":
            for branch in _cat_branches(program, ancestors, op):
                if not filled & {*branch.members}:
                    inside |= {*branch.members}
        elif op.kind == "add" and len(op.refs) == 2:
            branches = [_branch(ancestors, *refs) for refs in (op.refs, op.refs[::-1])]
            if filled & {member for branch in branches for member in branch.members}:
                continue
            are_weighted = [_list_weighted(program, branch.members) for branch in branches]
            if all(are_weighted) and not any(
                later.is_layer and bits >> index & 1
                for later, bits in zip(program.ops, ancestors, strict=True)
            ):
                continue  # a head of two layers
            for branch, other in (branches, branches[::-1]):
                branch_ends = _find_block_ends(program, branch, other)
                if branch_ends:
                    inside |= {*branch.members}
                    shortcuts[index] = branch.shortcut
                    ends |= branch_ends
                    break
    tensors = {name for index in inside for name in program.ops[index].tensors.values()}
    return InsertedBlocks(frozenset(inside), shortcuts, frozenset(ends), frozenset(tensors))


def _find_ancestors(program: Program) -> list[int]:
    """By operator, a bit set of the operator itself and all before it."""
    ancestors: list[int] = []
    for index, op in enumerate(program.ops):
        bits = 1 << index
        for ref in op.refs:
            bits |= ancestors[ref]
        ancestors.append(bits)
    return ancestors


def _branch(ancestors: Sequence[int], shortcut: int, end: int) -> _Branch:
    return _Branch(shortcut, end, _list_bits(ancestors[end] & ~ancestors[shortcut]))


def _cat_branches(program: Program, ancestors: Sequence[int], op: Op) -> Iterator[_Branch]:
    """Operands with weights that are computed from another operand of a concatenation."""
    for shortcut in op.refs:
        for end in op.refs:
            if ancestors[end] >> shortcut & 1 and end != shortcut:
                branch = _branch(ancestors, shortcut, end)
                if _list_weighted(program, branch.members):
                    yield branch


def _find_block_ends(program: Program, branch: _Branch, other: _Branch) -> set[int]:
    """The operators to set to zero if a branch is an inserted block; empty if it is not."""
    weighted, other_weighted = (_list_weighted(program, b.members) for b in (branch, other))
    if not weighted or _is_blocking(program, other_weighted):
        return set()
    if len(weighted) < len(other_weighted) and not _is_blocking(program, weighted):
        return set()
    return _find_ends(program, branch.end, branch.members)


def _list_weighted(program: Program, members: Sequence[int]) -> list[int]:
    return [index for index in members if program.ops[index].tensors]


def _is_blocking(program: Program, weighted: Sequence[int]) -> bool:
    """Whether a convolution among these operators cannot be the identity."""
    ops = [program.ops[index] for index in weighted if program.ops[index].kind in CONVOLUTIONS]
    shapes = program.shapes
    return any(find_identity_taps(op, shapes[op.tensors["weight"]][2:]) is None for op in ops)


def _list_bits(bits: int) -> list[int]:
    indices = []
    while bits:
        low = bits & -bits
        indices.append(low.bit_length() - 1)
        bits ^= low
    return indices


def _find_ends(program: Program, index: int, members: Collection[int]) -> set[int]:
    """The operators to set to zero to make a value zero; empty if there are none."""
    op = program.ops[index]
    if index not in members:
        return set()
    if op.kind in ZERO_ROLES:
        return {index} if op.tensors.get(ZERO_ROLES[op.kind][0]) else set()
    if op.kind in ("add", "sub"):
        operands = [_find_ends(program, ref, members) for ref in op.refs]
        return set().union(*operands) if len(operands) == 2 and all(operands) else set()
    if op.kind == "mul" and len({*op.refs}) == 2:  # a square would have no gradient at zero
        operands = [_find_ends(program, ref, members) for ref in op.refs]
        return next(filter(None, operands), set())
    if op.kind in PASSES_ZERO:
        return _find_ends(program, op.refs[0], members)
    return set()


def zero_tensors(
    program: Program, blocks: InsertedBlocks, own: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The zero tensors that make the inserted blocks add nothing, by name."""
    ends = [program.ops[index] for index in sorted(blocks.ends)]
    names = [op.tensors[role] for op in ends for role in ZERO_ROLES[op.kind] if role in op.tensors]
    return {name: torch.zeros_like(own[name]) for name in names}
