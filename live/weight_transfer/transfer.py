"""Starts a child from the weights of a trained parent.

Along an alignment of their graphs, weights are copied; a wider child gets replicas of units, a
narrower one the units that matter most, and layers that only the child has become identities,
wherever that keeps the function (Net2Net, Chen et al., ICLR '16; ModelKeeper, Lai et al.,
NSDI '23, section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.equivalence import (
    OperatorPair,
    base,
    clamped,
    label,
    scales,
    users,
)
from wattkeeper.live.weight_transfer.fill import filled, importance, in_kernel, read_dim, state
from wattkeeper.live.weight_transfer.identity_init import (
    IdentityInit,
    Moments,
    moments,
    pass_batch_norm,
    pass_layer_norm,
    pass_linear,
)
from wattkeeper.live.weight_transfer.ir import Inputs, Op, Program, Ref
from wattkeeper.live.weight_transfer.model_graph import TracedModule, traced
from wattkeeper.live.weight_transfer.norm_expansion import average, norm_tensor
from wattkeeper.live.weight_transfer.op_sets import (
    CLAMPS,
    COMMUTING,
    CONVOLUTIONS,
    MEANS,
    NORMS,
    TRANSPARENT,
)
from wattkeeper.live.weight_transfer.report import Status, TensorReport, TransferReport
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps, root
from wattkeeper.live.weight_transfer.zero_init_blocks import InsertedBlocks, find_blocks, zeros
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.matching.alignment import align

SEED: Final = 20230417
"""Of the shares among replicas: the same transfer gives the same weights."""


def transfer(
    parent: nn.Module, child: nn.Module, example_inputs: Inputs | None = None
) -> TransferReport:
    """Fill a child in place from the weights of a trained parent.

    Args:
        parent: A trained module; it is left as it is.
        child: A module with weights of its own, which it keeps where nothing fits.
        example_inputs: Positional arguments that the forward of both takes. Only shapes and types
            matter. Without them, inputs are derived from the first layer, where that is possible.

    Returns:
        What became of each tensor, and whether the child computes what the parent does.

    Raises:
        InputError: If a module holds no values or the child's must not change, it cannot be traced,
            or example inputs are needed.
    """
    from wattkeeper.live.weight_transfer.example_inputs import inputs_for

    _check_values("parent", parent)
    _check_values("child", child)
    inputs = inputs_for(parent, child) if example_inputs is None else example_inputs
    return grow(traced(parent, inputs, "parent"), traced(child, inputs, "child"))


def _check_values(role: str, module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            what = "is lazy and not initialised yet; call the module once"
        elif tensor.is_meta:
            what = "is on the meta device and holds no values; use module.to_empty"
        elif role == "child" and tensor.is_inference():
            what = "was made in torch.inference_mode and must not change; make it outside"
        else:
            continue
        raise InputError(f"the {role}'s {name!r} {what}")


def grow(
    parent: TracedModule, child: TracedModule, alignment: Ints | None = None
) -> TransferReport:
    """Fill a traced child from a traced parent; see `transfer`.

    Args:
        parent: The parent.
        child: The child; its module is filled.
        alignment: The parent's node that each of the child's takes its weights from, or -1,
            shape (child nodes,); by default that of `align`.
    """
    places = align(parent.graph, child.graph) if alignment is None else alignment
    origins = {
        child.positions[at]: parent.positions[int(place)]
        for at, place in enumerate(places)
        if place >= 0 and child.graph.nodes[at].tensors
    }
    return _Transfer(parent, child, origins).run()


class _Transfer:
    """One transfer: new tensors are collected first, and written when all is known."""

    def __init__(self, parent: TracedModule, child: TracedModule, origins: dict[int, int]) -> None:
        self.parent, self.child, self.origins = parent, child, origins
        self.rng = np.random.default_rng(SEED)
        self.maps = UnitMaps(lambda leaf: importance(parent, leaf), self.rng)
        self.theirs, self.own = state(parent), state(child)
        self.values: dict[str, Tensor] = {}
        self.notes: dict[str, tuple[Status, str, str]] = {}
        self.lost_in_eval: list[str] = []
        self.lost_in_train: list[str] = []
        self.holders: dict[str, list[int]] = {}
        for at, op in enumerate(child.program.ops):
            for name in op.tensors.values():
                self.holders.setdefault(name, []).append(at)
        shared = {at for places in self.holders.values() if len(places) > 1 for at in places}
        self.blocks: InsertedBlocks = find_blocks(child.program, frozenset({*origins, *shared}))
        self.stands: list[int | None] = []  # for each value of the child, which of the parent it is
        self.taken = users(parent.program)
        self.readers = users(child.program)

    def run(self) -> TransferReport:
        self._relate()
        scaled = self._scale()
        self.averaged = average(self.child, self.origins, self.blocks, self.maps)
        self.pair = OperatorPair(self.child, self.parent, self.maps, scaled, self.averaged.norms)
        for at in sorted(self.origins):
            self._fill(at, self.origins[at])
        for at, op in enumerate(self.child.program.ops):
            self.stands.append(self._follow(at, op))
        self._outputs()
        with torch.no_grad():
            for name, value in self.values.items():
                self.own[name].copy_(value)
        return self._report()

    def _relate(self) -> None:
        """Units come from where the weights come from that give them, else that read them."""
        for reading in (False, True):
            for at, there in sorted(self.origins.items()):
                mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
                for role, name in mine.tensors.items():
                    if role not in theirs.tensors:
                        continue
                    x = self.child.spaces.tensors[name]
                    y = self.parent.spaces.tensors[theirs.tensors[role]]
                    for dim, (a, b) in enumerate(zip(x, y, strict=True)):
                        if (dim == read_dim(mine.kind, role, len(x))) is reading:
                            self.maps.relate(a, b)

    def _scale(self) -> frozenset[int]:
        """Amplitudes for units that are multiplied by each other, as queries and keys are."""
        there: dict[Dim, float] = {}
        scaled: set[int] = set()
        for at, axis in self.parent.spaces.contracted.items():
            there.setdefault(axis.find(), scales(self.parent.program, at)[0])
        for at, axis in self.child.spaces.contracted.items():
            leaf = axis.find()
            origin = self.maps.origins.get(leaf)
            if origin in there:
                factor, steps = scales(self.child.program, at)
                self.maps.scales[leaf] = there[origin] / factor
                scaled |= steps
        return frozenset(scaled)

    def _fill(self, at: int, there: int) -> None:
        mine, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        if self._silences(at, there):
            self._lose(f"{label(mine, at)} would be silent with the weights of its origin")
            for name in mine.tensors.values():
                self.notes[name] = ("left", "the parent's adds nothing to a sum, as at first", "")
            return
        for role, name in mine.tensors.items():
            source = theirs.tensors.get(role)
            if source is None or self.holders[name][0] != at:
                continue
            axes = self.child.spaces.tensors[name], self.parent.spaces.tensors[source]
            given = self.theirs[source]
            mixes = at in self.averaged.writers
            value, plain = filled(
                self.maps, given, self.own[name], axes, mine.kind, role, mixes=mixes
            )
            if at in self.averaged.norms:
                value = norm_tensor(self.maps, value, role, (axes[0][0], axes[1][0]), self.rng)
            left_over = any(self.maps.is_averaged(x, y) for x, y in zip(*axes, strict=True))
            status, why = _status(mine.kind, value, given, plain, left_over)
            self.values[name] = value
            self.notes[name] = (status, why, source)

    def _silences(self, at: int, there: int) -> bool:
        """Whether a norm that gives zeros to a sum is taken to where there is no sum.

        A residual block begins so, as the identity. Elsewhere what follows would be dead, and stay
        so: behind a clamp at zero no gradient comes back.
        """
        theirs = self.parent.program.ops[there]
        if theirs.kind not in NORMS:
            return False
        given = [name for role, name in theirs.tensors.items() if role in ("weight", "bias")]
        if not given or any(self.theirs[name].any() for name in given):
            return False
        return _is_added(self.parent.program, self.taken[there]) and not _is_added(
            self.child.program, self.readers[at]
        )

    def _follow(self, at: int, op: Op) -> int | None:
        """Which value of the parent an operator's result is, units apart; None if none."""
        program = self.parent.program
        if at in self.blocks.inside:
            return None
        if at in self.blocks.passed:
            return self.stands[self.blocks.passed[at]]
        inputs = [self.stands[ref] for ref in op.refs]
        if op.kind in TRANSPARENT:
            return inputs[0]
        there = self.origins.get(at)
        if there is not None:
            wanted = [base(program, ref) for ref in program.ops[there].refs]
            if None not in inputs and inputs != wanted:
                self._lose(
                    f"{label(op, at)} takes the weights of {label(program.ops[there], there)}, "
                    "which reads another value in the parent"
                )
            elif None not in inputs and (problem := self.pair.loss(at, there)):
                self._lose(problem)
            elif None not in inputs and not self._shares(at, there):
                self._lose(f"{label(op, at)} shares weights, and they do not do for all that do so")
            return there
        if None in inputs and op.kind != "cat":
            return None
        if op.tensors and op.kind != "unused":
            return self._insert(at, op)
        return self._match(at, op, inputs)

    def _shares(self, at: int, there: int) -> bool:
        """Whether the weights that an operator shares with others are those that it needs."""
        op, theirs = self.child.program.ops[at], self.parent.program.ops[there]
        for role, name in op.tensors.items():
            first = self.holders[name][0]
            source = theirs.tensors.get(role, "")
            if self.notes.get(name, ("", "", ""))[2] != source:
                return False
            x, y = self.child.spaces.tensors[name], self.parent.spaces.tensors[source]
            reads = {
                read_dim(self.child.program.ops[one].kind, role, len(x)) for one in (first, at)
            }
            split = any(
                dim is not None and x[dim].extent != y[dim].extent and len(reads) > 1
                for dim in reads
            )
            if split:  # whole for the one, divided among replicas for the other
                return False
        return True

    def _match(self, at: int, op: Op, inputs: Sequence[int | None]) -> int | None:
        """The parent's operator without weights that does the same to the same values."""
        program = self.parent.program
        known = [ref for ref in inputs if ref is not None]
        if op.kind == "cat":
            found = self._joined(at, op, inputs)
            if found is not None:
                return found
            if not known or None in inputs:
                return None
        candidates = self.taken[known[0]] if known else range(len(program.ops))
        problem = ""
        for there in candidates:
            theirs = program.ops[there]
            if theirs.tensors or not self.pair.same_arguments(op, theirs, at):
                continue
            wanted = [base(program, ref) for ref in theirs.refs]
            swapped = op.kind in COMMUTING and op.args.get("alpha", 1) == 1
            if wanted == inputs or (swapped and sorted(wanted) == sorted(known)):
                problem = self.pair.loss(at, there)
                if not problem:
                    return there
        if op.kind in CLAMPS and len(known) == 1 and clamped(program, known[0], op):
            return known[0]
        if op.kind != "unused":
            self._lose(problem or f"{label(op, at)} has no counterpart in the parent")
        return None

    def _joined(self, at: int, op: Op, inputs: Sequence[int | None]) -> int | None:
        """A concatenation that holds all that one of the parent holds, and maybe more."""
        program = self.parent.program
        known = [ref for ref in inputs if ref is not None]
        for ref in known:
            for there in self.taken[ref]:
                theirs = program.ops[there]
                wanted = [base(program, item) for item in theirs.refs]
                held = theirs.kind == "cat" and self._in_order(theirs, wanted, known)
                if held and not self.pair.loss(at, there):
                    return there
        return known[0] if len(known) == 1 and self.pair.same_units(at, known[0]) else None

    def _in_order(self, op: Op, wanted: Sequence[int | None], known: Sequence[int]) -> bool:
        """Whether all that the parent joins is there, and in its order unless units tell it."""
        held = [ref for ref in known if ref in wanted]
        if held == list(wanted):
            return True
        values = self.parent.spaces.values
        roots = [root(values[ref][op.args["dim"]]) for ref in op.refs]
        told = len({*roots}) == len(roots) and all(axis.kind == "free" for axis in roots)
        return told and sorted(held) == sorted(ref for ref in wanted if ref is not None)

    def _insert(self, at: int, op: Op) -> int | None:
        """Make a layer that only the child has the identity, if that survives what follows."""
        if any(len(self.holders[name]) > 1 for name in op.tensors.values()):
            self._lose(f"{label(op, at)} is new here and shares its weights with other places")
            return None
        source = self.stands[op.refs[0]] if op.refs else None
        problem = "" if source is not None and self._survives(at, source) else "its activation"
        passed = None
        if source is not None and not problem:
            passed = self._passed(at, op, source)
        if passed is not None:
            for name, value in passed.values.items():
                self._put(name, value, passed.why)
            if passed.lost_in_eval:
                self._lose(passed.lost_in_eval)
            if passed.lost_in_train:
                self.lost_in_train.append(passed.lost_in_train)
            return source
        reason = (
            "the activation after it changes what it has changed before"
            if problem
            else f"a {op.kind} of this shape cannot pass its input on"
        )
        for name in op.tensors.values():
            self.notes.setdefault(name, ("left", f"inserted, but {reason}", ""))
        self._lose(f"{label(op, at)} is new and cannot be the identity: {reason}")
        return None

    def _survives(self, at: int, source: int) -> bool:
        """Whether what follows up to the next activation can be passed unchanged."""
        program = self.child.program
        while True:
            after = self.readers[at]
            if len(after) != 1:
                return True
            (at,) = after
            op = program.ops[at]
            if op.tensors:
                if at in self.origins or op.kind != "batch_norm":
                    return True
                continue
            if not op.pointwise or len(op.refs) != 1:
                return True
            if op.kind in CLAMPS and clamped(self.parent.program, source, op):
                return True
            return any(
                self.pair.same_arguments(op, self.parent.program.ops[there], at)
                for there in self.taken[source]
            )

    def _passed(self, at: int, op: Op, source: int) -> IdentityInit | None:
        """How an operator passes its input on; None if it cannot."""
        if op.kind == "batch_norm":
            return pass_batch_norm(op, self.own, self._moments(at, source))
        if op.kind == "layer_norm":
            return pass_layer_norm(op, self.own) if self._normalised(at) else None
        if op.kind not in CONVOLUTIONS | {"linear"} or "weight" not in op.tensors:
            return None
        given, mine = self.child.program.ops[op.refs[0]].shape, op.shape
        channel = -1 if op.kind == "linear" else 1
        if len(given) != len(mine):
            return None
        same = channel == -1 or (given[2:] == mine[2:] and set(op.args["stride"]) == {1})
        if not (same or self._averages(at, op)):
            return None
        theirs = self.parent.spaces.values[source][channel]
        out = self.maps.build(self.child.spaces.values[at][channel], theirs)
        taken = self.maps.build(self.child.spaces.of(Ref(op.refs[0]))[channel], theirs)
        if out is None or taken is None:
            return None
        return pass_linear(op, self.own, self.maps, out, taken)

    def _moments(self, at: int, source: int) -> Moments | None:
        """Of the units that an inserted batch norm is given: those of a value of the parent."""
        mine, theirs = self.child.spaces.values[at], self.parent.spaces.values[source]
        units = self.maps.build(mine[1], theirs[1])
        found = moments(self.parent.program, self.theirs, source)
        if found is None or units is None or (units < 0).any():
            return None
        shapes = self.parent.program.ops[source].shape, self.child.program.ops[at].shape
        return found.of(units, math.prod(shapes[0][2:]) / math.prod(shapes[1][2:]))

    def _averages(self, at: int, op: Op) -> bool:
        """Whether a strided convolution may give means, since only their mean is read at last."""
        given = self.child.program.ops[op.refs[0]].shape[2:]
        steps = op.args["stride"]
        if any(extent % step for extent, step in zip(given, steps, strict=True)):
            return False
        if any(a != b * step for a, b, step in zip(given, op.shape[2:], steps, strict=True)):
            return False
        while True:
            following = [one for one in self.readers[at] if one not in self.blocks.inside]
            if len(following) != 1 or at in self.child.program.outputs:
                return False
            before, (at,) = at, following
            reader = self.child.program.ops[at]
            if reader.kind in MEANS and set(reader.shape[2:]) == {1}:
                return True
            new = bool(reader.tensors) and at not in self.origins
            keeps = reader.kind == "batch_norm" or set(reader.args.get("stride", ())) == {1}
            ends = self.blocks.passed.get(at) == before
            if not ((new and keeps) or ends or reader.kind in CLAMPS):
                return False

    def _normalised(self, at: int) -> bool:
        """Whether only inserted blocks and layer norms read a value."""
        following = self.readers[at]
        for reader in following:
            passes = reader in self.blocks.passed and self._normalised(reader)
            again = self.child.program.ops[reader].kind == "layer_norm"
            if not (reader in self.blocks.inside or passes or again):
                return False
        return bool(following) and at not in self.child.program.outputs

    def _put(self, name: str, value: Tensor, why: str) -> None:
        self.values[name] = value
        self.notes[name] = ("inserted", why, "")

    def _lose(self, reason: str) -> None:
        if reason not in self.lost_in_eval:
            self.lost_in_eval.append(reason)

    def _outputs(self) -> None:
        for name, value in zeros(self.child.program, self.blocks, self.own).items():
            self._put(name, value, "ends an inserted block, which adds nothing at first")
        for name in self.blocks.held - self.values.keys():
            self.notes[name] = ("inserted", "inside an inserted block; own initialisation", "")
        wanted = [base(self.parent.program, at) for at in self.parent.program.outputs]
        found = [self.stands[at] for at in self.child.program.outputs]
        if found != wanted and not self.lost_in_eval:
            self._lose("the child's outputs are other values of the parent")

    def _report(self) -> TransferReport:
        program = self.child.program
        tensors = []
        for name, shape in program.shapes.items():
            default: tuple[Status, str, str] = ("left", "nothing in the parent fits it", "")
            status, why, source = self.notes.get(name, default)
            tensors.append(
                TensorReport(
                    name=name,
                    status=status,
                    source=source,
                    why=why,
                    shape=shape,
                    trained=name in program.trained,
                )
            )
        return TransferReport(
            parent=self.parent.program.name,
            child=program.name,
            tensors=tuple(tensors),
            lost_in_eval=tuple(self.lost_in_eval),
            lost_in_train=(*self.lost_in_eval, *self.lost_in_train),
        )


