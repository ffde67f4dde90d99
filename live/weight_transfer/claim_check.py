"""Runs parent and child before a report claims that the function is preserved.

A claim is proven on the operators of eval mode. Running both models also finds what such a proof
cannot see: outputs that a module has in train mode alone, or a fault of the proof.
"""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.program.tracing import Inputs
from wattkeeper.live.weight_transfer.report import Heads, TransferReport
from wattkeeper.policies.errors import cut_message

SEED: Final = 1
"""Of inputs, and of random draws in train mode."""

DROPOUTS: Final = frozenset(
    f"{kind}dropout{rank}"
    for kind in ("", "alpha_", "feature_", "feature_alpha_")
    for rank in ("", "1d", "2d", "3d")
)
"""Functions that drop units at random."""


def check_claims(
    report: TransferReport, parent: TracedModule, child: TracedModule, inputs: Inputs
) -> TransferReport:
    """Withdraw each claim of a kept function, or body, that does not hold when both models run.

    In train mode, dropout and other draws of zeros and ones are replaced by their mean. Example
    inputs that are constant or hold no values are replaced by random ones. The modules are copied,
    and do not change.

    Args:
        report: What the transfer proved.
        parent: The parent.
        child: The child, filled.
        inputs: Inputs that both were traced with.
    """
    if not report.preserved_in_eval and report.heads is None:
        return report
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    probes = _vary(given, (parent.program, child.program))
    if report.heads is not None:
        holds = _has_values(parent.module, child.module, report.heads, probes)
        return report if holds else report.model_copy(update={"heads": None})
    lost = _find_difference(parent.module, child.module, probes, train=False)
    lost_in_eval = (lost,) if lost else ()
    if report.preserved_in_train and not lost:
        lost = _find_difference(parent.module, child.module, probes, train=True)
    lost_in_train = (*report.lost_in_train, *([lost] if lost else []))
    return report.model_copy(update={"lost_in_eval": lost_in_eval, "lost_in_train": lost_in_train})


def tolerance(*modules: nn.Module) -> float:
    """Largest relative L2 difference of outputs: half of the digits of the coarsest parameter."""
    types = {tensor.dtype for module in modules for tensor in module.parameters()}
    return math.sqrt(max((torch.finfo(t).eps for t in types if t.is_floating_point), default=1e-7))


def _vary(inputs: Sequence[Tensor], programs: Sequence[Program]) -> list[Tensor]:
    """Random values for inputs that are constant; whole numbers only below the rows of a table."""
    generator = torch.Generator().manual_seed(SEED)
    probes = []
    for index, given in enumerate(inputs):
        probe = torch.zeros_like(given, device="cpu") if given.is_meta else given
        if not bool((probe == probe.flatten()[:1]).all()):
            probes.append(probe)
        elif probe.is_floating_point():
            probes.append(torch.randn(probe.shape, generator=generator).to(probe))
        else:
            rows = min(
                (n for program in programs for n in _rows_read_by(program, index)), default=0
            )
            drawn = torch.randint(rows or 1, probe.shape, generator=generator)
            probes.append(drawn.to(probe) if rows else probe)
    return probes


def _rows_read_by(program: Program, index: int) -> list[int]:
    """Rows of the embeddings that an input is the indices of."""
    ops = program.ops
    return [
        program.shapes[op.tensors["weight"]][0]
        for op in ops
        if op.kind == "embedding"
        and "weight" in op.tensors
        and any(ops[ref].kind == "input" and ops[ref].args["index"] == index for ref in op.refs)
    ]


def _find_difference(
    parent: nn.Module, child: nn.Module, inputs: Sequence[Tensor], *, train: bool
) -> str:
    """How the outputs of two modules differ; empty if they are equal."""
    try:
        expected, found = (_run(module, inputs, train) for module in (parent, child))
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        return (
            "it could not be checked, because a model cannot run on the example inputs: "
            + cut_message(f"{type(error).__name__}: {reason}", 200)
        )
    if [item.shape for item in expected] != [item.shape for item in found]:
        return "the child's outputs have other shapes than the parent's when both run"
    limit, largest = tolerance(parent, child), 0.0
    for mine, theirs in zip(found, expected, strict=True):
        scale = float(theirs.norm())
        part = float((mine - theirs).norm()) / (scale or 1.0)
        largest = max(largest, math.inf if math.isnan(part) else part)
    if largest <= limit:
        return ""
    return f"outputs differ by {largest:.2g} of their size when both run (allowed: {limit:.1g})"


