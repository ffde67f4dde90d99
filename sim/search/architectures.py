"""A search space of small convolutional and residual networks, explored by mutation.

A network is a list of stages. Each stage after the first halves the image, and each block is a
convolution or a residual pair of them (He et al., CVPR '16). Each new candidate changes one
property of an earlier one (Real et al., AAAI '19).
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.errors import InputError

MOST_STAGES: Final = 3
MOST_BLOCKS: Final = 3
"""In a stage."""
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


class CandidateNetwork(NamedTuple):
    """A network that the search trains.

    Attributes:
        name: Its number and architecture, such as `007-c3r3-16-c5-24`.
        architecture: Its stages.
        mutated_from: Name of the candidate that it is a mutation of; None for the first.
    """

    name: str
    architecture: Architecture
    mutated_from: str | None


_STAGE: Final = re.compile(r"((?:[cr]\d)+)-(\d+)")

FIRST: Final[Architecture] = (Stage(8, (Block(False, 3),)), Stage(16, (Block(False, 3),)))


def describe(architecture: Architecture) -> str:
    """A short name: per stage the blocks, `c` or residual `r` with the kernel, and the width."""
    return "-".join(
        "".join(f"{'r' if block.residual else 'c'}{block.kernel}" for block in stage.blocks)
        + f"-{stage.width}"
        for stage in architecture
    )


def parse(text: str) -> Architecture:
    """The architecture that `describe` wrote.

    Raises:
        InputError: If the text is none.
    """
    stages = []
    for blocks, width in _STAGE.findall(text):
        pairs = zip(blocks[::2], blocks[1::2], strict=True)
        stages.append(Stage(int(width), tuple(Block(kind == "r", int(k)) for kind, k in pairs)))
    architecture = tuple(stages)
    if describe(architecture) != text or not text:
        raise InputError(
            f"{text!r} is no architecture; one is written as stages of blocks and a width, such as "
            "c3r3-16-c5-24: c a convolution and r a residual block, each with its kernel"
        )
    return architecture


def count_parameters(architecture: Architecture, channels: int = 1, classes: int = 10) -> int:
    """Number of trained elements of the network for images of some channels."""
    total, inputs = 0, channels
    for index, stage in enumerate(architecture):
        width = stage.width
        for place, block in enumerate(stage.blocks):
            area = block.kernel**2
            total += inputs * width * area + 2 * width
            if block.residual:
                total += width * width * area + 2 * width
                if inputs != width or (index and not place):
                    total += inputs * width + 2 * width
            inputs = width
    return total + inputs * classes + classes


def draw_candidates(count: int, rng: np.random.Generator) -> list[CandidateNetwork]:
    """Draw different networks; each but the first is a mutation of a random earlier one."""
    candidates = [CandidateNetwork(f"000-{describe(FIRST)}", FIRST, None)]
    known = {FIRST}
    while len(candidates) < count:
        parent = candidates[int(rng.integers(len(candidates)))]
        child = MUTATIONS[int(rng.integers(len(MUTATIONS)))](parent.architecture, rng)
        if child is None or child in known:
            continue
        known.add(child)
        name = f"{len(candidates):03d}-{describe(child)}"
        candidates.append(CandidateNetwork(name, child, parent.name))
    return candidates


def _draw_stage(architecture: Architecture, rng: np.random.Generator) -> tuple[int, Stage]:
    index = int(rng.integers(len(architecture)))
    return index, architecture[index]


def replace_stage(architecture: Architecture, index: int, stage: Stage) -> Architecture:
    """The network with another stage in one place."""
    return (*architecture[:index], stage, *architecture[index + 1 :])


def _change_width(
    architecture: Architecture, rng: np.random.Generator, steps: int
) -> Architecture | None:
    """Move the width of a stage by some steps in `WIDTHS`."""
    index, stage = _draw_stage(architecture, rng)
    width_index = WIDTHS.index(stage.width) + steps
    if not 0 <= width_index < len(WIDTHS):
        return None
    return replace_stage(architecture, index, stage._replace(width=WIDTHS[width_index]))


def _add_block(
    architecture: Architecture, rng: np.random.Generator, residual: bool
) -> Architecture | None:
    """Insert a block anywhere but at the start of a stage."""
    index, stage = _draw_stage(architecture, rng)
    if len(stage.blocks) == MOST_BLOCKS:
        return None
    start = int(rng.integers(1, len(stage.blocks) + 1))
    blocks = (*stage.blocks[:start], Block(residual, 3), *stage.blocks[start:])
    return replace_stage(architecture, index, stage._replace(blocks=blocks))


def _remove_block(architecture: Architecture, rng: np.random.Generator) -> Architecture | None:
    """Remove a block other than the first of its stage."""
    index, stage = _draw_stage(architecture, rng)
    if len(stage.blocks) == 1:
        return None
    removed = int(rng.integers(1, len(stage.blocks)))
    blocks = (*stage.blocks[:removed], *stage.blocks[removed + 1 :])
    return replace_stage(architecture, index, stage._replace(blocks=blocks))


def _change_kernel(architecture: Architecture, rng: np.random.Generator) -> Architecture:
    index, stage = _draw_stage(architecture, rng)
    changed = int(rng.integers(len(stage.blocks)))
    block = stage.blocks[changed]
    others = [kernel for kernel in KERNELS if kernel != block.kernel]
    block = block._replace(kernel=others[int(rng.integers(len(others)))])
    blocks = (*stage.blocks[:changed], block, *stage.blocks[changed + 1 :])
    return replace_stage(architecture, index, stage._replace(blocks=blocks))


def append_stage(architecture: Architecture, *, residual: bool) -> Architecture:
    """The network with a further stage of one block, one step wider than the last, if there is."""
    place = min(WIDTHS.index(architecture[-1].width) + 1, len(WIDTHS) - 1)
    return (*architecture, Stage(WIDTHS[place], (Block(residual, 3),)))


def _add_stage(architecture: Architecture, rng: np.random.Generator) -> Architecture | None:
    """Append a stage."""
    if len(architecture) == MOST_STAGES:
        return None
    return append_stage(architecture, residual=bool(rng.integers(2)))


MUTATIONS: Final[tuple[Callable[[Architecture, np.random.Generator], Architecture | None], ...]] = (
    lambda parent, rng: _change_width(parent, rng, 1),
    lambda parent, rng: _change_width(parent, rng, 2),
    lambda parent, rng: _change_width(parent, rng, -1),
    lambda parent, rng: _add_block(parent, rng, residual=False),
    lambda parent, rng: _add_block(parent, rng, residual=True),
    _remove_block,
    _change_kernel,
    _add_stage,
)
"""Drawn with equal probabilities; a mutation returns None where it is not possible."""
