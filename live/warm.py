"""Fills a model from a file of weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from wattkeeper.live.transformer import transfer
from wattkeeper.live.zoo_tensors import read_safetensors
from wattkeeper.policies.errors import InputError

if TYPE_CHECKING:
    from wattkeeper.live.program import Inputs
    from wattkeeper.live.report import TransferReport


def fill(
    weights: Path, model: nn.Module, parent: nn.Module | None, inputs: Inputs | None
) -> TransferReport:
    """Fill a model in place from the weights of a parent; see `wattkeeper.live.transfer`.

    Args:
        weights: A safetensors file.
        model: Who is filled.
        parent: A module of the parent's architecture, which is left as it is; by default that of
            the model.
        inputs: Positional arguments that the forward of both takes; by default derived.

    Raises:
        InputError: If the weights do not fit the parent, or a module cannot be traced.
        StoreError: If the file is damaged.
    """
    source = copy.deepcopy(model if parent is None else parent)
    tensors = {name: raw.to_torch() for name, raw in read_safetensors(weights).items()}
    try:
        source.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the weights in {weights} are not of this architecture ({reason}): give a module of "
            "theirs, warm_start(model, parent=module)"
        ) from error
    return transfer(source, model, inputs)
