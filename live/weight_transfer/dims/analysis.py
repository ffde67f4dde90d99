"""Finds which dimensions of a program's tensors hold the same units."""

from typing import Final

from wattkeeper.live.weight_transfer.dims import layer_rules, shape_rules
from wattkeeper.live.weight_transfer.dims.program_dims import Dims, ProgramDims, Rule, fix_shape
from wattkeeper.live.weight_transfer.program.ir import Op, Program

RULES: Final[dict[str, Rule]] = layer_rules.RULES | shape_rules.RULES
"""By kind of operator."""


def analyse(program: Program, *, fixes_outputs: bool = True) -> ProgramDims:
    """The dimensions of all tensors of a program, unified operator by operator.

    With `fixes_outputs`, the units of its outputs must not change.
    """
    dims = ProgramDims(program)
    for op in program.ops:
        rule = RULES.get(op.kind, shape_rules.broadcast if op.pointwise else _pin_operands)
        results = rule(dims, op)
        dims.results.append(results if isinstance(results, list) else [results])
    for index in program.outputs if fixes_outputs else ():
        dims.pin_results(index)
    for name, shape in program.shapes.items():
        dims.tensors.setdefault(name, fix_shape(shape))
    return dims


def _pin_operands(dims: ProgramDims, op: Op) -> list[Dims]:
    """Rule for an unknown operator: the units of its operands must not change."""
    for index in op.refs:
        dims.pin_results(index)
    for name in op.tensors.values():
        dims.tensors.setdefault(name, fix_shape(dims.program.shapes[name]))
    return [fix_shape(shape) for shape in op.shapes]
