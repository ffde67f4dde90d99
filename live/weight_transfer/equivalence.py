"""Follows a child's program and says which value of its parent each of its values is."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Final

import numpy as np

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.fill import in_kernel, read_dim
from wattkeeper.live.weight_transfer.ir import Op, Program, Ref, StateTensor
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.op_sets import (
    CLAMPS,
    KEEPS_RANGE,
    LINEAR,
    ORDERINGS,
    PARTS,
    SCALED,
    SIZES,
    TRANSPARENT,
    UNIFORM,
    VIEWS,
)
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps, covers, evenly
from wattkeeper.policies.arrays import Ints

MOVING: Final = TRANSPARENT | VIEWS | ORDERINGS | PARTS | {"expand"}


def base(program: Program, at: int) -> int:
    """The first operator with a value; another one that passes or makes up the same is none."""
    while program.ops[at].kind in TRANSPARENT:
        at = program.ops[at].refs[0]
    op = program.ops[at]
    if op.kind in UNIFORM:
        same = (other for other in program.ops if other.kind == op.kind)
        twin = next(other for other in same if _constants(other) == _constants(op))
        return program.ops.index(twin)
    return at


def users(program: Program) -> dict[int, list[int]]:
    """Operators that take each value, seen through those that change nothing."""
    found: dict[int, list[int]] = defaultdict(list)
    for at, op in enumerate(program.ops):
        if op.kind not in TRANSPARENT:
            for ref in op.refs:
                if at not in found[base(program, ref)]:
                    found[base(program, ref)].append(at)
    return found


def clamped(program: Program, at: int, op: Op) -> bool:
    """Whether a value is in the range of a clamp already, so that the clamp changes nothing."""
    source = program.ops[at]
    if source.kind in CLAMPS:
        (least, most), (low, high) = _range(source), _range(op)
        return low <= least and most <= high
    if source.kind in KEEPS_RANGE:
        return clamped(program, source.refs[0], op)
    if source.kind == "cat" or (source.kind == "add" and op.kind == "relu"):
        return len(source.refs) > 1 and all(clamped(program, ref, op) for ref in source.refs)
    return False


def _range(op: Op) -> tuple[float, float]:
    """Between what a clamp's results are."""
    if op.kind == "hardtanh":
        return op.args["min_val"], op.args["max_val"]
    return 0.0, 6.0 if op.kind == "relu6" else math.inf


def _constants(op: Op) -> Any:
    return [
        value
        for name, value in op.args.items()
        if name not in SIZES and not isinstance(value, Ref | StateTensor)
    ]


def scales(program: Program, at: int) -> tuple[float, frozenset[int]]:
    """By what a product of two computed tensors is scaled before and after it.

    Returns:
        The factor, and the operators that apply it.
    """
    op = program.ops[at]
    factor = 1.0
    if op.kind == "attention":
        units = program.ops[op.args["query"].op].shape[-1] // op.args["heads"]
        return 1 / math.sqrt(units), frozenset()
    if op.kind == "scaled_dot_product_attention":
        given = op.args["scale"]
        units = program.ops[op.args["query"].op].shape[-1]
        factor = 1 / math.sqrt(units) if given is None else float(given)
    steps: set[int] = set()
    taken = users(program)
    for start in op.refs[:2]:
        while program.ops[start].kind in MOVING or scalar(program.ops[start]):
            factor *= scalar(program.ops[start]) or 1
            steps |= {start} if scalar(program.ops[start]) else set()
            start = program.ops[start].refs[0]
    while len(taken[at]) == 1 and op.kind != "scaled_dot_product_attention":
        (at,) = taken[at]
        if not scalar(program.ops[at]):
            break
        factor *= scalar(program.ops[at]) or 1
        steps.add(at)
    return factor, frozenset(steps)


def scalar(op: Op) -> float | None:
    """The number that an operator multiplies a value by; None if it does else."""
    other = op.args.get("other")
    if op.kind not in ("mul", "div") or not isinstance(other, int | float) or not other:
        return None
    return float(other) if op.kind == "mul" else 1 / other


