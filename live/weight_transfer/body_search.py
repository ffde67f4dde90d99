"""Looks for the values that the head of a child reads among those that its parent computes."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from wattkeeper.live.weight_transfer.heads import LEAST_BODY
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.report import Heads, Precision
from wattkeeper.live.weight_transfer.running import copy_module, relative_difference, run_in_place

SAMPLE: Final = 256
"""Elements by which most values are told apart."""


def compare_body(
    parent: nn.Module,
    child: nn.Module,
    heads: Heads,
    inputs: Sequence[Tensor],
    precision: Precision,
    *,
    limit: float,
) -> float:
    """Largest difference of what the heads say are values of the parent, inf above `limit`."""
    values = _read_values(child, {*heads.entries, *heads.ends}, inputs, precision)
    wanted = [values.read[layer] for layer in heads.entries]
    wanted += [values.made[layer] for layer in heads.ends]
    wanted += [values.outputs[place] for place in heads.outputs]
    return max(_search(parent, wanted, inputs, precision, limit).differences)


def search_body(
    parent: TracedModule,
    child: TracedModule,
    inputs: Sequence[Tensor],
    precision: Precision,
    *,
    filled: Collection[str],
    limit: float,
) -> float | None:
    """Largest difference of what a head of the child reads from values of the parent.

    The head is the smallest set of last layers that reads values of the parent up to `limit`
    alone; None if there is none, if one of its tensors is `filled` from the parent, or if neither
    model has half of its parameters before it.
    """
    program, ops = child.program, child.program.ops
    names = {index: op.name(index) for index, op in enumerate(ops) if op.is_layer}
    values = _read_values(child.module, {*names.values()}, inputs, precision)
    read = [index for index, name in names.items() if name in values.read]
    wanted = [values.read[names[index]] for index in read]
    search = _search(parent.module, [*wanted, *values.outputs], inputs, precision, limit)
    gaps = dict(zip(read, search.differences, strict=False))
    head = _grow_head(program, {index for index in read if gaps[index] <= limit})
    entries = [index for index in head & gaps.keys() if not head & {*program.layers_before[index]}]
    held = {name for index in head for name in program.ops[index].tensors.values()}
    if not entries or not held.isdisjoint(filled):
        return None
    body = {name for index in names.keys() - head for name in ops[index].tensors.values()}
    sizes = {name: prod(program.shapes[name]) for name in program.trained}
    own = sum(sizes[name] for name in body & program.trained) / (sum(sizes.values()) or 1)
    theirs = max(search.shares[read.index(index)] for index in entries)
    others = [
        gap
        for output, gap in zip(program.outputs, search.differences[len(read) :], strict=True)
        if not head & {output, *program.layers_before[output]}
    ]
    largest = max((*(gaps[index] for index in entries), *others))
    return largest if max(own, theirs) >= LEAST_BODY and largest <= limit else None


def _grow_head(program: Program, known: Collection[int]) -> set[int]:
    """The smallest set of last layers of which those that read from outside are `known`.

    A layer that reads several values, or a mixture of values from inside and outside, is taken in
    with the layers before it.
    """
    before = program.layers_before
    layers = [index for index, op in enumerate(program.ops) if op.is_layer]
    head = {*layers} - {layer for index in layers for layer in before[index]}
    while True:
        head |= {index for index in layers if not head.isdisjoint(before[index])}
        outer = {
            layer
            for index in head
            if not {*before[index]} <= head
            and (index not in known or head & {*before[index]} or len(program.ops[index].refs) > 1)
            for layer in before[index]
        }
        if outer <= head:
            return head
        head |= outer


class _Values(NamedTuple):
    """What layers of a module read and compute, by name, and the module's outputs."""

    read: dict[str, Tensor]
    made: dict[str, Tensor]
    outputs: list[Tensor]


