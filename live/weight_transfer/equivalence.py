"""Decides whether an operator of a child computes what one of its parent computes."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.fill import input_axis, is_kernel_axis
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program import op_sets
from wattkeeper.live.weight_transfer.program.ir import Op, Program, Ref, StateTensor
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps, covers_all, is_even
from wattkeeper.policies.arrays import Ints

MOVING: Final = op_sets.REARRANGING | {"expand"}


def find_users(program: Program) -> dict[int, list[int]]:
    """The operators that read each value; see `Program.values`."""
    users: dict[int, list[int]] = defaultdict(list)
    for index, op in enumerate(program.ops):
        if op.kind not in op_sets.TRANSPARENT:
            for ref in op.refs:
                source = program.values[ref]
                if program.values[index] not in users[source]:
                    users[source].append(program.values[index])
    return users


def is_clamp_redundant(program: Program, index: int, clamp: Op) -> bool:
    """Whether all elements of a value are in the range of a clamp already."""
    source = program.ops[index]
    if source.kind in op_sets.CLAMPS:
        (least, most), (low, high) = _clamp_range(source), _clamp_range(clamp)
        return low <= least and most <= high
    if source.kind in op_sets.KEEPS_RANGE:
        return is_clamp_redundant(program, source.refs[0], clamp)
    if source.kind == "cat" or (source.kind == "add" and clamp.kind == "relu"):
        return len(source.refs) > 1 and all(
            is_clamp_redundant(program, ref, clamp) for ref in source.refs
        )
    return False


def _clamp_range(op: Op) -> tuple[float, float]:
    """Range of a clamp's output: (lower, upper)."""
    if op.kind == "hardtanh":
        return cast(float, op.args["min_val"]), cast(float, op.args["max_val"])
    return 0.0, 6.0 if op.kind == "relu6" else math.inf


def _constants(op: Op) -> list[object]:
    return [
        value
        for name, value in op.args.items()
        if name not in op_sets.SIZES and not isinstance(value, Ref | StateTensor)
    ]


def product_scale(
    program: Program, users: Mapping[int, Sequence[int]], index: int
) -> tuple[float, frozenset[int]]:
    """The scale of a product of two computed tensors, applied to its factors or its result.

    `users` is the result of `find_users`.

    Returns:
        The scale, and the operators that apply it.
    """
    op = program.ops[index]
    scale = 1.0
    if op.kind == "attention":
        units = program.ops[op.refs[0]].shape[-1] // op.integer("heads")
        return 1 / math.sqrt(units), frozenset()
    if op.kind == "scaled_dot_product_attention":
        given = cast(float | None, op.args["scale"])
        units = program.ops[op.refs[0]].shape[-1]
        scale = 1 / math.sqrt(units) if given is None else float(given)
    scalings: set[int] = set()
    for source in op.refs[:2]:
        while program.ops[source].kind in MOVING or scalar_factor(program.ops[source]):
            if factor := scalar_factor(program.ops[source]):
                scale *= factor
                scalings.add(source)
            source = program.ops[source].refs[0]
    while len(users[index]) == 1 and op.kind != "scaled_dot_product_attention":
        (index,) = users[index]
        factor = scalar_factor(program.ops[index])
        if not factor:
            break
        scale *= factor
        scalings.add(index)
    return scale, frozenset(scalings)


def scalar_factor(op: Op) -> float | None:
    """The constant that an operator multiplies its input by; None for any other operator."""
    other = op.args.get("other")
    if op.kind not in ("mul", "div") or not isinstance(other, int | float) or not other:
        return None
    return float(other) if op.kind == "mul" else 1 / other