class OperatorPair:
    """Whether an operator of the child does what one of the parent does, widths apart."""

    def __init__(
        self,
        child: TracedModule,
        parent: TracedModule,
        maps: UnitMaps,
        scaled: frozenset[int],
        averaged: frozenset[int],
    ) -> None:
        self.child, self.parent, self.maps = child, parent, maps
        self.scaled, self.averaged = scaled, averaged

    def same_arguments(self, mine: Op, theirs: Op, at: int) -> bool:
        """Whether two operators are of one kind, with the same constants."""
        if mine.kind != theirs.kind and not {mine.kind, theirs.kind} <= VIEWS:
            return False
        if mine.kind in VIEWS:
            return True
        free = set(SIZES)
        if "padding" in mine.args and "weight" in mine.tensors and "weight" in theirs.tensors:
            if _middle(mine, self.child.program) != _middle(theirs, self.parent.program):
                return False
            free.add("padding")
        if mine.kind == "pad":
            return self._pads(mine) == self._pads(mine, theirs)
        if at in self.scaled:
            free.add("other")
        if mine.kind == "scaled_dot_product_attention" and at in self.child.spaces.contracted:
            free.add("scale")
        if mine.kind == "slice" and len(mine.shape) == len(theirs.shape):
            axis = self.child.spaces.of(mine.args["self"])[mine.args["dim"]]
            free |= {"start", "end"} if axis.find().kind != "fixed" else set()
        names = mine.args.keys() | theirs.args.keys()
        return all(
            _like(mine.args.get(name), theirs.args.get(name)) for name in names if name not in free
        )

    def _pads(self, mine: Op, padded: Op | None = None) -> list[Any]:
        """What is padded with what, but for units, whose number follows from widths."""
        op = mine if padded is None else padded
        pads = op.args["pad"]
        for back, axis in enumerate(reversed(self.child.spaces.of(mine.args["self"]))):
            if 2 * back < len(pads) and axis.find().kind != "fixed":
                pads = (*pads[: 2 * back], 0, 0, *pads[2 * back + 2 :])
        return [pads, op.args.get("mode"), op.args.get("value")]

    def same_units(self, mine: int, theirs: int) -> bool:
        """Whether every dimension of two values maps."""
        x, y = self.child.spaces.values[mine], self.parent.spaces.values[theirs]
        return self._same(x, y)

    def _same(self, x: Any, y: Any) -> bool:
        if isinstance(x, Dim) and isinstance(y, Dim):
            return self.maps.build(x, y) is not None
        if isinstance(x, Dim) or isinstance(y, Dim) or len(x) != len(y):
            return False
        return all(self._same(a, b) for a, b in zip(x, y, strict=True))

    def loss(self, at: int, there: int) -> str:
        """Why an operator with the same inputs and weights gives another result; empty if not."""
        mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        if not self.same_arguments(mine, theirs, at):
            return f"{self.label(at)} has other settings than {label(theirs, there)} in the parent"
        for role, name in mine.tensors.items():
            problem = self._tensor_loss(mine, role, name, theirs.tensors.get(role, ""))
            if problem:
                return problem
        if not self.same_units(at, there):
            return f"the result of {self.label(at)} is built otherwise than in the parent"
        return (
            self._statistics_loss(at, there)
            or self._slice_loss(at, there)
            or self._product_loss(at, there)
        )

    def _tensor_loss(self, op: Op, role: str, name: str, source: str) -> str:
        if source not in self.parent.spaces.tensors:
            return f"{name} has no tensor in the parent"
        axes = self.child.spaces.tensors[name], self.parent.spaces.tensors[source]
        for dim, (x, y) in enumerate(zip(*axes, strict=True)):
            if in_kernel(op.kind, dim) and x.extent != y.extent:
                if x.extent < y.extent:
                    return f"{name} is the middle of {source} alone"
                continue  # with zeros around what the parent has
            units = self.maps.build(x, y)
            if units is None:
                return f"dimension {dim} of {name} is built otherwise than that of {source}"
            if dim == read_dim(op.kind, role, len(axes[0])) and not covers(units, y.extent):
                return (
                    f"{name} reads {x.extent} units, {source} reads {y.extent}: some are left out"
                )
        return ""

    def _statistics_loss(self, at: int, there: int) -> str:
        """Norms and means over units need every unit equally often, or their mean for the rest."""
        if at in self.averaged:
            return ""
        mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        if mine.kind == "group_norm":
            return self._groups_loss(at, there)
        over: list[tuple[Dim, Dim]] = []
        x, y = (
            traced.spaces.of(Ref(op.refs[0])) if op.refs and not _several(traced, op) else ()
            for traced, op in ((self.child, mine), (self.parent, theirs))
        )
        if mine.kind in ("layer_norm", "rms_norm"):
            dims = len(mine.args["normalized_shape"])
            if dims != len(theirs.args["normalized_shape"]):
                return f"{self.label(at)} takes statistics over other dimensions than the parent's"
            over = list(zip(x, y, strict=True))[-dims:]
        elif mine.kind == "mean" and mine.args.get("dim") is not None:
            dims = mine.args["dim"]
            over = [(x[dim], y[dim]) for dim in ((dims,) if isinstance(dims, int) else dims)]
        for a, b in over:
            units = self.maps.build(a, b)
            if units is None or not evenly(units, b.extent):
                return self._uneven(at, a.extent, b.extent)
        return ""

    def _groups_loss(self, at: int, there: int) -> str:
        """A group must stand for all of one group of the parent's, its units equally often."""
        mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        x, y = self.child.spaces.of(Ref(mine.refs[0]))[1], self.parent.spaces.values[there][1]
        units = self.maps.build(x, y)
        size = y.extent // theirs.args["num_groups"]
        if units is None or (units < 0).any():
            return self._uneven(at, x.extent, y.extent)
        for group in units.reshape(mine.args["num_groups"], -1):
            if np.ptp(group // size) or not evenly(group % size, size):
                return self._uneven(at, x.extent, y.extent)
        return ""

    def _uneven(self, at: int, mine: int, theirs: int) -> str:
        return (
            f"{self.label(at)} takes statistics over {mine} units that stand for {theirs}: only "
            "replicas of all units, equally many, keep them"
        )

    def _slice_loss(self, at: int, there: int) -> str:
        """A part of units must be where the parent's units are that it is said to be."""
        mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        if mine.kind != "slice":
            return ""
        dim = mine.args["dim"]
        x, y = (
            self.child.spaces.of(mine.args["self"])[dim],
            self.parent.spaces.of(theirs.args["self"])[dim],
        )
        whole = self.maps.build(x, y)
        part = self.maps.build(
            self.child.spaces.values[at][dim], self.parent.spaces.values[there][dim]
        )
        if (
            whole is None
            or part is None
            or not np.array_equal(_sliced(whole, mine), _sliced(np.arange(y.extent), theirs)[part])
        ):
            return f"{self.label(at)} takes other units than the parent's"
        return ""

    def _product_loss(self, at: int, there: int) -> str:
        """Amplitudes must make up for replicas in a product, and come through to what reads it."""
        x, y = self.child.spaces.contracted.get(at), self.parent.spaces.contracted.get(there)
        if x is not None and y is not None:
            units, amplitude = self.maps.build(x, y), self.maps.amplitude(x, y)
            squares = np.ones(x.extent) if amplitude is None else amplitude**2
            if units is None or not covers(units, y.extent):
                return f"{self.label(at)} multiplies {x.extent} units, the parent {y.extent}"
            sums = np.bincount(units[units >= 0], squares[units >= 0])
            if not np.allclose(sums, self.maps.scales.get(x.find(), 1.0), rtol=1e-9):
                return f"{self.label(at)} multiplies units that stand for one in the parent"
        op = self.child.program.ops[at]
        carried = [
            dim
            for dim, pair in enumerate(_axes(self.child, self.parent, at, there))
            if self.maps.amplitude(*pair) is not None
        ]
        shifted = op.args.get("bias") is not None and carried != [len(op.shape) - 1]
        several = op.kind in SCALED and len(op.refs) > 1
        if carried and (op.kind not in LINEAR or shifted or several):
            return f"{self.label(at)} comes between units that are multiplied by each other"
        return ""

    def label(self, at: int) -> str:
        """What messages call an operator of the child."""
        return label(self.child.program.ops[at], at)


def _middle(op: Op, program: Program) -> list[float]:
    """By how much the middle of a convolution's kernel is off where its result stands."""
    kernel = program.shapes[op.tensors["weight"]][2:]
    reach = [
        step * (extent - 1) / 2 for step, extent in zip(op.args["dilation"], kernel, strict=True)
    ]
    given = op.args["padding"]
    pads = {"same": reach, "valid": [0] * len(kernel)}.get(given, given)
    return [pad - half for pad, half in zip(pads, reach, strict=True)]


def label(op: Op, at: int) -> str:
    """What messages call an operator: the module that holds its weights, or its kind."""
    if op.tensors:
        first = next(iter(op.tensors.values()))
        return first.removesuffix(".out_proj.weight").rpartition(".")[0] or first
    return f"{op.kind} (operator {at})"


def _several(traced: TracedModule, op: Op) -> bool:
    shape = traced.program.ops[op.refs[0]].shape
    return bool(shape) and isinstance(shape[0], tuple)


def _axes(child: TracedModule, parent: TracedModule, at: int, there: int) -> list[tuple[Dim, Dim]]:
    """The dimensions of an operator's result, of the first one if it has several, in pairs."""
    x, y = (
        values[0] if values and not isinstance(values[0], Dim) else values
        for values in (child.spaces.values[at], parent.spaces.values[there])
    )
    return list(zip(x, y, strict=True))


def _sliced(units: Ints, op: Op) -> Ints:
    found: Ints = units[op.args["start"] : op.args["end"] : op.args["step"]]
    return found


def _like(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Ref | StateTensor) or isinstance(theirs, Ref | StateTensor):
        return isinstance(mine, Ref | StateTensor) == isinstance(theirs, Ref | StateTensor)
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(map(_like, mine, theirs))
    return bool(mine == theirs)
