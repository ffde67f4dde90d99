"""Derives example inputs of models from their first layer."""

from typing import Final

import torch
from torch import Tensor, nn

from wattkeeper.live.weight_transfer.program.tracing import trace_program
from wattkeeper.policies.errors import InputError

EMBEDDINGS: Final = (nn.Embedding, nn.EmbeddingBag)

SIDES: Final = (32, 224, 28, 64, 8)
"""Side lengths of images to try, in pixels; only tracing depends on them."""


def derive_inputs(*modules: nn.Module) -> tuple[Tensor, ...]:
    """Inputs that all modules can be traced with, derived from the first layer of the first.

    Raises:
        InputError: If none can be derived.
    """
    failure = ""
    for inputs in _candidates(modules[0]):
        try:
            for module in modules:
                trace_program(module, inputs, "model")
        except InputError as error:
            failure = f" (the last attempt: {error})"
        else:
            return inputs
    raise InputError(
        f"no example inputs could be derived for {type(modules[0]).__name__} and the model that "
        f"takes its weights{failure}; pass example_inputs, the tensors that both forwards take"
    )


def _candidates(module: nn.Module) -> list[tuple[Tensor, ...]]:
    dtype = derive_dtype(module)
    for part in module.modules():
        if isinstance(part, nn.Linear):
            shapes: list[tuple[int, ...]] = [(2, part.in_features)]
        elif isinstance(part, nn.Conv2d):
            shapes = [(2, part.in_channels, side, side) for side in SIDES]
        elif isinstance(part, nn.Conv1d):
            shapes = [(2, part.in_channels, side) for side in SIDES]
        elif isinstance(part, EMBEDDINGS):
            shapes = [(2, 16)]
        else:
            continue
        return [(torch.zeros(shape, dtype=dtype),) for shape in shapes]
    return []


def derive_dtype(module: nn.Module) -> torch.dtype:
    """The type that the first layer takes: token indices, or the type of its weights."""
    for part in module.modules():
        if isinstance(part, EMBEDDINGS):
            return torch.long
        for parameter in part.parameters(recurse=False):
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype()