class EquivalenceCheck:
    """Compares operators of a child with operators of its parent, apart from their widths."""

    def __init__(
        self,
        child: TracedModule,
        parent: TracedModule,
        maps: UnitMaps,
        scalings: frozenset[int],
        expanded_norms: frozenset[int],
        tied_readers: frozenset[int],
    ) -> None:
        self.child, self.parent, self.maps = child, parent, maps
        self.tied_readers = tied_readers
        self.scalings, self.expanded_norms = scalings, expanded_norms

    def has_same_arguments(self, index: int, origin: int) -> bool:
        """Whether two operators are of one kind, with the same constants."""
        op, parent_op = self.child.program.ops[index], self.parent.program.ops[origin]
        if op.kind in op_sets.VIEWS or op.kind != parent_op.kind:
            return {op.kind, parent_op.kind} <= op_sets.VIEWS
        if op.kind == "cat":
            return op.integer("dim") % len(op.shape) == parent_op.integer("dim") % len(
                parent_op.shape
            )
        ignored = set(op_sets.SIZES)
        if "padding" in op.args and "weight" in op.tensors and "weight" in parent_op.tensors:
            if _kernel_offsets(self.child, op) != _kernel_offsets(self.parent, parent_op):
                return False
            ignored.add("padding")
        if op.kind == "pad":
            dims = self.child.dims.of(op.args["self"])
            return _padding_of_fixed(op, dims) == _padding_of_fixed(parent_op, dims)
        if index in self.scalings:
            ignored.add("other")
        if op.kind == "scaled_dot_product_attention" and index in self.child.dims.contracted:
            ignored.add("scale")
        if op.kind == "slice" and len(op.shape) == len(parent_op.shape):
            dim = self.child.dims.of(op.args["self"])[op.integer("dim")]
            ignored |= {"start", "end"} if dim.find().kind != "fixed" else set()
        names = (op.args.keys() | parent_op.args.keys()) - ignored
        return all(_is_alike(op.args.get(name), parent_op.args.get(name)) for name in names)

    def find_difference(self, index: int, origin: int) -> str:
        """Why an operator with the same inputs and weights has another result; empty if equal."""
        op, parent_op = self.child.program.ops[index], self.parent.program.ops[origin]
        if not self.has_same_arguments(index, origin):
            return (
                f"{op.name(index)} has other settings than {parent_op.name(origin)} in the parent"
            )
        for role, name in op.tensors.items():
            difference = self._compare_tensor(op, role, name, parent_op.tensors.get(role, ""))
            if difference:
                return difference
        if not self.has_same_units(index, origin):
            return f"the result of {op.name(index)} has another structure than in the parent"
        return (
            self._compare_statistics(index, op, parent_op)
            or self._compare_slice(index, origin)
            or self._compare_product(index, origin)
        )

    def has_same_units(self, index: int, origin: int) -> bool:
        """Whether the units of all results have a map."""
        results, parent_results = self.child.dims.results[index], self.parent.dims.results[origin]
        return [len(dims) for dims in results] == [len(dims) for dims in parent_results] and all(
            self.maps.map_units(x, y) is not None
            for dims, parent_dims in zip(results, parent_results, strict=True)
            for x, y in zip(dims, parent_dims, strict=True)
        )

    def is_equal(self, index: int, origin: int) -> bool:
        """Whether all units of the results correspond one to one, in the same order."""
        results, parent_results = self.child.dims.results[index], self.parent.dims.results[origin]
        return self.has_same_units(index, origin) and all(
            np.array_equal(self.maps.map_any(x, y), np.arange(y.extent))
            and self.maps.amplitude(x, y) is None
            for dims, parent_dims in zip(results, parent_results, strict=True)
            for x, y in zip(dims, parent_dims, strict=True)
        )

    def joins_same(
        self, index: int, origin: int, sources: Sequence[int | None], refs: Sequence[int]
    ) -> bool:
        """Whether a concatenation has its operands where the map of its units says.

        Args:
            index: The child's concatenation.
            origin: The parent's, or the only value of the parent that the child's holds.
            sources: By operand of the child's, the parent's operator with that value, if any.
            refs: Operands of the parent's, or that value.
        """
        op, results = self.child.program.ops[index], self.child.dims.results
        axis = op.integer("dim") % len(op.shape)
        if not self.has_same_units(index, origin):
            return False
        places: dict[int | None, list[tuple[int, Dim]]] = defaultdict(list)
        start = 0
        for ref in refs:
            dim = self.parent.dims.results[ref][0][axis]
            places[self.parent.program.values[ref]].append((start, dim))
            start += dim.extent
        whole = self.maps.map_any(
            results[index][0][axis], self.parent.dims.results[origin][0][axis]
        )
        for ref, source in zip(op.refs, sources, strict=True):
            dim = results[ref][0][axis]
            part, whole = whole[: dim.extent], whole[dim.extent :]
            is_read = bool((part >= 0).any())
            if is_read and not any(self._lies_at(part, dim, *place) for place in places[source]):
                return False
        return True

    def _lies_at(self, part: Ints, dim: Dim, start: int, parent_dim: Dim) -> bool:
        """Whether part of a map is that of one operand, whose first unit is `start`."""
        units = self.maps.map_units(dim, parent_dim)
        return units is not None and np.array_equal(part, np.where(units < 0, units, units + start))

    def _compare_tensor(self, op: Op, role: str, name: str, source: str) -> str:
        if source not in self.parent.dims.tensors:
            return f"{name} has no tensor in the parent"
        dims, parent_dims = self.child.dims.tensors[name], self.parent.dims.tensors[source]
        for axis, (x, y) in enumerate(zip(dims, parent_dims, strict=True)):
            if is_kernel_axis(op.kind, axis) and x.extent != y.extent:
                if x.extent < y.extent:
                    return f"{name} is only the centre of {source}"
                continue  # padded with zeros
            units = self.maps.map_units(x, y)
            if units is None:
                return f"dimension {axis} of {name} has another structure than that of {source}"
            if axis == input_axis(op.kind, role, len(dims)) and not covers_all(units, y.extent):
                return (
                    f"{name} reads {x.extent} units, {source} reads {y.extent}: some are left out"
                )
        return ""

    def _compare_statistics(self, index: int, op: Op, parent_op: Op) -> str:
        """Norms and means over units need equally many replicas of all, or their mean."""
        if index in self.expanded_norms:
            return ""
        if op.kind == "group_norm":
            return self._compare_groups(index, op, parent_op)
        if op.kind in ("layer_norm", "rms_norm"):
            rank = len(op.integers("normalized_shape"))
            if rank != len(parent_op.integers("normalized_shape")):
                return f"{op.name(index)} takes statistics over other dimensions than its origin"
            axes = tuple(range(-rank, 0))
        elif op.kind == "mean" and op.args.get("dim") is not None:
            axes = op.integers("dim")
        else:
            return ""
        dims = self.child.dims.of(Ref(op.refs[0]))
        parent_dims = self.parent.dims.of(Ref(parent_op.refs[0]))
        for axis in axes:
            units = self.maps.map_units(dims[axis], parent_dims[axis])
            if units is None or not is_even(units, parent_dims[axis].extent):
                return _describe_uneven(op.name(index), dims[axis], parent_dims[axis])
        return ""

    def _compare_groups(self, index: int, op: Op, parent_op: Op) -> str:
        """A group must have the units of one group of the parent, all equally often."""
        x = self.child.dims.of(Ref(op.refs[0]))[1]
        y = self.parent.dims.of(Ref(parent_op.refs[0]))[1]
        units = self.maps.map_units(x, y)
        size = y.extent // parent_op.integer("num_groups")
        if units is None or (units < 0).any():
            return _describe_uneven(op.name(index), x, y)
        for group in units.reshape(op.integer("num_groups"), -1):
            if np.ptp(group // size) or not is_even(group % size, size):
                return _describe_uneven(op.name(index), x, y)
        return ""

    def _compare_slice(self, index: int, origin: int) -> str:
        """A slice must hold replicas of the units that the parent's slice holds."""
        op, parent_op = self.child.program.ops[index], self.parent.program.ops[origin]
        if op.kind != "slice":
            return ""
        axis = op.integer("dim")
        x = self.child.dims.of(op.args["self"])[axis]
        y = self.parent.dims.of(parent_op.args["self"])[axis]
        whole = self.maps.map_units(x, y)
        part = self.maps.map_units(
            self.child.dims.results[index][0][axis], self.parent.dims.results[origin][0][axis]
        )
        if whole is not None and part is not None:
            parent_slice = _slice(np.arange(y.extent), parent_op)
            if np.array_equal(_slice(whole, op), parent_slice[part]):
                return ""
        return f"{op.name(index)} takes other units than the parent's"

    def _compare_product(self, index: int, origin: int) -> str:
        """Amplitudes must compensate for replicas, and reach the product unchanged."""
        op = self.child.program.ops[index]
        x = self.child.dims.contracted.get(index)
        y = self.parent.dims.contracted.get(origin)
        if x is not None and y is not None:
            units, amplitude = self.maps.map_units(x, y), self.maps.amplitude(x, y)
            squares = np.ones(x.extent) if amplitude is None else amplitude**2
            if units is None or (units < 0).any() or not covers_all(units, y.extent):
                return f"{op.name(index)} multiplies {x.extent} units, the parent {y.extent}"
            sums = np.bincount(units[units >= 0], squares[units >= 0])
            if not np.allclose(sums, self.maps.scales.get(x.find(), 1.0), rtol=1e-9):
                return f"{op.name(index)} multiplies replicas that no amplitudes compensate for"
        pairs = zip(
            self.child.dims.results[index][0], self.parent.dims.results[origin][0], strict=True
        )
        amplified = [
            axis for axis, pair in enumerate(pairs) if self.maps.amplitude(*pair) is not None
        ]
        is_shifted = op.args.get("bias") is not None and amplified != [len(op.shape) - 1]
        is_sum = op.kind in op_sets.SCALED and len(op.refs) > 1
        if amplified and (op.kind not in op_sets.LINEAR or is_shifted or is_sum):
            return f"{op.name(index)} lies between units and their product"
        return ""


def _describe_uneven(name: str, dim: Dim, parent_dim: Dim) -> str:
    return (
        f"{name} takes statistics over {dim.extent} units that stand for {parent_dim.extent}: "
        "only equally many replicas of all units preserve them"
    )


def _padding_of_fixed(op: Op, dims: tuple[Dim, ...]) -> tuple[object, ...]:
    """Padding of an operator's fixed dimensions; the padding of units follows from widths."""
    pads = op.integers("pad")
    for back, dim in enumerate(reversed(dims)):
        if 2 * back < len(pads) and dim.find().kind != "fixed":
            pads = (*pads[: 2 * back], 0, 0, *pads[2 * back + 2 :])
    return pads, op.args.get("mode"), op.args.get("value")


def _kernel_offsets(traced: TracedModule, op: Op) -> list[float]:
    """Offset of a convolution's kernel centre from its output's position, along each axis."""
    kernel = traced.program.shapes[op.tensors["weight"]][2:]
    reach = [
        step * (extent - 1) / 2
        for step, extent in zip(op.integers("dilation"), kernel, strict=True)
    ]
    if op.args["padding"] == "same":
        return [0.0] * len(reach)
    pads = (0,) * len(reach) if op.args["padding"] == "valid" else op.integers("padding")
    return [pad - half for pad, half in zip(pads, reach, strict=True)]


def _slice(units: Ints, op: Op) -> Ints:
    start, end, step = (cast(int | None, op.args[name]) for name in ("start", "end", "step"))
    return units[start:end:step]


def _is_alike(value: object, parent_value: object) -> bool:
    tensors = [isinstance(item, Ref | StateTensor) for item in (value, parent_value)]
    if any(tensors):
        return all(tensors)
    if isinstance(value, tuple) and isinstance(parent_value, tuple):
        return len(value) == len(parent_value) and all(map(_is_alike, value, parent_value))
    return bool(value == parent_value)
