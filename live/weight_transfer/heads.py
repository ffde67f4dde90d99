"""Finds the heads of two models whose functions are equal but for their last layers."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from wattkeeper.live.weight_transfer.equivalence import EquivalenceCheck
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.program.op_sets import REARRANGING
from wattkeeper.live.weight_transfer.report import Heads

LEAST_BODY: Final = 0.5
"""Share of the parameters of either model that the common body has at least."""


def find_heads(
    check: EquivalenceCheck,
    origins: Mapping[int, int],
    sources: Sequence[int | None],
    is_known: Sequence[bool],
) -> Heads | None:
    """The heads of a parent and a child; None if more than the heads differs.

    A head is what follows the values that both models compute; no layer after it, or in it, has
    weights of the parent. What the head reads, and the child's outputs besides, are the parent's
    values unit by unit. A layer of the head reads them, or a layer of the body computes them, or
    they come from the inputs without weights: where only other operators compute them from layers,
    nothing is claimed, since no run can show it.

    Args:
        check: Compares the two.
        origins: By operator of the child, the parent's operator that it takes its weights from.
        sources: By operator of the child, the parent's operator with that value, if any.
        is_known: By operator of the child, whether that is proven.
    """
    child, parent = check.child.program, check.parent.program
    head = [index for index, known in enumerate(is_known) if child.is_read[index] > known]
    used = {origins[index] for index in origins if is_known[index]}
    left = {index for index, op in enumerate(parent.ops) if op.is_layer} - used
    if any(index in origins for index in head) or _precede(left, used, parent):
        return None
    layers = [index for index in head if child.ops[index].is_layer]
    read = {child.values[ref] for index in head for ref in child.ops[index].refs if is_known[ref]}
    entries = {
        child.values[ref]: index
        for index in layers
        for ref in child.ops[index].refs
        if is_known[ref]
    }
    outputs = [place for place, index in enumerate(child.outputs) if is_known[index]]
    common = read | {child.outputs[place] for place in outputs}
    ends = sorted({_find_maker(child, index) for index in read - entries.keys()})
    ends = [index for index in ends if child.layers_before[index] or child.ops[index].tensors]
    is_equal = all(
        (source := sources[index]) is not None and check.is_equal(index, source) for index in common
    )
    if not (common and is_equal and all(child.ops[index].is_layer for index in ends)):
        return None
    shares = _share(used, parent), _share({*origins}, child)
    if not (left or layers) or max(shares) < LEAST_BODY:
        return None
    return Heads(
        parent=_labels(sorted(left), parent),
        child=_labels(layers, child),
        entries=_names(sorted({*entries.values()}), child),
        ends=_names(ends, child),
        outputs=tuple(outputs),
    )


def _find_maker(program: Program, index: int) -> int:
    """The operator that computes the elements of a value, which others only rearrange."""
    while program.ops[index].kind in REARRANGING:
        index = program.ops[index].refs[0]
    return index


def _precede(some: Collection[int], others: Collection[int], program: Program) -> bool:
    """Whether the result of an operator reaches one of the others."""
    reached = set(some)
    for index, op in enumerate(program.ops):
        if not reached.isdisjoint(op.refs):
            reached.add(index)
    return not reached.isdisjoint(others)


def _share(ops: Collection[int], program: Program) -> float:
    """Share of a program's parameters that operators hold."""
    held = {name for index in ops for name in program.ops[index].tensors.values()}
    sizes = {name: prod(program.shapes[name]) for name in program.trained}
    return sum(sizes[name] for name in held & sizes.keys()) / (sum(sizes.values()) or 1)


def _labels(ops: Sequence[int], program: Program) -> tuple[str, ...]:
    """Names of layers; of one whose weights an earlier one holds, too, with its kind."""
    first: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        for name in op.tensors.values():
            first.setdefault(name, index)
    labels = []
    for index in ops:
        op = program.ops[index]
        is_tied = any(first[name] != index for name in op.tensors.values())
        tied = f" (tied {op.kind})" * is_tied
        labels.append(f"{op.name(index)}{tied}")
    return tuple(dict.fromkeys(labels))


def _names(ops: Sequence[int], program: Program) -> tuple[str, ...]:
    return tuple(dict.fromkeys(program.ops[index].name(index) for index in ops))
