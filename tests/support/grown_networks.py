"""Random convolutional networks with concatenations, and networks that grew from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

CHANNELS, SIDE, OUTPUTS = 4, 4, 3
"""Channels and pixels a side of the images, and units of the result."""

IMAGES = torch.randn(2, CHANNELS, SIDE, SIDE, generator=torch.Generator().manual_seed(1)).double()


class Step(NamedTuple):
    """One operation of a network.

    Attributes:
        kind: A key of `KINDS`.
        reads: Numbers of the values that it reads: 0 is the image, n the result of step n - 1.
        width: Channels of its result, where the kind does not decide them, in units of 4.
        shares: Number of the step of the same kind whose weights it uses; its own if None.
    """

    kind: str
    reads: tuple[int, ...]
    width: int = 2
    shares: int | None = None


class Kind(NamedTuple):
    """What a step does: its layers for the channels that it reads and writes, and its forward."""

    layers: Callable[[int, int], list[nn.Module]]
    forward: Callable[[Any, Tensor], Tensor]
    channels: str = "kept"


class Attention(nn.Module):
    """Attention among the positions of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = x.flatten(2).mT
        result: Tensor = self.inner(y, y, y)[0].mT.reshape(x.shape)
        return result


def shuffle(x: Tensor, groups: int = 2) -> Tensor:
    """Interleave groups of channels."""
    halves: Tensor = x.unflatten(1, (groups, -1))
    return halves.transpose(1, 2).flatten(1, 2)


