"""The networks of `benchmarks.warm_starts`, and the data that they are trained on."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from wattkeeper.live.search import dataset, layers
from wattkeeper.live.search.dataset import DatasetSplit, Digits
from wattkeeper.sim.search import architectures
from wattkeeper.sim.search.network_space import NetworkSpace

CLASSES: Final = 10
PACKAGES: Final = (
    "asyncio",
    "ctypes",
    "email",
    "http",
    "idlelib",
    "json",
    "lib2to3",
    "multiprocessing",
    "tkinter",
    "unittest",
)
WORDS: Final = 24
"""In a snippet."""
VOCABULARY: Final = 256
SNIPPETS: Final = 240
"""Of a package."""


class Encoder(NamedTuple):
    """A transformer encoder."""

    width: int
    depth: int
    ratio: int
    """Width of the hidden layer of a block over its own."""


class EncoderNetwork(NamedTuple):
    """An encoder of a family; see `CandidateNetwork`."""

    name: str
    architecture: Encoder
    mutated_from: str | None


Network = architectures.CandidateNetwork | EncoderNetwork


class Block(nn.Module):
    """Attention and two dense layers, each behind a norm (Vaswani et al., NeurIPS '17)."""

    def __init__(self, width: int, ratio: int) -> None:
        super().__init__()
        self.heads = width // 8
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (
            part(y).unflatten(2, (self.heads, 8)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        x = x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        mixed: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return mixed


class Transformer(nn.Module):
    """Patches of an image or words of a text to the logits of classes."""

    def __init__(self, encoder: Encoder, classes: int, *, is_text: bool) -> None:
        super().__init__()
        width = encoder.width
        self.is_text = is_text
        self.embed = nn.Embedding(VOCABULARY, width) if is_text else nn.Conv2d(1, width, 2, 2)
        self.position = nn.Parameter(torch.randn(1, WORDS if is_text else 16, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, encoder.ratio) for _ in range(encoder.depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) if self.is_text else self.embed(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.norm(self.blocks(x + self.position)).mean(1))
        return logits


WIDTHS, DEPTHS, RATIOS = (16, 24, 32, 48), (1, 2, 3, 4), (1, 2, 4)


def draw_encoders(count: int, rng: np.random.Generator) -> list[EncoderNetwork]:
    """Draw different encoders; each but the first is one step from a random earlier one."""
    first = Encoder(24, 2, 2)
    drawn: list[tuple[Encoder, str | None]] = [(first, None)]
    known = {first: "000-w24d2r2"}
    while len(drawn) < count:
        parent = drawn[int(rng.integers(len(drawn)))][0]
        field = ("width", "depth", "ratio")[int(rng.integers(3))]
        choices = {"width": WIDTHS, "depth": DEPTHS, "ratio": RATIOS}[field]
        place = choices.index(getattr(parent, field)) + (1, -1)[int(rng.integers(2))]
        if not 0 <= place < len(choices):
            continue
        child = parent._replace(**{field: choices[place]})
        if child in known:
            continue
        known[child] = f"{len(drawn):03d}-w{child.width}d{child.depth}r{child.ratio}"
        drawn.append((child, known[parent]))
    return [EncoderNetwork(known[encoder], encoder, origin) for encoder, origin in drawn]


SPACE: Final = NetworkSpace(2, (8, 16), (1, 2), ("plain", "residual"), (3, 5))
"""The 256 networks of the recorded table."""


def list_space() -> list[tuple[architectures.CandidateNetwork, tuple[str, ...]]]:
    """All networks of `SPACE`, with their choices; none is derived from another one."""
    listed = []
    for choices in itertools.product(*SPACE.space.choices):
        network = SPACE.network(choices)
        name = architectures.describe(network)
        listed.append((architectures.CandidateNetwork(name, network, None), choices))
    return listed


def load_snippets(rng: np.random.Generator) -> Digits:
    """Snippets of the standard library and their packages."""
    texts, labels = [], []
    for label, package in enumerate(PACKAGES):
        files = sorted((Path(os.__file__).parent / package).rglob("*.py"))
        text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
        codes = np.array([crc32(word.encode()) % VOCABULARY for word in re.findall(r"\w+", text)])
        for start in rng.integers(len(codes) - WORDS, size=SNIPPETS):
            texts.append(codes[start : start + WORDS])
            labels.append(label)
    order = rng.permutation(len(labels))
    ends = (np.cumsum([dataset.TRAIN_SHARE, dataset.VALIDATION_SHARE]) * len(order)).astype(int)
    return Digits(
        *(
            DatasetSplit(torch.tensor(np.array(texts)[rows]), torch.tensor(np.array(labels)[rows]))
            for rows in np.split(order, ends)
        )
    )


class Family(NamedTuple):
    """A space of networks, and the data that they are trained on.

    Attributes:
        draw: Draws so many different networks.
        build: The module of an architecture for a number of classes.
        load: Draws the split of the data.
        inputs: An example of two samples.
        parent_classes: Number of classes of the parents; with fewer, neighbouring ones are one.
    """

    draw: Callable[[int, np.random.Generator], Sequence[Network]]
    build: Callable[[Any, int], nn.Module]
    load: Callable[[np.random.Generator], Digits]
    inputs: Tensor
    parent_classes: int = CLASSES

    def parent_data(self, data: Digits) -> Digits:
        """The data with the classes of the parents."""
        each = CLASSES // self.parent_classes
        return Digits(*(part._replace(labels=part.labels // each) for part in data))


def _build_convolutions(architecture: Any, classes: int) -> nn.Module:
    return layers.build(architecture, 1, classes)


IMAGES: Final = torch.zeros(2, 1, 8, 8)
CONVOLUTIONS: Final = Family(
    architectures.draw_candidates, _build_convolutions, dataset.load, IMAGES
)

FAMILIES: Final = {
    "conv": CONVOLUTIONS,
    "heads": CONVOLUTIONS._replace(parent_classes=5),
    "space": CONVOLUTIONS._replace(draw=lambda *_: [each for each, _ in list_space()]),
    "vit": Family(
        draw_encoders,
        lambda encoder, classes: Transformer(encoder, classes, is_text=False),
        dataset.load,
        IMAGES,
    ),
    "text": Family(
        draw_encoders,
        lambda encoder, classes: Transformer(encoder, classes, is_text=True),
        load_snippets,
        torch.zeros(2, WORDS, dtype=torch.int64),
    ),
}
