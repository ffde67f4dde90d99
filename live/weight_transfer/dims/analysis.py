"""Which dimensions of a program's tensors are the same units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattkeeper.live.weight_transfer.dims import layer_rules, shape_rules
from wattkeeper.live.weight_transfer.dims.dim import Dim, fixed, unify
from wattkeeper.live.weight_transfer.dims.rules import Axes, all_fixed, pin_all
from wattkeeper.live.weight_transfer.ir import Op, Program, Ref, StateTensor

RULES = layer_rules.RULES | shape_rules.RULES


class DimAnalysis:
    """Axes of everything in a program.

    Attributes:
        program: What was analysed.
        values: Axes of each operator's result; a tuple of them where it has several results.
        tensors: Axes of each parameter and buffer, by name.
        contracted: Of each operator that multiplies two computed tensors, the axis it sums over.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: list[Any] = []
        self.tensors: dict[str, Axes] = {}
        self.contracted: dict[int, Dim] = {}
        for op in program.ops:
            self.values.append(self._result(op))
        for at in program.outputs:
            pin_all(self.values[at])
        for name, shape in program.shapes.items():
            self.tensors.setdefault(name, tuple(map(fixed, shape)))

    def of(self, value: Any) -> Axes:
        """Axes of an argument."""
        axes: Axes = self.values[value.op] if isinstance(value, Ref) else self.tensors[value.name]
        return axes

    def hold(self, value: Any, axes: Sequence[Dim]) -> None:
        """Say what the dimensions of a parameter are; of nothing for an absent one."""
        if isinstance(value, str):
            value = StateTensor(value)
        if value is None:
            return
        if isinstance(value, StateTensor) and value.name not in self.tensors:
            self.tensors[value.name] = tuple(axes)
        else:
            for mine, theirs in zip(self.of(value), axes, strict=True):
                unify(mine, theirs)

    def _result(self, op: Op) -> Any:
        rule = RULES.get(op.kind)
        if rule is not None:
            return rule(self, op)
        if op.pointwise:
            return shape_rules.broadcast(self, op)
        for at in op.refs:
            pin_all(self.values[at])
        for name in op.tensors.values():
            self.tensors.setdefault(name, tuple(map(fixed, self.program.shapes[name])))
        return all_fixed(op.shape)
