"""Arguments of the zoo's commands: capacities, graphs, and modules, which are code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.matching.graph import Graph

if TYPE_CHECKING:
    import torch
    from torch import nn

    from wattkeeper.live.zoo.tensors import RawTensor

UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
SHAPES: Final = re.compile(r"[1-9]\d*(,[1-9]\d*)*(;[1-9]\d*(,[1-9]\d*)*)*")
MODULE: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")


def capacity_bytes(text: str) -> int:
    """Bytes of a capacity, as `10GB`.

    Raises:
        InputError: If the text is no capacity.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", text.strip())
    if match and match[2].upper() in UNITS:
        size = round(float(match[1]) * UNITS[match[2].upper()])
        if size > 0:
            return size
    raise InputError(
        f"found the capacity {text!r}; allowed: a number above 0 with B, kB, MB, GB, TB (powers of "
        "1000), KiB, MiB, GiB or TiB (powers of 1024), as 10GB"
    )


def check_torch() -> None:
    """Check that PyTorch is installed.

    Raises:
        EnvironmentLacks: If it is not; the message says how to install it.
    """
    from importlib.util import find_spec

    if not find_spec("torch"):
        raise EnvironmentLacks(
            "models named by their code need PyTorch: pip install 'wattkeeper[live]'"
        )


def load_callable(text: str) -> Callable[..., Any]:
    """A callable of the user: this imports the user's code.

    Modules are looked for in the working directory first.

    Raises:
        InputError: If there is none, or the import fails.
    """
    match = MODULE.fullmatch(text)
    if not match:
        raise InputError(f"found {text!r}; allowed: MODULE:CALLABLE, as my_models:resnet18")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        target: Any = import_module(match[1])
        for name in match[2].split("."):
            target = getattr(target, name)
    except Exception as error:  # whatever the user's code does
        raise InputError(f"cannot be found: {type(error).__name__}: {error}", text) from error
    if not callable(target):
        raise InputError(f"found {type(target).__name__}; allowed: a callable", text)
    found: Callable[..., Any] = target
    return found


def call(target: Callable[..., Any], text: str, *arguments: object) -> Any:
    """Call a callable of the user, which `text` names.

    Raises:
        InputError: If it fails.
    """
    try:
        return target(*arguments)
    except Exception as error:  # whatever the user's code does
        raise InputError(f"failed: {type(error).__name__}: {error}", text) from error


def load_module(text: str) -> nn.Module:
    """Call a callable of the user for a torch module: this imports and runs the user's code.

    Modules are looked for in the working directory first.

    Raises:
        InputError: If there is no such callable, it fails, or it returns no torch module.
        EnvironmentLacks: If torch is not installed.
    """
    check_torch()
    from torch import nn

    result = call(load_callable(text), text)
    if not isinstance(result, nn.Module):
        raise InputError(
            f"gave {type(result).__name__}; allowed: a callable that gives a torch module", text
        )
    return result


def example_inputs(text: str | None, *modules: nn.Module) -> tuple[torch.Tensor, ...]:
    """Inputs that modules can be traced with: of the shape that the user named, or derived.

    Their type is what the first layer of the first module takes.

    Args:
        text: A shape as 1,3,32,32, of each input, with a semicolon between; None derives them.
        modules: The modules.

    Raises:
        InputError: If the text is no list of shapes, or they cannot be derived.
    """
    import torch

    from wattkeeper.live.weight_transfer.program.example_inputs import derive_dtype, derive_inputs

    if text is None:
        return derive_inputs(*modules)
    if not SHAPES.fullmatch(text):
        raise InputError(f"found {text!r} as --input; allowed: the input's shape, as 1,3,32,32")
    shapes = [tuple(map(int, shape.split(","))) for shape in text.split(";")]
    dtype = derive_dtype(modules[0])
    return tuple(torch.zeros(shape, dtype=dtype) for shape in shapes)


def graph_of_module(model: nn.Module, text: str, input_shapes: str | None) -> Graph:
    """The graph of a module that the callable named `text` returned; see `graph_of`."""
    from wattkeeper.live.weight_transfer import model_graph

    return model_graph.graph_of(model, example_inputs(input_shapes, model), text.partition(":")[2])


def with_all_names(tensors: dict[str, RawTensor], model: nn.Module) -> dict[str, RawTensor]:
    """Tensors of a module under all their names; safetensors' files have one name of tied ones."""
    names: dict[int, list[str]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        names.setdefault(id(value), []).append(name)
    named = dict(tensors)
    for tied in names.values():
        stored = [name for name in tied if name in tensors]
        if stored:
            named = dict.fromkeys(tied, tensors[stored[0]]) | named
    return named


def graph_of(text: str, input_shapes: str | None) -> Graph:
    """The graph in a JSON or ONNX file, or of a module that is named by its code.

    Raises:
        InputError: If there is no such graph.
    """
    if MODULE.fullmatch(text) and not Path(text).exists():
        return graph_of_module(load_module(text), text, input_shapes)
    if text.endswith(".onnx"):
        from wattkeeper.live.weight_transfer.onnx_graph import graph_of_onnx

        return graph_of_onnx(text)
    from wattkeeper.traces.models.graphs import read_graph

    return read_graph(Path(text))
