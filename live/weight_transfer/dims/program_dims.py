"""The dimensions of a program's tensors, and the type of rules for operators."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from wattkeeper.live.weight_transfer.dims.dim import Dim, fixed, pin, unify
from wattkeeper.live.weight_transfer.program.ir import Op, Program, Ref, Shape, StateTensor

Dims = tuple[Dim, ...]


class ProgramDims:
    """Dimensions of all tensors of a program; dimensions with the same units are unified.

    Attributes:
        program: The program.
        results: Dimensions of each result of each operator.
        tensors: Dimensions of each parameter and buffer, by name.
        contracted: By operator that multiplies two computed tensors, the dimension it sums over.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.results: list[list[Dims]] = []
        self.tensors: dict[str, Dims] = {}
        self.contracted: dict[int, Dim] = {}

    def of(self, value: object) -> Dims:
        """Dimensions of an argument that is a tensor; of several results, those of the first."""
        if isinstance(value, StateTensor):
            return self.tensors[value.name]
        assert isinstance(value, Ref)
        return self.results[value.op][0]

    def assign(self, value: object, dims: Sequence[Dim]) -> None:
        """Unify a parameter's dimensions with these; None stands for an absent parameter."""
        if value is None:
            return
        if isinstance(value, str):
            value = StateTensor(value)
        if isinstance(value, StateTensor) and value.name not in self.tensors:
            self.tensors[value.name] = tuple(dims)
        else:
            for known, dim in zip(self.of(value), dims, strict=True):
                unify(known, dim)

    def pin_results(self, index: int) -> None:
        """Pin all results of an operator."""
        for dims in self.results[index]:
            pin_all(dims)


Rule: TypeAlias = Callable[[ProgramDims, Op], Dims | list[Dims]]
"""Returns the dimensions of an operator's result, or a list of those of its results, and assigns
those of its parameters."""


def pin_all(dims: Iterable[Dim]) -> None:
    """Pin several dimensions."""
    for dim in dims:
        pin(dim)


def fix_shape(shape: Shape) -> Dims:
    """Fixed dimensions of a shape."""
    return tuple(map(fixed, shape))
