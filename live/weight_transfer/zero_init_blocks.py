"""Residual blocks that only the child has: they begin by adding nothing.

The last scale of the branch starts at zero (Goyal et al., 2017, section 5.1), so the block is the
identity in train mode, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.identity_init import taps_of
from wattkeeper.live.weight_transfer.ir import Op, Program
from wattkeeper.live.weight_transfer.op_sets import CONVOLUTIONS, PASSES_ZERO

ENDS: Final = {
    "batch_norm": ("weight", "bias"),
    "layer_norm": ("weight", "bias"),
    "group_norm": ("weight", "bias"),
    "conv1d": ("weight", "bias"),
    "conv2d": ("weight", "bias"),
    "linear": ("weight", "bias"),
    "attention": ("out_proj.weight", "out_proj.bias"),
}
"""Operators that give zero if these tensors are zero."""


class InsertedBlocks(NamedTuple):
    """Inserted residual blocks.

    Attributes:
        inside: Operators of their branches.
        passed: Of each addition that ends a block, the operator whose value it passes on.
        ends: Operators whose last scale becomes zero.
        held: Names of all tensors in the branches.
    """

    inside: frozenset[int]
    passed: dict[int, int]
    ends: frozenset[int]
    held: frozenset[str]


def find_blocks(program: Program, filled: frozenset[int]) -> InsertedBlocks:
    """Additions and concatenations with a branch that holds weights, none of them from the parent.

    What a branch gives a concatenation is read by nobody at first: its readers' weights are zero.

    Args:
        program: What the child computes.
        filled: Operators that take weights from the parent.
    """
    before: list[int] = []  # as bits, each operator with all before it
    for at, op in enumerate(program.ops):
        bits = 1 << at
        for ref in op.refs:
            bits |= before[ref]
        before.append(bits)
    inside: set[int] = set()
    passed: dict[int, int] = {}
    ends: set[int] = set()
    for at, op in enumerate(program.ops):
        if op.kind == "cat":
            inside |= _unread(program, before, op, filled)
        if op.kind != "add" or len(op.refs) != 2:
            continue
        ways = [
            (kept, branch, _members(before[branch] & ~before[kept]))
            for kept, branch in (op.refs, op.refs[::-1])
        ]
        if filled & {one for *_, own in ways for one in own}:
            continue
        for (kept, branch, own), (*_, other) in (ways, ways[::-1]):
            weights, others = (_weighted(program, part) for part in (own, other))
            if not weights or _is_stuck(program, others):
                continue
            if len(weights) < len(others) and not _is_stuck(program, weights):
                continue
            last = _ends(program, branch, set(own))
            if last:
                inside |= {*own}
                passed[at] = kept
                ends |= last
                break
    held = {name for one in inside for name in program.ops[one].tensors.values()}
    return InsertedBlocks(frozenset(inside), passed, frozenset(ends), frozenset(held))


def _unread(program: Program, before: list[int], op: Op, filled: frozenset[int]) -> set[int]:
    unread: set[int] = set()
    for kept in op.refs:
        for branch in op.refs:
            if before[branch] >> kept & 1 and branch != kept:
                own = _members(before[branch] & ~before[kept])
                if any(program.ops[at].tensors for at in own) and not filled & {*own}:
                    unread |= {*own}
    return unread


def _weighted(program: Program, members: Sequence[int]) -> list[int]:
    return [at for at in members if program.ops[at].tensors]


def _is_stuck(program: Program, weighted: Sequence[int]) -> bool:
    """Whether a convolution among some operators cannot pass its input on."""
    ops = [program.ops[at] for at in weighted if program.ops[at].kind in CONVOLUTIONS]
    return any(taps_of(op, program.shapes[op.tensors["weight"]][2:]) is None for op in ops)


def _members(bits: int) -> list[int]:
    members = []
    while bits:
        low = bits & -bits
        members.append(low.bit_length() - 1)
        bits ^= low
    return members


def _ends(program: Program, at: int, own: set[int]) -> set[int]:
    """The operators to make zero so that a value is zero; empty if there are none."""
    op = program.ops[at]
    if at not in own:
        return set()
    if op.kind in ENDS:
        return {at} if op.tensors.get(ENDS[op.kind][0]) else set()
    if op.kind == "add":
        parts = [_ends(program, ref, own) for ref in op.refs]
        return set().union(*parts) if len(parts) == 2 and all(parts) else set()
    if op.kind in PASSES_ZERO:
        return _ends(program, op.refs[0], own)
    return set()


def zeros(program: Program, blocks: InsertedBlocks, own: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that make the inserted blocks add nothing, by name."""
    made = {}
    for at in sorted(blocks.ends):
        op = program.ops[at]
        for role in ENDS[op.kind]:
            if role in op.tensors:
                made[op.tensors[role]] = torch.zeros_like(own[op.tensors[role]])
    return made