def _read_values(
    child: nn.Module, layers: Collection[str], inputs: Sequence[Tensor], precision: Precision
) -> _Values:
    twin = copy_module(child, precision)
    tensors = [*twin.named_parameters(), *twin.named_buffers()]
    holders = {
        id(tensor): layer
        for name, tensor in tensors
        for layer in (name, name.rpartition(".")[0])
        if layer in layers
    }
    reading = _Reading(holders, {id(tensor) for _, tensor in tensors})
    with reading:
        outputs = run_in_place(twin, inputs, precision)
    return _Values(reading.read, reading.made, outputs)


def _search(
    parent: nn.Module,
    values: Sequence[Tensor],
    inputs: Sequence[Tensor],
    precision: Precision,
    limit: float,
) -> "_Search":
    """Run a copy of the parent, and look for values among all of its results."""
    twin = copy_module(parent, precision)
    search = _Search(values, {id(item): item.numel() for item in twin.parameters()}, limit)
    with search:
        run_in_place(twin, inputs, precision)
    return search


class _Reading(TorchFunctionMode):
    """Notes what layers read and compute.

    Args:
        holders: By identity of a tensor of a layer, the layer.
        state: Identities of all tensors of the module.
    """

    def __init__(self, holders: Mapping[int, str], state: Collection[int]) -> None:
        super().__init__()
        self._holders, self._state = holders, state
        self.read: dict[str, Tensor] = {}
        self.made: dict[str, Tensor] = {}

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
        layer = next((self._holders[id(t)] for t in tensors if id(t) in self._holders), "")
        given = [tensor for tensor in tensors if id(tensor) not in self._state][: bool(layer)]
        read = [_copy_value(tensor) for tensor in given]  # before it changes in place
        result = func(*args, **(kwargs or {}))
        if read and isinstance(result, Tensor):
            self.read[layer], self.made[layer] = read[0], _copy_value(result)
        return result


def _copy_value(value: Tensor) -> Tensor:
    return value.detach().double().cpu().clone()


def _take_sample(value: Tensor) -> Tensor:
    """The first elements of a value, without a copy of all."""
    while value.dim() > 1 and value[0].numel() >= SAMPLE:
        value = value[0]
    return value.detach().flatten()[:SAMPLE].double().cpu()


class _Search(TorchFunctionMode):
    """Looks for values among all results of a module.

    Attributes:
        differences: How far the nearest result is from each value, inf if farther than `limit`;
            nothing is near one of zeros.
        shares: Share of the module's parameters that were used before that result.

    Args:
        values: The values.
        parameters: By identity of a parameter, its number of elements.
        limit: Largest difference of what is near.
    """

    def __init__(
        self, values: Sequence[Tensor], parameters: Mapping[int, int], limit: float
    ) -> None:
        super().__init__()
        self._limit = limit
        self._values = [value.cpu() for value in values]
        self._samples = [_take_sample(value) for value in self._values]
        self._scales = [float(value.abs().max()) if value.numel() else 0.0 for value in values]
        self._left, self._total = dict(parameters), sum(parameters.values()) or 1
        self.differences = [math.inf] * len(values)
        self.shares = [0.0] * len(values)

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for item in tree_leaves((args, kwargs)):
            self._left.pop(id(item), None)
        result = func(*args, **(kwargs or {}))
        share = 1 - sum(self._left.values()) / self._total
        for found in tree_leaves(result):
            if isinstance(found, Tensor) and not found.is_complex():
                self._compare(found.detach(), share)
        return result

    def _compare(self, found: Tensor, share: float) -> None:
        sample: Tensor | None = None
        for index, value in enumerate(self._values):
            if found.shape != value.shape or not self._scales[index]:
                continue
            sample = _take_sample(found) if sample is None else sample
            least = float((sample - self._samples[index]).abs().max())
            nearest = min(self.differences[index], self._limit)
            if least > nearest * self._scales[index]:
                continue
            gap = relative_difference(found.double().cpu(), value)
            if gap <= self._limit and gap < self.differences[index]:
                self.differences[index], self.shares[index] = gap, share
