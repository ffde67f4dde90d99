"""Intermediate representation of a model: operators, and the parameters that they hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, cast

from wattkeeper.live.weight_transfer.program.op_sets import (
    DRAWS,
    NEUTRAL,
    SIZES,
    TRANSPARENT,
    UNIFORM,
)

Shape = tuple[int, ...]


class Ref(NamedTuple):
    """The result of another operator, by its index."""

    op: int


class StateTensor(NamedTuple):
    """A parameter or buffer, by its name in the module's state."""

    name: str


@dataclass(frozen=True, eq=False)
class Op:
    """One operator of a program.

    Attributes:
        kind: ATen's name, without overload and without the underscore of an in-place operator.
        args: Arguments by the names of ATen's schema; a tensor is a `Ref` or a `StateTensor`.
        shapes: Shapes of its results; most operators have one.
        pointwise: Whether an element of its result depends on the same element of its inputs only.
        tensors: Names in the module's state of the tensors it holds, by role.
    """

    kind: str
    args: dict[str, object]
    shapes: tuple[Shape, ...]
    pointwise: bool = False
    tensors: dict[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """Shape of its only or first result."""
        return self.shapes[0]

    @property
    def refs(self) -> tuple[int, ...]:
        """Indices of the operators whose results it takes, in the order of its arguments."""
        return tuple(item.op for item in _flatten(tuple(self.args.values())) if type(item) is Ref)

    @property
    def is_layer(self) -> bool:
        """Whether it computes with tensors that it holds."""
        return bool(self.tensors) and self.kind != "unused"

    def name(self, index: int) -> str:
        """Name in messages: the module that holds its weights, or its kind and index."""
        if self.tensors:
            first = next(iter(self.tensors.values()))
            return first.removesuffix(".out_proj.weight").rpartition(".")[0] or first
        return f"{self.kind} (operator {index})"

    def integer(self, name: str) -> int:
        """An argument that is an integer."""
        return cast(int, self.args[name])

    def integers(self, name: str) -> tuple[int, ...]:
        """An argument that is an integer or several."""
        value = self.args[name]
        return value if isinstance(value, tuple) else (cast(int, value),)


@dataclass(frozen=True, eq=False)
class Program:
    """What a module computes, its operators in topological order.

    Attributes:
        name: The model's name.
        ops: Its operators.
        outputs: Indices of the operators whose results the module returns.
        shapes: Shape of every parameter and buffer, by name.
        trained: Names of the parameters.
    """

    name: str
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    shapes: dict[str, Shape]
    trained: frozenset[str]

    @cached_property
    def is_read(self) -> tuple[bool, ...]:
        """By operator, whether an output depends on it, or it holds tensors."""
        read = [bool(op.tensors) or op.kind == "input" for op in self.ops]
        for index in self.outputs:
            read[index] = True
        for index in reversed(range(len(self.ops))):
            for ref in self.ops[index].refs if read[index] else ():
                read[ref] = True
        return tuple(read)

    @cached_property
    def layers_before(self) -> tuple[tuple[int, ...], ...]:
        """By operator, those with tensors whose results reach it without another between."""
        read: list[tuple[int, ...]] = []
        for op in self.ops:
            layers = (
                layer
                for ref in op.refs
                for layer in ([ref] if self.ops[ref].tensors else read[ref])
            )
            read.append(tuple(dict.fromkeys(layers)))
        return tuple(read)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """By operator, the first one that computes the same value, shape (operators,).

        Those that only pass a value on are seen through; uniform tensors are alike whatever their
        size; and the same operator on the same values computes the same, unless it holds tensors
        or draws at random.
        """
        values: list[int] = []
        first: dict[tuple[object, ...], int] = {}
        for index, op in enumerate(self.ops):
            if op.kind in TRANSPARENT:
                values.append(values[op.refs[0]])
                continue
            is_uniform = op.kind in UNIFORM
            if op.tensors or op.kind in DRAWS:
                values.append(index)
                continue
            given = [
                (name, repr(_replace_refs(value, values)))
                for name, value in op.args.items()
                if name not in (SIZES if is_uniform else NEUTRAL)
                and not (is_uniform and isinstance(value, Ref | StateTensor))
            ]
            values.append(first.setdefault((op.kind, *given), index))
        return tuple(values)


def _replace_refs(value: object, values: Sequence[int]) -> object:
    """An argument with each operator replaced by the first that computes the same value."""
    if type(value) is Ref:
        return Ref(values[value.op])
    if type(value) is tuple or type(value) is list:
        return [_replace_refs(item, values) for item in value]
    return value


def _flatten(value: object) -> Iterator[object]:
    if isinstance(value, tuple) and not isinstance(value, Ref | StateTensor):
        for item in value:
            yield from _flatten(item)
    else:
        yield value
