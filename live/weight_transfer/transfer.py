"""Initialises a child model with the weights of a trained parent.

Weights are copied along an alignment of their graphs. A wider child gets replicas of units, a
narrower one the most important units, and layers that only the child has become identities,
wherever that preserves the function (Net2Net, Chen et al., ICLR '16; ModelKeeper, Lai et al.,
NSDI '23, section 4.3).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from wattkeeper.live.weight_transfer import fill, norm_expansion
from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.equivalence import EquivalenceCheck, find_users, product_scale
from wattkeeper.live.weight_transfer.insertion import LayerInsertion
from wattkeeper.live.weight_transfer.model_graph import TracedModule, free_outputs, trace
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.program.op_sets import NORMS
from wattkeeper.live.weight_transfer.program.tracing import Inputs
from wattkeeper.live.weight_transfer.report import CLAIMS, ReportBuilder, TensorNote, TransferReport
from wattkeeper.live.weight_transfer.tied_weights import TiedReaders, find_tied_readers
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps
from wattkeeper.live.weight_transfer.value_matching import ValueMatching
from wattkeeper.live.weight_transfer.verification import check_claims
from wattkeeper.live.weight_transfer.zero_init_blocks import find_inserted_blocks, zero_tensors
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.matching.alignment import align
from wattkeeper.policies.matching.graph import Node

SEED: Final = 20230417
"""Of the shares of replicas: the same transfer gives the same weights."""


MOST_OF_HEAD: Final = 0.1
"""Share of a child's parameters that are given up, at most, so that all but its head is kept."""


def transfer(
    parent: nn.Module,
    child: nn.Module,
    example_inputs: Inputs | None = None,
    *,
    verify: bool = False,
) -> TransferReport:
    """Fill a child in place from the weights of a trained parent.

    Args:
        parent: A trained module; it is not changed.
        child: An initialised module; weights that nothing fits keep their values.
        example_inputs: Positional arguments that the forward of both takes. Without them, inputs
            are derived from the first layer, where that is possible.
        verify: Whether to run both models even if nothing of the function is known to be kept.

    Returns:
        How each tensor was filled, and whether the child's function is the parent's.

    Raises:
        InputError: If a module holds no values or the child's must not change, it cannot be traced,
            or example inputs are needed.
    """
    from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs

    _check_values("parent", parent)
    _check_values("child", child)
    inputs = derive_inputs(parent, child) if example_inputs is None else example_inputs
    traced = trace(parent, inputs, "parent"), trace(child, inputs, "child")
    return grow_checked(*traced, inputs, verify=verify)


