"""Graphs of networks that are defined by a cell.

NAS-Bench-201 (Dong and Yang, ICLR '20, section 2): a cell has four nodes, each the sum of an
operation on each node before it; the edges are 0-1, 0-2, 1-2, 0-3, 1-3, 2-3. A 3 x 3 convolution
of 16 channels comes before five cells, a residual block that doubles the channels and halves the
image, five cells, another such block, and five cells; then batch norm, the mean over the image, and
a linear layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor

OPERATIONS: Final = ("none", "skip", "conv1x1", "conv3x3", "pool3x3")
"""In the order of the digits in which tables write an architecture."""

EDGES: Final = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
CLASSES: Final[Mapping[str, int]] = {"cifar10": 10, "cifar100": 100, "imagenet16-120": 120}
CHANNELS: Final = (16, 32, 64)
CELLS_OF_A_STAGE: Final = 5


class _Builder:
    """Nodes of a network, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: int, tensors: Sequence[Tensor] = (), stride: int = 0) -> int:
        attributes = (("stride", (stride, stride)), ("dilation", (1, 1)), ("groups", 1))
        kept = attributes if stride else ()
        self.nodes.append(Node(op, inputs, tuple(tensors), kept))
        return len(self.nodes) - 1

    def _tensor(self, role: str, *shape: int, trained: bool = True) -> Tensor:
        return Tensor(f"{len(self.nodes)}.{role}", role, shape, trained)

    def convolve(self, node: int, inputs: int, width: int, kernel: int, stride: int = 1) -> int:
        weight = self._tensor("weight", width, inputs, kernel, kernel)
        return self.add("conv2d", node, tensors=[weight], stride=stride)

    def norm(self, node: int, width: int) -> int:
        trained = [self._tensor(role, width) for role in ("weight", "bias")]
        seen = [self._tensor(r, width, trained=False) for r in ("running_mean", "running_var")]
        return self.add("batch_norm", node, tensors=[*trained, *seen])

    def convolution(self, node: int, inputs: int, width: int, kernel: int, stride: int = 1) -> int:
        """A rectified linear unit, a convolution and a batch norm."""
        rectified = self.add("relu", node)
        return self.norm(self.convolve(rectified, inputs, width, kernel, stride), width)

    def cell(self, node: int, width: int, operations: Sequence[str]) -> int:
        nodes = [node]
        for end in (1, 2, 3):
            terms = [
                self.operate(nodes[begin], width, operation)
                for (begin, to), operation in zip(EDGES, operations, strict=True)
                if to == end
            ]
            nodes.append(terms[0] if len(terms) == 1 else self.add("add", *terms))
        return nodes[-1]

    def operate(self, node: int, width: int, operation: str) -> int:
        if operation == "skip":
            return node
        if operation.startswith("conv"):
            return self.convolution(node, width, width, int(operation[-1]))
        return self.add("zeros_like" if operation == "none" else "avg_pool2d", node)

    def halve(self, node: int, inputs: int, width: int) -> int:
        """The residual block between stages."""
        first = self.convolution(node, inputs, width, 3, 2)
        branch = self.convolution(first, width, width, 3)
        return self.add(
            "add", self.convolve(self.add("avg_pool2d", node), inputs, width, 1), branch
        )

    def classify(self, node: int, width: int, classes: int) -> int:
        mean = self.add("adaptive_avg_pool2d", self.add("relu", self.norm(node, width)))
        tensors = [self._tensor("weight", classes, width), self._tensor("bias", classes)]
        return self.add("linear", mean, tensors=tensors)


def nas_bench_201(choices: Sequence[str], task: str) -> Graph:
    """The graph of a cell's network; `choices`: an operation for each edge."""
    build, inputs = _Builder(), CHANNELS[0]
    node = build.norm(build.convolve(SOURCE, 3, inputs, 3), inputs)
    for width in CHANNELS:
        if width != inputs:
            node = build.halve(node, inputs, width)
        for _ in range(CELLS_OF_A_STAGE):
            node = build.cell(node, width, choices)
        inputs = width
    build.classify(node, inputs, CLASSES[task])
    return Graph("".join(str(OPERATIONS.index(each)) for each in choices), tuple(build.nodes))


def is_cell(definition: object, space: Mapping[str, Sequence[str]], task: str) -> bool:
    """Whether a definition says how to make the graphs of a space's networks for a task."""
    return (
        isinstance(definition, str)
        and definition in CELLS
        and len(space) == len(EDGES)
        and all({*choices} <= {*OPERATIONS} for choices in space.values())
        and task in CLASSES
    )


CELLS: Final[Mapping[str, Callable[[Sequence[str], str], Graph]]] = {"nas-bench-201": nas_bench_201}
"""The definitions by name."""
