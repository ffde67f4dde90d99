"""Graphs for tests and benchmarks: networks of six families, and mutations of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor


class Spec(NamedTuple):
    """A convolutional network.

    Attributes:
        family: Kind of its blocks.
        stages: Width (channels) and number of blocks of each stage.
        kernel: Extent of its larger convolutions.
        act: Its activation.
        classes: Outputs of its head.
        channels: Inputs of its stem.
    """

    family: str
    stages: tuple[tuple[int, int], ...]
    kernel: int = 3
    act: str = "relu"
    classes: int = 10
    channels: int = 3


class Builder:
    """Appends nodes to a graph; each method returns the index of its last node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(
        self, op: str, *inputs: int, tensors: tuple[Tensor, ...] = (), **attributes: object
    ) -> int:
        self.nodes.append(Node(op, inputs, tensors, tuple(sorted(attributes.items()))))
        return len(self.nodes) - 1

    def conv(self, before: int, inputs: int, outputs: int, kernel: int, stride: int = 1) -> int:
        shape = (outputs, inputs, kernel, kernel)
        return self.add("conv2d", before, tensors=self.weights(shape), stride=(stride, stride))

    def depthwise(self, before: int, width: int, kernel: int, stride: int) -> int:
        weights = self.weights((width, 1, kernel, kernel))
        return self.add("conv2d", before, tensors=weights, stride=(stride, stride), depthwise=True)

    def norm(self, before: int, width: int) -> int:
        extra = [self.tensor("bias", (width,))]
        extra += [
            self.tensor(role, (width,), trained=False) for role in ("running_mean", "running_var")
        ]
        return self.add("batch_norm", before, tensors=(*self.weights((width,)), *extra))

    def weights(self, shape: tuple[int, ...]) -> tuple[Tensor]:
        return (self.tensor("weight", shape),)

    def tensor(self, role: str, shape: tuple[int, ...], trained: bool = True) -> Tensor:
        return Tensor(f"{len(self.nodes)}.{role}", role, shape, trained)


def build(spec: Spec, name: str = "") -> Graph:
    """The graph of a network."""
    to = Builder()
    width = spec.stages[0][0]
    at = to.add(spec.act, to.norm(to.conv(SOURCE, spec.channels, width, 3), width))
    for stage, (wanted, blocks) in enumerate(spec.stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            at, width = BLOCKS[spec.family](to, spec, at, width, wanted, stride)
    at = to.add("mean", at)
    to.add("linear", at, tensors=to.weights((spec.classes, width)))
    return Graph(name, tuple(to.nodes))


def _plain(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    at = to.norm(to.conv(at, width, wanted, spec.kernel, stride), wanted)
    return to.add(spec.act, at), wanted


def _join_shortcut(
    to: Builder, spec: Spec, at: int, body: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    if width != wanted or stride > 1:
        at = to.norm(to.conv(at, width, wanted, 1, stride), wanted)
    return to.add(spec.act, to.add("add", body, at)), wanted


def _basic(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    body, _ = _plain(to, spec, at, width, wanted, stride)
    body = to.norm(to.conv(body, wanted, wanted, spec.kernel), wanted)
    return _join_shortcut(to, spec, at, body, width, wanted, stride)


def _bottleneck(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    inner = max(wanted // 4, 1)
    body = to.add(spec.act, to.norm(to.conv(at, width, inner, 1), inner))
    body, _ = _plain(to, spec, body, inner, inner, stride)
    body = to.norm(to.conv(body, inner, wanted, 1), wanted)
    return _join_shortcut(to, spec, at, body, width, wanted, stride)


def _inverted(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    inner = 4 * width
    body = to.add(spec.act, to.norm(to.conv(at, width, inner, 1), inner))
    body = to.add(spec.act, to.norm(to.depthwise(body, inner, spec.kernel, stride), inner))
    body = to.norm(to.conv(body, inner, wanted, 1), wanted)
    return (to.add("add", at, body) if width == wanted and stride == 1 else body), wanted


def _dense(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    growth = max(wanted // 4, 1)
    body = to.add(spec.act, to.norm(at, width))
    body = to.conv(body, width, growth, spec.kernel)
    at = to.add("cat", at, body)
    return (to.add("avg_pool2d", at) if stride > 1 else at), width + growth


def _branched(
    to: Builder, spec: Spec, at: int, width: int, wanted: int, stride: int
) -> tuple[int, int]:
    half = max(wanted // 2, 1)
    one = to.add(spec.act, to.norm(to.conv(at, width, half, 1, stride), half))
    two, _ = _plain(to, spec, at, width, half, 1)
    two, _ = _plain(to, spec, two, half, half, stride)
    three = to.add("max_pool2d", at, stride=(stride, stride))
    three = to.norm(to.conv(three, width, half, 1), half)
    return to.add("cat", one, two, three), 3 * half


BLOCKS = {
    "plain": _plain,
    "basic": _basic,
    "bottleneck": _bottleneck,
    "inverted": _inverted,
    "dense": _dense,
    "branched": _branched,
}
NODES = {"plain": 3, "basic": 7, "bottleneck": 10, "inverted": 9, "dense": 4, "branched": 12}
"""Approximate number of nodes of a block."""


def draw(rng: np.random.Generator, nodes: int) -> Spec:
    """Draw a network with about this number of nodes."""
    family = str(rng.choice(list(BLOCKS)))
    stages = int(rng.integers(2, 5))
    blocks = max(nodes // NODES[family], stages)
    shares = rng.dirichlet(np.full(stages, 5.0)) * (blocks - stages)
    width = int(rng.choice([8, 12, 16, 24, 32, 48, 64]))
    return Spec(
        family,
        tuple((width << stage, 1 + round(share)) for stage, share in enumerate(shares)),
        int(rng.choice([3, 3, 3, 5])),
        str(rng.choice(["relu", "relu", "gelu"])),
    )


def mutate(spec: Spec, rng: np.random.Generator) -> Spec:
    """Make one stage wider, narrower, deeper or shallower."""
    at = int(rng.integers(len(spec.stages)))
    width, blocks = spec.stages[at]
    if rng.random() < 0.5:
        width = max(int(width * rng.choice([0.5, 0.75, 1.25, 1.5, 2])), 2)
    else:
        blocks = max(blocks + int(rng.choice([-2, -1, 1, 2, 3])), 1)
    return spec._replace(stages=(*spec.stages[:at], (width, blocks), *spec.stages[at + 1 :]))


def lineage(rng: np.random.Generator, models: int, nodes: int) -> list[Spec]:
    """Draw networks of which four in five are mutations of earlier ones, as in a search."""
    specs: list[Spec] = []
    for _ in range(models):
        if not specs or rng.random() < 0.2:
            specs.append(draw(rng, int(nodes * rng.uniform(0.4, 1.6))))
        else:
            specs.append(mutate(specs[int(rng.integers(len(specs)))], rng))
    return specs
