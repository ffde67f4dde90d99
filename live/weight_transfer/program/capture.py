"""Captures the operators of a module's forward pass as a graph, without a tracer.

In inference mode, a dispatch mode sees the same operators as `torch.export`, at a fraction of its
cost. It sees only what is dispatched: a tensor that is neither an input, part of the state nor a
captured result has no origin, and such a module is left to `torch.export`.
"""

import operator
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from typing_extensions import override


class TracedGraph(NamedTuple):
    """A module as a graph of ATen's operators; the results are in `meta["val"]` of the nodes.

    Attributes:
        graph: The operators.
        targets: By name of a placeholder, the parameter, buffer or constant; None for an input.
    """

    graph: fx.Graph
    targets: dict[str, str | None]


class NotCapturable(Exception):
    """A module whose forward pass is more than operators on its inputs and state."""


def capture(module: nn.Module, inputs: Sequence[Tensor]) -> TracedGraph:
    """Run a module on the meta device in eval mode, and capture its operators.

    Raises:
        NotCapturable: If a tensor has no captured origin, or a result is no tensor.
        Exception: Whatever the module raises.
    """
    capturing = _Capture()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        capturing.add_placeholder(tensor, name)
    for tensor in inputs:
        capturing.add_placeholder(tensor, None)
    with (
        _plain_attention(),
        warnings.catch_warnings(),
        torch.inference_mode(),
        torch.device("meta"),
        capturing,
    ):
        warnings.simplefilter("ignore")
        leaves, _ = tree_flatten(module(*inputs))
    for leaf in leaves:
        if not (leaf is None or isinstance(leaf, Tensor | bool | int | float | str)):
            raise NotCapturable(f"a result of {type(leaf).__name__}")
    results = [capturing.find(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
    capturing.graph.output(tuple(results))
    return TracedGraph(capturing.graph, capturing.targets)


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Let attention show its operators; in inference mode it is one fused operator otherwise."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Capture(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds a node for each operator that is called, and finds tensors by their identity."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.targets: dict[str, str | None] = {}
        self._nodes: dict[int, fx.Node] = {}
        self._held: list[Tensor] = []  # or another tensor might take the place of one that is gone

    def add_placeholder(self, tensor: Tensor, target: str | None) -> None:
        node = self.graph.placeholder(f"input_{len(self.targets)}")
        self.targets[node.name] = target
        self._track(tensor, node)

    def find(self, value: Any) -> Any:
        """The node of a tensor; anything else is returned as it is."""
        if not isinstance(value, Tensor):
            return value
        node = self._nodes.get(id(value))
        if node is None:
            raise NotCapturable("a tensor without a captured origin")
        return node

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node_args, node_kwargs = tree_map(self.find, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:  # also by factories, in inference mode
            self._remember(result, node_args[0])
        else:
            self._track(result, self.graph.call_function(func, node_args, node_kwargs))
        return result

    def _track(self, result: Any, node: fx.Node) -> None:
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self._remember(result, node)
        elif isinstance(result, list | tuple):
            for index, item in enumerate(result):
                self._track(item, self.graph.call_function(operator.getitem, (node, index)))

    def _remember(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        self._held.append(tensor)
