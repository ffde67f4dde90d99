"""Graphs of models: operators, their tensors, and the edges between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Ints

A = TypeVar("A", bound=tuple[Ints, ...])

SOURCE = -1
"""Predecessor of a node that has none."""


class Tensor(NamedTuple):
    """A parameter or buffer of a node.

    Attributes:
        name: Full name as in the model's state; empty if unknown.
        role: Role in its node: `weight`, `bias`, `running_mean`, `weight_hh_l0`, ...
        shape: Shape.
        trained: Whether it is a parameter, not a buffer.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    trained: bool = True

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Node(NamedTuple):
    """One operator.

    Attributes:
        op: Name of the operator.
        inputs: Positions of its predecessors, in the order of its arguments; `SOURCE` if none.
        tensors: Its tensors, the weight first.
        attributes: Attributes that must be equal for the weights of one node to fit another.
    """

    op: str
    inputs: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """A model as a directed acyclic graph, its nodes in topological order.

    Attributes:
        name: The model's name; no part of the digest.
        nodes: Its operators.
    """

    name: str
    nodes: tuple[Node, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def starts(self) -> Ints:
        """Where each node's predecessors begin in `inputs`, shape (nodes + 1,)."""
        return np.cumsum([0, *(len(node.inputs) for node in self.nodes)], dtype=np.int64)

    @cached_property
    def inputs(self) -> Ints:
        """The predecessors of all nodes, node after node, shape (edges,)."""
        return np.array([place for node in self.nodes for place in node.inputs], dtype=np.int64)

    @cached_property
    def parameters(self) -> Ints:
        """Trained elements by node, shape (nodes,)."""
        return np.array(
            [sum(tensor.size for tensor in node.tensors if tensor.trained) for node in self.nodes],
            dtype=np.int64,
        )

    def arrays(self, layout: type[A], make: Callable[[Graph], A]) -> A:
        """The graph as a matcher takes it, computed by `make` once for each layout."""
        if layout not in self.known_arrays:
            self.known_arrays[layout] = make(self)
        arrays: A = self.known_arrays[layout]
        return arrays

    @cached_property
    def known_arrays(self) -> dict[type[Any], Any]:
        """The arrays that were computed so far, by layout."""
        return {}

    @cached_property
    def digest(self) -> str:
        """Hash of the content: equal for equal architectures with equal names of tensors."""
        return digest_of(self.to_json())

    def to_json(self) -> str:
        """The nodes as canonical JSON, which `from_json` parses."""
        return json.dumps(self.nodes, separators=(",", ":"))

    @classmethod
    def from_json(cls, name: str, text: str) -> Graph:
        """Parse what `to_json` wrote."""
        return cls(name, tuple(_node(*values) for values in json.loads(text)))


def digest_of(text: str) -> str:
    """Hash of a graph's canonical JSON; 32 hexadecimal digits."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _node(
    op: str, inputs: Iterable[int], tensors: Iterable[list[Any]], attributes: Iterable[list[Any]]
) -> Node:
    return Node(
        op,
        tuple(inputs),
        tuple(Tensor(name, role, tuple(shape), trained) for name, role, shape, trained in tensors),
        tuple((key, _freeze(value)) for key, value in attributes),
    )


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