def squeeze(width: int, gate: nn.Module) -> list[nn.Module]:
    return [nn.Conv2d(width, width // 2, 1), nn.Conv2d(width // 2, width, 1), gate]


def excite(m: Any, x: Tensor) -> Tensor:
    scale: Tensor = m[2](m[1](m[0](x.mean((2, 3), keepdim=True)).relu()))
    return x * scale


def plain(how: Callable[[Tensor], Tensor]) -> Kind:
    return Kind(lambda i, o: [], lambda m, x: how(x))


def layer(make: Callable[[int, int], nn.Module], channels: str = "kept") -> Kind:
    return Kind(lambda i, o: [make(i, o)], lambda m, x: m[0](x), channels)


KINDS: dict[str, Kind] = {
    "conv": layer(lambda i, o: nn.Conv2d(i, o, 3, padding=1), "chosen"),
    "conv1": layer(lambda i, o: nn.Conv2d(i, o, 1), "chosen"),
    "grouped": layer(lambda i, o: nn.Conv2d(i, o, 3, padding=1, groups=2), "chosen"),
    "depthwise": layer(lambda i, o: nn.Conv2d(i, i, 3, padding=1, groups=i)),
    "upscale": Kind(
        lambda i, o: [nn.Conv2d(i, 4 * o, 1)],
        lambda m, x: F.max_pool2d(F.pixel_shuffle(m[0](x), 2), 2),
        "chosen",
    ),
    "transposed": Kind(
        lambda i, o: [nn.ConvTranspose2d(i, o, 2, 2)],
        lambda m, x: F.avg_pool2d(m[0](x), 2),
        "chosen",
    ),
    "batch norm": layer(lambda i, o: nn.BatchNorm2d(i)),
    "group norm": layer(lambda i, o: nn.GroupNorm(2, i)),
    "norm of all": layer(lambda i, o: nn.GroupNorm(1, i)),
    "instance norm": layer(lambda i, o: nn.InstanceNorm2d(i, affine=True)),
    "tracked norm": layer(lambda i, o: nn.InstanceNorm2d(i, affine=True, track_running_stats=True)),
    "layer norm": Kind(
        lambda i, o: [nn.LayerNorm(i)], lambda m, x: m[0](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    ),
    "response norm": plain(lambda x: F.local_response_norm(x, 3)),
    "unit length": plain(lambda x: F.normalize(x, dim=1)),
    "attention": layer(lambda i, o: Attention(i)),
    "gate": Kind(lambda i, o: squeeze(i, nn.Sigmoid()), excite),
    "hard gate": Kind(lambda i, o: squeeze(i, nn.Hardsigmoid()), excite),
    "prelu": layer(lambda i, o: nn.PReLU(i)),
    "relu": plain(lambda x: x.relu()),
    "in place": plain(lambda x: (x + 0).relu_()),
    "hardswish": plain(F.hardswish),
    "sigmoid": plain(torch.sigmoid),
    "exp": plain(lambda x: (-x.abs()).exp()),
    "shifted": plain(lambda x: x + 1),
    "halved": plain(lambda x: x / 2),
    "softmax": plain(lambda x: x.softmax(1)),
    "shuffle": plain(shuffle),
    "swapped": plain(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
    "flipped": plain(lambda x: x.flip(1)),
    "rolled": plain(lambda x: x.roll(1, 1)),
    "even": Kind(lambda i, o: [], lambda m, x: torch.cat([x[:, ::2], x[:, ::2]], 1)),
    "running sum": plain(lambda x: x.cumsum(1)),
    "pooled": plain(lambda x: x * F.adaptive_avg_pool2d(x, 1)),
    "max pool": plain(lambda x: F.max_pool2d(x, 3, 1, 1)),
    "spatial": plain(lambda x: x * x.mean(1, keepdim=True)),
    "strongest": plain(lambda x: x * x.amax(1, keepdim=True).sigmoid()),
    "total": plain(lambda x: x + x.sum(1, keepdim=True)),
    "padded": plain(lambda x: torch.cat([x, torch.zeros_like(x)], 1)[:, : x.shape[1]]),
    "glu": Kind(lambda i, o: [nn.Conv2d(i, 2 * o, 1)], lambda m, x: F.glu(m[0](x), 1), "chosen"),
}
"""Steps that read one value."""

JOINS = ("cat", "add", "times", "least")
"""Steps that read several values."""


class Network(nn.Module):
    """Runs the steps; widths are multiplied by `factor`, and summands have equal widths."""

    def __init__(self, plan: list[Step], factor: float, head: str) -> None:
        super().__init__()
        self.plan, self.head_kind = plan, head
        widths = [CHANNELS]
        layers: list[nn.ModuleList] = []
        self.adapters = nn.ModuleDict()
        for number, step in enumerate(plan):
            inputs = [widths[read] for read in step.reads]
            chosen = int(4 * step.width * factor)
            if step.kind in KINDS:
                kind = KINDS[step.kind]
                outputs = chosen if kind.channels == "chosen" else inputs[0]
                layers.append(nn.ModuleList(kind.layers(inputs[0], outputs)))
                other = None if step.shares is None else layers[step.shares]
                if other is not None and shapes(other) == shapes(layers[-1]):
                    layers[-1] = other
            else:
                outputs = sum(inputs) if step.kind == "cat" else inputs[0]
                layers.append(nn.ModuleList())
                for place, width in enumerate(inputs):
                    if step.kind != "cat" and width != outputs:
                        self.adapters[f"{number}-{place}"] = nn.Conv2d(width, outputs, 1)
            widths.append(outputs)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(widths[-1] * (SIDE * SIDE if head == "flat" else 1), OUTPUTS)

    def forward(self, x: Tensor) -> Any:
        values = [x]
        for number, step in enumerate(self.plan):
            reads = [values[read] for read in step.reads]
            if step.kind in KINDS:
                values.append(KINDS[step.kind].forward(self.layers[number], reads[0]))
                continue
            reads = [
                self.adapters[f"{number}-{place}"](value)
                if f"{number}-{place}" in self.adapters
                else value
                for place, value in enumerate(reads)
            ]
            values.append(join(step.kind, reads))
        last = values[-1]
        if self.head_kind == "flat":
            return self.head(last.flatten(1))
        if self.head_kind == "bare":
            return last.mean((2, 3))
        result = self.head(last.mean((2, 3)))
        return (result, values[1]) if self.head_kind == "two" else result


def shapes(layers: nn.ModuleList) -> list[Any]:
    return [tensor.shape for tensor in layers.state_dict().values()]


def join(kind: str, values: list[Tensor]) -> Tensor:
    if kind == "cat":
        return torch.cat(values, 1)
    joins: dict[str, Any] = {"add": torch.add, "times": torch.mul, "least": torch.minimum}
    return reduce(joins[kind], values)


HEADS = ("mean", "mean", "mean", "flat", "two", "bare")


def draw_plan(rng: np.random.Generator) -> list[Step]:
    """A random plan, with dense blocks and joins more often than chance would have them."""
    plan = [Step("conv", (0,), int(rng.integers(1, 4)))]
    for _ in range(int(rng.integers(1, 7))):
        plan += draw_steps(plan, rng)
    return plan


def draw_steps(plan: list[Step], rng: np.random.Generator) -> list[Step]:
    """Steps to append to a plan."""
    last = len(plan)
    how = rng.random()
    if how < 0.25:
        kind = str(rng.choice(JOINS, p=[0.6, 0.2, 0.1, 0.1]))
        reads = [int(value) for value in rng.choice(last + 1, int(rng.integers(1, 4)))]
        return [Step(kind, (*reads, last) if rng.random() < 0.5 else (last, *reads))]
    if how < 0.45:  # a layer of a dense block
        kind = str(rng.choice(["conv", "conv1", "grouped"]))
        return [Step(kind, (last,), int(rng.integers(1, 3))), Step("cat", (last, last + 1))]
    kind = str(rng.choice(["conv", "conv1"]) if how < 0.65 else rng.choice(list(KINDS)))
    equal = [number for number, step in enumerate(plan) if step.kind == kind]
    shares = int(rng.choice(equal)) if equal and rng.random() < 0.3 else None
    return [Step(kind, (last,), int(rng.integers(1, 4)), shares)]


def grow_plan(plan: list[Step], rng: np.random.Generator) -> list[Step]:
    """The plan with one to three changes: added layers and branches, or other orders."""
    for _ in range(int(rng.integers(1, 4))):
        plan = change_plan(plan, rng)
    return plan


def change_plan(plan: list[Step], rng: np.random.Generator) -> list[Step]:
    how = str(rng.choice(["deeper", "residual", "dense", "dense", "dense", "swap", "other"]))
    value = int(rng.integers(1, len(plan) + 1))
    if how == "swap":
        return [
            step._replace(reads=step.reads[::-1]) if number == value - 1 else step
            for number, step in enumerate(plan)
        ]
    kind = str(rng.choice(["conv", "conv1"]) if rng.random() < 0.7 else rng.choice(list(KINDS)))
    if how == "other":
        step = plan[value - 1]
        return (
            plan
            if step.kind not in KINDS
            else [
                other._replace(kind=kind) if number == value - 1 else other
                for number, other in enumerate(plan)
            ]
        )
    width = plan[value - 1].width
    if how == "deeper":
        return insert(plan, value, [Step(kind, (value,), width)], everywhere=True)
    if how == "residual":
        branch = [Step(kind, (value,), width), Step("conv", (value + 1,), width)]
        return insert(plan, value, [*branch, Step("add", (value, value + 2))], everywhere=True)
    new = [Step(kind, (value,), width), Step("conv1", (value + 1,), int(rng.integers(1, 3)))]
    cats = [n for n, step in enumerate(plan) if step.kind == "cat" and n >= value]
    if not cats:
        return insert(plan, value, [*new, Step("cat", (value, value + 2))], everywhere=True)
    cat = int(rng.choice(cats))
    plan = insert(plan, value, new, everywhere=False)
    at = cat + len(new)
    reads = list(plan[at].reads)
    reads.insert(int(rng.integers(len(reads) + 1)), value + 2)
    return [
        step._replace(reads=tuple(reads)) if number == at else step
        for number, step in enumerate(plan)
    ]


def insert(plan: list[Step], value: int, new: list[Step], *, everywhere: bool) -> list[Step]:
    """Insert steps after a value; later steps read the last of them instead, if `everywhere`."""

    def move(read: int) -> int:
        if read < value or (read == value and not everywhere):
            return read
        return read + len(new)

    later = [
        step._replace(
            reads=tuple(map(move, step.reads)),
            shares=None if step.shares is None else step.shares + len(new) * (step.shares >= value),
        )
        for step in plan[value:]
    ]
    return [*plan[:value], *new, *later]
