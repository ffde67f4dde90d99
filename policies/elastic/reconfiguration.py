"""Pipelines after a loss of nodes, and what is copied to form them (Oobleck, section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.errors import InputError, PolicyError

Pipelines = tuple[tuple[int, ...], ...]
"""Ranks of each pipeline, in the order of its stages; a rank is a node of the job."""


class LayerMove(NamedTuple):
    """A layer that a rank does not hold yet.

    Attributes:
        layer: Its number.
        source: The rank that it is copied from; None: from storage.
        target: The rank that will hold it.
    """

    layer: int
    source: int | None
    target: int


class LayerTransition(NamedTuple):
    """What changes hands at a reconfiguration.

    Attributes:
        moves: By target, in the order of the pipelines, and layer.
        copied_bytes: From other ranks.
    """

    moves: tuple[LayerMove, ...]
    copied_bytes: int


def reconfigure(pipelines: Sequence[Sequence[int]], lost: Collection[int], least: int) -> Pipelines:
    """Ranks of the pipelines after a loss, by length, ascending.

    A pipeline that is too short borrows ranks of the longest one; if that has none to spare, it is
    merged with others. Only where all ranks together are too few is a pipeline too short, the only
    one.

    Args:
        pipelines: Ranks of each.
        lost: Ranks that are gone.
        least: Fewest ranks of a pipeline.

    Raises:
        InputError: If a rank is in two places, a lost one in none, or `least` is below 1.
    """
    _check(pipelines, lost, least)
    kept = [[rank for rank in pipeline if rank not in lost] for pipeline in pipelines]
    kept = [pipeline for pipeline in kept if pipeline]
    for pipeline in kept:
        _borrow(pipeline, kept, least)
    short = [pipeline for pipeline in kept if len(pipeline) < least]
    long = [pipeline for pipeline in kept if len(pipeline) >= least]
    while short:
        merged = short.pop(0)
        while len(merged) < least and (short or long):
            merged += (short or long).pop(0)
        long.append(merged)
    return tuple(tuple(pipeline) for pipeline in sorted(long, key=len))


def assign_layers(
    pipelines: Sequence[Sequence[int]], templates: Sequence[PipelineTemplate]
) -> dict[int, range]:
    """The layers of each rank, by the template of as many nodes as its pipeline has.

    Raises:
        PolicyError: If there is no such template.
    """
    by_nodes = {template.nodes: template.layers_by_node for template in templates}
    layers: dict[int, range] = {}
    for pipeline in pipelines:
        if len(pipeline) not in by_nodes:
            sizes = ", ".join(map(str, sorted(by_nodes))) or "none"
            raise PolicyError(
                f"a pipeline has {len(pipeline)} nodes; there are templates for: {sizes}"
            )
        layers.update(zip(pipeline, by_nodes[len(pipeline)], strict=True))
    return layers


def plan_transition(
    before: Mapping[int, range],
    after: Mapping[int, range],
    lost: Collection[int],
    layer_bytes: Sequence[int],
) -> LayerTransition:
    """What ranks copy to hold their new layers.

    A layer comes from the first rank that held it, in the order of `before`, and is not lost; from
    storage if all are lost.

    Args:
        before: Layers of each rank before the loss.
        after: Layers of each rank after it.
        lost: Ranks that are gone.
        layer_bytes: Of weights and optimizer state, by layer.

    Raises:
        InputError: If a lost rank has layers after the loss, or a layer has no size.
    """
    for rank in after:
        if rank in lost:
            raise InputError(f"rank {rank} is lost, and has layers after the loss")
    for layers in (*before.values(), *after.values()):
        if layers and not (min(layers) >= 0 and max(layers) < len(layer_bytes)):
            raise InputError(
                f"a rank holds layers {min(layers)} to {max(layers)}; there are sizes of "
                f"{len(layer_bytes)} layers"
            )
    holders: dict[int, int] = {}
    for rank, layers in before.items():
        if rank not in lost:
            for layer in layers:
                holders.setdefault(layer, rank)
    moves = tuple(
        LayerMove(layer, holders.get(layer), rank)
        for rank, layers in after.items()
        for layer in layers
        if layer not in before.get(rank, ())
    )
    copied_bytes = sum(layer_bytes[move.layer] for move in moves if move.source is not None)
    return LayerTransition(moves, copied_bytes)


def _borrow(pipeline: list[int], kept: list[list[int]], least: int) -> None:
    """Move last ranks of the longest pipeline, of equal ones the last, to one too short."""
    while len(pipeline) < least:
        longest = max(reversed(kept), key=len)
        if len(longest) <= least:
            return
        pipeline.append(longest.pop())


def _check(pipelines: Sequence[Sequence[int]], lost: Collection[int], least: int) -> None:
    if least < 1:
        raise InputError(f"pipelines have {least} ranks or more; 1 or more is allowed")
    places = Counter(rank for pipeline in pipelines for rank in pipeline)
    for rank, number in places.items():
        if number > 1:
            raise InputError(f"rank {rank} is in {number} places of the pipelines; 1 is allowed")
    for rank in lost:
        if rank not in places:
            raise InputError(f"rank {rank} is lost, but in no pipeline")