def _is_added(program: Program, readers: Sequence[int]) -> bool:
    return bool(readers) and all(program.ops[reader].kind == "add" for reader in readers)


def _status(
    kind: str, value: Tensor, source: Tensor, plain: bool, left_over: bool
) -> tuple[Status, str]:
    if plain:
        return "copied", "the same units"
    pairs = list(zip(value.shape, source.shape, strict=True))
    units = [pair for dim, pair in enumerate(pairs) if not in_kernel(kind, dim)]
    kernel = [pair for dim, pair in enumerate(pairs) if in_kernel(kind, dim)]
    why = []
    if any(mine < theirs for mine, theirs in units):
        why.append("keeps the units that matter most")
    elif any(mine > theirs for mine, theirs in units):
        why.append("replicates units; what reads replicas splits its weight among them")
    if left_over:
        why.append("units left over carry the mean of all, which nothing reads at first")
    if any(mine < theirs for mine, theirs in kernel):
        why.append("keeps the middle of the kernel")
    elif any(mine > theirs for mine, theirs in kernel):
        why.append("has zeros around the kernel")
    if not why:
        return "copied", "the same units, rescaled or in another order"
    narrowed = any(mine < theirs for mine, theirs in pairs)
    return "narrowed" if narrowed else "widened", "; ".join(why)
