"""Runs copies of modules on given inputs, without a trace in the modules or in random states."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.live.weight_transfer.report import Precision

SEED: Final = 1
"""Of inputs, and of random draws."""

DROPOUTS: Final = frozenset(
    f"{kind}dropout{rank}"
    for kind in ("", "alpha_", "feature_", "feature_alpha_")
    for rank in ("", "1d", "2d", "3d")
)
"""Functions that drop units at random."""


def tolerance(*modules: nn.Module) -> float:
    """Largest relative difference of values: half of the digits of the coarsest parameter."""
    types = {tensor.dtype for module in modules for tensor in module.parameters()}
    return math.sqrt(max((torch.finfo(t).eps for t in types if t.is_floating_point), default=1e-7))


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference of an element over the largest expected element; inf for NaN."""
    if not expected.numel():
        return 0.0
    scale = float(expected[expected.isfinite()].abs().max()) if expected.isfinite().any() else 0.0
    gaps = torch.where(found == expected, 0.0, (found - expected).abs())
    largest = float(gaps.max()) / (scale or 1.0)
    return math.inf if math.isnan(largest) else largest


def vary_inputs(inputs: Sequence[Tensor], programs: Sequence[Program]) -> list[Tensor]:
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


def run(
    module: nn.Module, inputs: Sequence[Tensor], precision: Precision, *, train: bool = False
) -> list[Tensor]:
    """The outputs of a copy of a module, in float64 on the CPU.

    Dropout and other draws of zeros and ones are replaced by their mean.
    """
    return run_in_place(copy_module(module, precision), inputs, precision, train=train)


def run_in_place(
    module: nn.Module, inputs: Sequence[Tensor], precision: Precision, *, train: bool = False
) -> list[Tensor]:
    """The outputs of a module that may change; see `run`."""
    module.train(train)
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0
    state = next((tensor for tensor in (*module.parameters(), *module.buffers())), None)
    device = state.device if state is not None else torch.device("cpu")
    given = [item.to(device) for item in _with_batch(inputs, train)]
    if precision == "float64":
        given = [item.double() if item.is_floating_point() else item for item in given]
    with torch.no_grad(), torch.random.fork_rng(), _MeanDraws():
        torch.manual_seed(SEED)
        outputs = module(*given)
    return [_as_double(item) for item in tree_leaves(outputs) if isinstance(item, Tensor)]


def _as_double(value: Tensor) -> Tensor:
    return torch.view_as_real(value).double().cpu() if value.is_complex() else value.double().cpu()


def _with_batch(inputs: Sequence[Tensor], train: bool) -> list[Tensor]:
    """Inputs with two examples instead of one in train mode, where norms take statistics."""
    if not train or any(item.dim() == 0 or len(item) != 1 for item in inputs):
        return list(inputs)
    return [torch.cat([item, item.flip(-1)]) for item in inputs]


def copy_module(module: nn.Module, precision: Precision) -> nn.Module:
    """A copy of a module, its floating-point state in another type if need be."""
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    twin = copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})
    return twin.double() if precision == "float64" else twin


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
