"""A search space of small convolutional and residual networks, in an order of mutation.

A network is a list of stages; each stage after the first halves the image, and each block is a
convolution, or a residual pair of them (He et al., CVPR '16). A search for architectures changes
one thing at a time (Real et al., AAAI '19): here each new network is a mutation of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import nn

MOST_STAGES: Final = 3
MOST_BLOCKS: Final = 3
"""Of a stage."""
WIDTHS: Final = (6, 8, 12, 16, 24, 32)
KERNELS: Final = (1, 3, 5)


class Block(NamedTuple):
    """A convolution, or two with a shortcut around them; each with batch norm and ReLU."""

    residual: bool
    kernel: int


class Stage(NamedTuple):
    """Blocks of one width; all but the first stage begin with stride 2."""

    width: int
    blocks: tuple[Block, ...]


Architecture = tuple[Stage, ...]


class Arrival(NamedTuple):
    """A network that the search tries.

    Attributes:
        name: Its place and architecture, such as `007-c3r3-16-c5-24`.
        architecture: What it is.
        mutated_from: Name of the network that it is a mutation of; None for the first.
        mutation: What was changed.
    """

    name: str
    architecture: Architecture
    mutated_from: str | None
    mutation: str


FIRST: Final[Architecture] = (Stage(8, (Block(False, 3),)), Stage(16, (Block(False, 3),)))


def describe(architecture: Architecture) -> str:
    """A short name: each stage's blocks, `c` or residual `r` with the kernel, and its width."""
    return "-".join(
        "".join(f"{'r' if block.residual else 'c'}{block.kernel}" for block in stage.blocks)
        + f"-{stage.width}"
        for stage in architecture
    )


def arrivals(count: int, rng: np.random.Generator) -> list[Arrival]:
    """Different networks; each but the first is a mutation of one drawn from those before it.

    Args:
        count: How many.
        rng: What they are drawn with.
    """
    found = [Arrival(f"000-{describe(FIRST)}", FIRST, None, "first")]
    known = {FIRST}
    while len(found) < count:
        parent = found[int(rng.integers(len(found)))]
        name = list(MUTATIONS)[int(rng.integers(len(MUTATIONS)))]
        child = MUTATIONS[name](parent.architecture, rng)
        if child is None or child in known:
            continue
        known.add(child)
        label = f"{len(found):03d}-{describe(child)}"
        found.append(Arrival(label, child, parent.name, name))
    return found


def _changed(architecture: Architecture, at: int, stage: Stage) -> Architecture:
    return (*architecture[:at], stage, *architecture[at + 1 :])


def _resize(architecture: Architecture, rng: np.random.Generator, step: int) -> Architecture | None:
    """Another width of a stage, `step` further on in `WIDTHS`."""
    at = int(rng.integers(len(architecture)))
    stage = architecture[at]
    place = WIDTHS.index(stage.width) + step
    if not 0 <= place < len(WIDTHS):
        return None
    return _changed(architecture, at, stage._replace(width=WIDTHS[place]))


def _add(
    architecture: Architecture, rng: np.random.Generator, residual: bool
) -> Architecture | None:
    """A block more, anywhere but at the very beginning of a stage."""
    at = int(rng.integers(len(architecture)))
    stage = architecture[at]
    if len(stage.blocks) == MOST_BLOCKS:
        return None
    place = int(rng.integers(1, len(stage.blocks) + 1))
    blocks = (*stage.blocks[:place], Block(residual, 3), *stage.blocks[place:])
    return _changed(architecture, at, stage._replace(blocks=blocks))


def _remove(architecture: Architecture, rng: np.random.Generator) -> Architecture | None:
    """A block less; the first one of a stage stays."""
    at = int(rng.integers(len(architecture)))
    stage = architecture[at]
    if len(stage.blocks) == 1:
        return None
    place = int(rng.integers(1, len(stage.blocks)))
    blocks = (*stage.blocks[:place], *stage.blocks[place + 1 :])
    return _changed(architecture, at, stage._replace(blocks=blocks))


def _kernel(architecture: Architecture, rng: np.random.Generator) -> Architecture:
    """Another kernel in a block."""
    at = int(rng.integers(len(architecture)))
    stage = architecture[at]
    place = int(rng.integers(len(stage.blocks)))
    block = stage.blocks[place]
    others = [kernel for kernel in KERNELS if kernel != block.kernel]
    changed = block._replace(kernel=others[int(rng.integers(len(others)))])
    blocks = (*stage.blocks[:place], changed, *stage.blocks[place + 1 :])
    return _changed(architecture, at, stage._replace(blocks=blocks))


def _stage(architecture: Architecture, rng: np.random.Generator) -> Architecture | None:
    """A stage more at the end, one size wider."""
    if len(architecture) == MOST_STAGES:
        return None
    place = min(WIDTHS.index(architecture[-1].width) + 1, len(WIDTHS) - 1)
    residual = bool(rng.integers(2))
    return (*architecture, Stage(WIDTHS[place], (Block(residual, 3),)))


MUTATIONS: Final[dict[str, Callable[[Architecture, np.random.Generator], Architecture | None]]] = {
    "widen": lambda of, rng: _resize(of, rng, 1),
    "widen more": lambda of, rng: _resize(of, rng, 2),
    "narrow": lambda of, rng: _resize(of, rng, -1),
    "deepen": lambda of, rng: _add(of, rng, residual=False),
    "add residual block": lambda of, rng: _add(of, rng, residual=True),
    "remove block": _remove,
    "change kernel": _kernel,
    "add stage": _stage,
}
"""What is drawn from, with equal chances; None: not possible there."""


def build(architecture: Architecture, channels: int, classes: int) -> nn.Module:
    """The network, with torch's usual initial weights.

    Args:
        architecture: What it is.
        channels: Of the images.
        classes: Of the task.
    """
    from torch import nn

    from wattkeeper.live.search.layers import block

    layers: list[nn.Module] = []
    width = channels
    for depth, stage in enumerate(architecture):
        for place, each in enumerate(stage.blocks):
            stride = 2 if depth and not place else 1
            layers.append(block(each.residual, width, stage.width, each.kernel, stride))
            width = stage.width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