def _check_values(role: str, module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            problem = "is lazy and not initialised yet; call the module once"
        elif tensor.is_meta:
            problem = "is on the meta device and holds no values; use module.to_empty"
        elif role == "child" and tensor.is_inference():
            problem = "was made in torch.inference_mode and must not change; make it outside"
        else:
            continue
        raise InputError(f"the {role}'s {name!r} {problem}")


def grow_checked(
    parent: TracedModule, child: TracedModule, inputs: Inputs, *, verify: bool
) -> TransferReport:
    """Fill a traced child from a traced parent, and run both before a claim is made.

    `inputs` are those that both were traced with; see `transfer`.
    """
    return check_claims(grow(parent, child), parent, child, inputs, always=verify)


def grow(parent: TracedModule, child: TracedModule) -> TransferReport:
    """Fill a traced child from a traced parent; neither is run. See `transfer`."""
    origins = _align(parent, child)
    shapes = [
        [traced.program.ops[index].shapes for index in traced.program.outputs]
        for traced in (parent, child)
    ]
    if shapes[0] != shapes[1]:  # one may be the other without its head
        bodies = free_outputs(parent), free_outputs(child)
        others = _align(*bodies)
        if _count_shared(parent, child, others) > _count_shared(parent, child, origins):
            (parent, child), origins = bodies, others
    attempt = _Transfer(parent, child, origins)
    report = attempt.run()
    if report.lost_in_eval:
        moved = follow_layers(parent, child, origins)
        if moved != origins:
            other = _Transfer(parent, child, moved)
            other_report = other.run()
            if not other_report.lost_in_eval:
                attempt, report = other, other_report
    if report.kept not in CLAIMS and (body := attempt.list_known_origins()):
        other = _Transfer(parent, child, body)
        other_report = other.run()
        if other_report.heads is not None:
            attempt, report = other, other_report
    attempt.write()
    return report


def _align(parent: TracedModule, child: TracedModule) -> dict[int, int]:
    """By operator of the child with weights, the parent's operator that it takes them from."""
    return {
        child.op_of_node[node]: parent.op_of_node[int(parent_node)]
        for node, parent_node in enumerate(align(parent.graph, child.graph))
        if parent_node >= 0 and child.graph.nodes[node].tensors
    }


def _count_shared(parent: TracedModule, child: TracedModule, origins: Mapping[int, int]) -> int:
    """Elements of the child's parameters that the parent has, too."""
    shared: dict[str, int] = {}
    for index, origin in origins.items():
        sources = parent.program.ops[origin].tensors
        for role, name in child.program.ops[index].tensors.items():
            if role in sources and name in child.program.trained:
                shapes = child.program.shapes[name], parent.program.shapes[sources[role]]
                shared[name] = prod(map(min, *shapes)) if shapes[0] else 1
    return sum(shared.values())


class _Transfer:
    """One transfer along an alignment; new values are collected first, and written on demand."""

    def __init__(self, parent: TracedModule, child: TracedModule, origins: dict[int, int]) -> None:
        self.parent, self.child, self.origins = parent, child, origins
        self.rng = np.random.default_rng(SEED)
        self.maps = UnitMaps(lambda leaf: fill.unit_importance(parent, leaf), self.rng)
        self.parent_state, self.own = fill.state_tensors(parent), fill.state_tensors(child)
        self.unsaved = fill.unsaved_buffers(child.module)
        self.values: dict[str, Tensor] = {}
        self.report = ReportBuilder()
        self.holders: dict[str, list[int]] = defaultdict(list)
        for index, op in enumerate(child.program.ops):
            for name in op.tensors.values():
                self.holders[name].append(index)
        shared = {index for ops in self.holders.values() if len(ops) > 1 for index in ops}
        self.blocks = find_inserted_blocks(child.program, frozenset({*origins, *shared}))
        self.parent_users, self.users = find_users(parent.program), find_users(child.program)

    def run(self) -> TransferReport:
        self._relate_units()
        scalings = self._set_scales()
        expansion = norm_expansion.expand_norms(self.child, self.origins, self.blocks, self.maps)
        users = self.users, self.parent_users
        tied = find_tied_readers(self.child, self.parent, self.origins, self.maps, users)
        for index in sorted(self.origins):
            self._fill(index, self.origins[index], expansion, tied)
        check = EquivalenceCheck(
            self.child,
            self.parent,
            self.maps,
            scalings | tied.scalings,
            expansion.norms,
            tied.readers,
        )
        insertion = LayerInsertion(check, self.origins, self.blocks, self.users, self.parent_users)
        matching = ValueMatching(insertion, self.holders, self.report, self.values)
        matching.run()
        self.is_known = matching.is_known
        self._fill_inserted_blocks()
        return self.report.build(self.parent.program, self.child.program)

    def write(self) -> None:
        """Write the new values to the child."""
        with torch.no_grad():
            for name, value in self.values.items():
                self.own[name].copy_(value)

    def list_known_origins(self) -> dict[int, int]:
        """Origins of the operators that compute the parent's values; empty if others are many.

        What a layer of a head learned is of no use to one that reads another value.
        """
        program = self.child.program
        known = {i: origin for i, origin in self.origins.items() if self.is_known[i]}
        lost = {
            name
            for index in self.origins.keys() - known.keys()
            for name in program.ops[index].tensors.values()
        }
        if any(not lost.isdisjoint(program.ops[index].tensors.values()) for index in known):
            return {}
        total = sum(prod(program.shapes[name]) for name in program.trained)
        few = sum(prod(program.shapes[name]) for name in lost & program.trained)
        return known if 0 < few <= MOST_OF_HEAD * total else {}

    def _relate_units(self) -> None:
        """Units come from the parent's operator that writes them, else from one that reads them."""
        for is_read in (False, True):
            for index, origin in sorted(self.origins.items()):
                op, parent_op = self.child.program.ops[index], self.parent.program.ops[origin]
                for role, name in op.tensors.items():
                    if role not in parent_op.tensors:
                        continue
                    dims = self.child.dims.tensors[name]
                    parent_dims = self.parent.dims.tensors[parent_op.tensors[role]]
                    summed_axis = fill.input_axis(op.kind, role, len(dims))
                    for axis, pair in enumerate(zip(dims, parent_dims, strict=True)):
                        if (axis == summed_axis) is is_read:
                            self.maps.relate(*pair)

    def _set_scales(self) -> frozenset[int]:
        """Set the scales of units that are multiplied by each other, as queries and keys are.

        Returns:
            The child's operators whose constants the scales compensate for.
        """
        parent_scales: dict[Dim, float] = {}
        scalings: set[int] = set()
        for index, dim in self.parent.dims.contracted.items():
            parent_scales.setdefault(
                dim.find(), product_scale(self.parent.program, self.parent_users, index)[0]
            )
        for index, dim in self.child.dims.contracted.items():
            leaf = dim.find()
            origin = self.maps.origins.get(leaf)
            if origin in parent_scales:
                scale, steps = product_scale(self.child.program, self.users, index)
                self.maps.scales[leaf] = parent_scales[origin] / scale
                scalings |= steps
        return frozenset(scalings)

    def _fill(
        self, index: int, origin: int, expansion: norm_expansion.MeanExpansion, tied: TiedReaders
    ) -> None:
        """Fill the tensors of an operator from those of its origin."""
        op, parent_op = self.child.program.ops[index], self.parent.program.ops[origin]
        if self._would_silence(index, origin):
            self.report.lose_function(
                f"{op.name(index)} would have a zero result with the weights of its origin"
            )
            for name in op.tensors.values():
                self.report.notes[name] = TensorNote(
                    why="the parent's norm is zero and ends a residual branch; here is none"
                )
            return
        for role, name in op.tensors.items():
            source = parent_op.tensors.get(role)
            if source is None or self.holders[name][0] != index:
                continue
            dims = self.child.dims.tensors[name], self.parent.dims.tensors[source]
            given = self.parent_state[source]
            writes_mean = index in expansion.writers
            value, is_copy = fill.fill_tensor(
                self.maps, given, self.own[name], dims, op.kind, role, writes_mean=writes_mean
            )
            if index in expansion.norms:
                pair = dims[0][0], dims[1][0]
                value = norm_expansion.expand_norm_tensor(self.maps, value, role, pair, self.rng)
            if index in tied.shares:
                value = tied.shares[index].apply(value).to(value.dtype)
            if name in self.unsaved:
                self._compare_unsaved(name, value, source, op.kind)
                continue
            self.values[name] = value
            if is_copy:
                self.report.notes[name] = TensorNote("copied", "the same units", source)
            else:
                carries_mean = any(map(self.maps.is_mean_expanded, *dims))
                self.report.notes[name] = _describe(op.kind, value, given, source, carries_mean)

    def _compare_unsaved(self, name: str, value: Tensor, source: str, kind: str) -> None:
        """Leave a buffer that is not saved, so that the child's state alone has the function."""
        if torch.equal(value, self.own[name]):
            self.report.notes[name] = TensorNote("copied", "equal in both, and not saved", source)
            return
        self.report.notes[name] = TensorNote(why="is not saved with the model's state")
        if kind != "unused":
            self.report.lose_function(
                f"{name} is not saved with the model's state, and differs from the parent's"
            )

    def _would_silence(self, index: int, origin: int) -> bool:
        """Whether a norm that contributes zeros to a sum would move to where there is no sum.

        An untrained residual block ends in such a norm and is the identity. Elsewhere the layers
        after it would stay zero: behind a rectifier, a zero input has no gradient.
        """
        parent_op = self.parent.program.ops[origin]
        if parent_op.kind not in NORMS:
            return False
        affine = [name for role, name in parent_op.tensors.items() if role in ("weight", "bias")]
        if not affine or any(self.parent_state[name].any() for name in affine):
            return False
        return _is_added(self.parent.program, self.parent_users[origin]) and not _is_added(
            self.child.program, self.users[index]
        )

    def _fill_inserted_blocks(self) -> None:
        for name, value in zero_tensors(self.child.program, self.blocks, self.own).items():
            self.values[name] = value
            self.report.notes[name] = TensorNote(
                "inserted", "ends an inserted block, which adds nothing at first"
            )
        for name in self.blocks.tensors - self.values.keys():
            self.report.notes[name] = TensorNote(
                "inserted", "inside an inserted block; own initialisation"
            )


def _is_added(program: Program, users: Sequence[int]) -> bool:
    return bool(users) and all(program.ops[user].kind == "add" for user in users)


def _describe(
    kind: str, value: Tensor, given: Tensor, source: str, carries_mean: bool
) -> TensorNote:
    """The note on a tensor that was filled from the parent's tensor `given`, named `source`."""
    extents = list(zip(value.shape, given.shape, strict=True))
    units = [pair for axis, pair in enumerate(extents) if not fill.is_kernel_axis(kind, axis)]
    kernel = [pair for axis, pair in enumerate(extents) if fill.is_kernel_axis(kind, axis)]
    why = []
    if any(new < old for new, old in units):
        why.append("keeps the most important units")
    elif any(new > old for new, old in units):
        why.append("replicates units; their readers split their weights among the replicas")
    if carries_mean:
        why.append("left-over units carry the mean of all, which no operator reads at first")
    if any(new < old for new, old in kernel):
        why.append("keeps the centre of the kernel")
    elif any(new > old for new, old in kernel):
        why.append("pads the kernel with zeros")
    if not why:
        return TensorNote("copied", "the same units, rescaled or in another order", source)
    is_narrowed = any(new < old for new, old in extents)
    return TensorNote("narrowed" if is_narrowed else "widened", "; ".join(why), source)


def follow_layers(
    parent: TracedModule, child: TracedModule, origins: Mapping[int, int]
) -> dict[int, int]:
    """Move the parent's layers to equal layers of the child that follow the same layers.

    An alignment may choose any of several equal layers. In a block whose layers read all values
    before them, the last of them looks most like the parent's last one, but reads more.

    Args:
        parent: The parent.
        child: The child.
        origins: By operator of the child, the parent's operator that it takes its weights from.

    Returns:
        The new origins; the same ones if no layer can be moved.
    """
    place_of = {origin: index for index, origin in origins.items()}
    nodes = dict(zip(child.op_of_node, child.graph.nodes, strict=True))
    before, parent_before = child.program.layers_before, parent.program.layers_before
    for origin in sorted(place_of):
        expected = tuple(place_of.get(layer, -1) for layer in parent_before[origin])
        place = place_of[origin]
        if -1 in expected or before[place] == expected:
            continue
        taken = {*place_of.values()}
        equal = (
            index
            for index, node in nodes.items()
            if index not in taken
            and before[index] == expected
            and _shape(node) == _shape(nodes[place])
        )
        place_of[origin] = next(equal, place)
    return {index: origin for origin, index in sorted(place_of.items(), key=lambda item: item[1])}


def _shape(node: Node) -> tuple[object, ...]:
    return node.op, node.attributes, [tensor[1:] for tensor in node.tensors]
