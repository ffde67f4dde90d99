"""Example inputs for models whose first layer says what they take."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from wattkeeper.live.weight_transfer.ir import program_of
from wattkeeper.policies.errors import InputError

WORDS: Final = (nn.Embedding, nn.EmbeddingBag)

SIDES: Final = (32, 224, 28, 64, 8)
"""Pixels a side that images are tried with; nothing but tracing depends on it."""


def inputs_for(*modules: nn.Module) -> tuple[Tensor, ...]:
    """Inputs that all modules can be traced with, told by the first layer of the first.

    Raises:
        InputError: If that cannot be told.
    """
    found = ""
    for inputs in _candidates(modules[0]):
        try:
            for module in modules:
                program_of(module, inputs, "model")
        except InputError as error:
            found = f" (the last try: {error})"
        else:
            return inputs
    raise InputError(
        f"no example inputs could be derived for {type(modules[0]).__name__} and the model that "
        f"takes its weights{found}; pass example_inputs, the tensors that both forwards take"
    )


def _candidates(module: nn.Module) -> list[tuple[Tensor, ...]]:
    dtype = input_type(module)
    for part in module.modules():
        if isinstance(part, nn.Linear):
            shapes: list[tuple[int, ...]] = [(2, part.in_features)]
        elif isinstance(part, nn.Conv2d):
            shapes = [(2, part.in_channels, side, side) for side in SIDES]
        elif isinstance(part, nn.Conv1d):
            shapes = [(2, part.in_channels, side) for side in SIDES]
        elif isinstance(part, WORDS):
            shapes = [(2, 16)]
        else:
            continue
        return [(torch.zeros(shape, dtype=dtype),) for shape in shapes]
    return []


def input_type(module: nn.Module) -> torch.dtype:
    """What the first layer takes: numbers of words, or the type of its weights."""
    for part in module.modules():
        if isinstance(part, WORDS):
            return torch.long
        for parameter in part.parameters(recurse=False):
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype()