def _has_values(
    parent: nn.Module, child: nn.Module, heads: Heads, inputs: Sequence[Tensor]
) -> bool:
    """Whether the parent computes all that the head of the child reads, and its other outputs."""
    twin = _copy(child)
    tensors = [*twin.named_parameters(), *twin.named_buffers()]
    layers = {*heads.entries, *heads.ends}
    holders = {
        id(tensor): layer
        for name, tensor in tensors
        for layer in (name, name.rpartition(".")[0])
        if layer in layers
    }
    reading = _Reading(holders, {id(tensor) for _, tensor in tensors})
    try:
        with reading:
            outputs = _run(twin, inputs, train=False, copies=False)
        values = [reading.read[layer].double().cpu() for layer in heads.entries]
        values += [reading.made[layer].double().cpu() for layer in heads.ends]
        search = _Search([*values, *(outputs[place] for place in heads.outputs)])
        with search:
            _run(parent, inputs, train=False)
    except Exception:  # what cannot run is not claimed
        return False
    return max(search.differences) <= tolerance(parent, child)


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
        layer = next((self._holders[id(t)] for t in tensors if id(t) in self._holders), None)
        given = next((tensor for tensor in tensors if id(tensor) not in self._state), None)
        result = func(*args, **(kwargs or {}))
        if layer is not None and given is not None and isinstance(result, Tensor):
            self.read[layer], self.made[layer] = given, result
        return result


class _Search(TorchFunctionMode):
    """Looks for values among all results: how far the nearest one is from each, of its size."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        super().__init__()
        self._values = values
        self.differences = [math.inf] * len(values)

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for index, value in enumerate(self._values):
            for found in tree_leaves(result):
                if isinstance(found, Tensor) and found.shape == value.shape:
                    part = float((found.double().cpu() - value).norm()) / (float(value.norm()) or 1)
                    self.differences[index] = min(self.differences[index], part)
        return result


def _run(
    module: nn.Module, inputs: Sequence[Tensor], train: bool, *, copies: bool = True
) -> list[Tensor]:
    """The outputs of a module, or of a copy of it, on the CPU."""
    twin = (_copy(module) if copies else module).train(train)
    for part in twin.modules():
        if isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0
    state = next((tensor for tensor in (*twin.parameters(), *twin.buffers())), None)
    device = state.device if state is not None else torch.device("cpu")
    with torch.no_grad(), torch.random.fork_rng(), _MeanDraws():
        torch.manual_seed(SEED)
        outputs = twin(*(item.to(device) for item in _with_batch(inputs, train)))
    return [item.double().cpu() for item in tree_leaves(outputs) if isinstance(item, Tensor)]


def _with_batch(inputs: Sequence[Tensor], train: bool) -> list[Tensor]:
    """Inputs with two examples instead of one in train mode, where norms take statistics."""
    if not train or any(item.dim() == 0 or len(item) != 1 for item in inputs):
        return list(inputs)
    return [torch.cat([item, item.flip(-1)]) for item in inputs]


def _copy(module: nn.Module) -> nn.Module:
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    return copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})


class _MeanDraws(TorchFunctionMode):
    """Replaces dropout, and draws of zeros and ones, by their mean."""

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, options = getattr(func, "__name__", "").rstrip("_"), dict(kwargs or {})
        if name in DROPOUTS:
            return args[0] if args else options["input"]
        if name == "bernoulli" and len(args) == 2 and isinstance(args[1], float):
            return args[0].fill_(args[1])
        if name == "scaled_dot_product_attention":
            options |= dict(zip(("is_causal", "scale"), args[5:], strict=False))
            options["dropout_p"], args = 0.0, args[:4]
        return func(*args, **options)
