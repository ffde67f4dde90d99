"""Morphisms of networks and distances between them, as AutoKeras searched (KDD '19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from wattkeeper.sim.search.architectures import (
    KERNELS,
    MOST_BLOCKS,
    MOST_STAGES,
    WIDTHS,
    Architecture,
    Block,
    append_stage,
    replace_stage,
)

Convolution = tuple[int, int, int]
"""Width, kernel and stride."""

T = TypeVar("T")


def children(architecture: Architecture) -> Iterator[Architecture]:
    """The networks one morphism away, in a fixed order; some appear twice."""
    for steps in (1, 2, -1):
        for index, stage in enumerate(architecture):
            place = WIDTHS.index(stage.width) + steps
            if 0 <= place < len(WIDTHS):
                yield replace_stage(architecture, index, stage._replace(width=WIDTHS[place]))
    for residual in (False, True):
        for index, stage in enumerate(architecture):
            for place in range(1, len(stage.blocks) + 1 if len(stage.blocks) < MOST_BLOCKS else 1):
                yield _with_blocks(architecture, index, place, place, (Block(residual, 3),))
    for index, stage in enumerate(architecture):
        for place in range(1, len(stage.blocks)):
            yield _with_blocks(architecture, index, place, place + 1, ())
    for index, stage in enumerate(architecture):
        for place, block in enumerate(stage.blocks):
            for kernel in KERNELS:
                if kernel != block.kernel:
                    changed = (block._replace(kernel=kernel),)
                    yield _with_blocks(architecture, index, place, place + 1, changed)
    if len(architecture) < MOST_STAGES:
        for residual in (False, True):
            yield append_stage(architecture, residual=residual)


def _with_blocks(
    architecture: Architecture, index: int, start: int, end: int, blocks: tuple[Block, ...]
) -> Architecture:
    stage = architecture[index]
    changed = (*stage.blocks[:start], *blocks, *stage.blocks[end:])
    return replace_stage(architecture, index, stage._replace(blocks=changed))


class _Chain(NamedTuple):
    """A network as a list of convolutions, and shortcuts as pairs of positions in it."""

    convolutions: tuple[Convolution, ...]
    shortcuts: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1 << 15)
def _chain(architecture: Architecture) -> _Chain:
    convolutions: list[Convolution] = []
    shortcuts = []
    for index, stage in enumerate(architecture):
        for place, block in enumerate(stage.blocks):
            stride = 2 if index and not place else 1
            if block.residual:
                shortcuts.append((len(convolutions), len(convolutions) + 2))
            convolutions.append((stage.width, block.kernel, stride))
            if block.residual:
                convolutions.append((stage.width, block.kernel, 1))
    return _Chain(tuple(convolutions), tuple(shortcuts))


@lru_cache(maxsize=1 << 20)
def distance(one: Architecture, other: Architecture) -> float:
    """The edit distance of the convolutions plus the distance of the shortcuts."""
    first, second = _chain(one), _chain(other)
    return _edit_distance(first.convolutions, second.convolutions) + _shortcut_distance(
        first.shortcuts, second.shortcuts
    )


@lru_cache(maxsize=1 << 14)
def _substitution(one: Convolution, other: Convolution) -> float:
    return sum(abs(a - b) / max(a, b) for a, b in zip(one, other, strict=True)) / len(one)


def _edit_distance(one: Sequence[Convolution], other: Sequence[Convolution]) -> float:
    row = [float(place) for place in range(len(other) + 1)]
    for count, left in enumerate(one, 1):
        diagonal, row[0] = row[0], float(count)
        for place, right in enumerate(other, 1):
            best = min(diagonal + _substitution(left, right), row[place] + 1, row[place - 1] + 1)
            diagonal, row[place] = row[place], best
    return row[-1]


@lru_cache(maxsize=1 << 16)
def _shortcut_distance(
    one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]
) -> float:
    short, long = sorted((one, other), key=len)
    return _assign(short, long, _shortcut_cost) + len(long) - len(short)


def _shortcut_cost(one: tuple[int, int], other: tuple[int, int]) -> float:
    (first, end), (first_, end_) = one, other
    length, length_ = end - first, end_ - first_
    difference = abs(first - first_) + abs(length - length_)
    return difference / (max(first, first_) + max(length, length_))


def _assign(short: Sequence[T], long: Sequence[T], cost: Callable[[T, T], float]) -> float:
    """Least cost of giving each of the short sequence one of the long one, none twice.

    A dynamic program over the sets of those that are taken, of which there are few.
    """
    costs = {0: 0.0}
    for each in short:
        following: dict[int, float] = {}
        for taken, so_far in costs.items():
            for place, other in enumerate(long):
                if not taken >> place & 1:
                    key = taken | 1 << place
                    total = so_far + cost(each, other)
                    if total < following.get(key, float("inf")):
                        following[key] = total
        costs = following
    return min(costs.values())
