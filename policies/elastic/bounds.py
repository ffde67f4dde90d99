"""Times of stages, and lower bounds of the times of all pipelines on some layers.

With S stages, M the slowest one, k its number from 0 (the last of equal ones) and D the sum of what
the stages before it are faster, the time of Oobleck's iteration is 2 sum + (2 S + 1) M + D. Where
the slowest stage of two joined pipelines is one of the second, their time is that of the second,
plus the sum of the first, plus 3 M for each stage of the first; else that of the first, plus twice
the sum of the second, plus 2 M for each stage of the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.elastic.stages import LayerCost

StageTimes = dict[int, Floats]
"""By GPUs, a power of two: time of a stage by first layer and end, s; infinite if it is empty."""


class PipelineBounds(NamedTuple):
    """What no pipeline of a number of stages falls below, s; infinite if there is none.

    Attributes:
        total_s: Sum of its stages.
        slowest_s: Its slowest stage.
        time_s: Its iteration.
    """

    total_s: Floats
    slowest_s: Floats
    time_s: Floats

    def at(self, *index: slice | int | None) -> PipelineBounds:
        """The bounds at some layers."""
        return PipelineBounds(*(values[index] for values in self))


def stage_times(layers: Sequence[LayerCost], gpus_per_node: int) -> StageTimes:
    """Times of all stages on 1, 2, 4, ... GPUs up to all of a node, s."""
    size = len(layers) + 1
    times = {}
    for gpus in (2**power for power in range(gpus_per_node.bit_length())):
        layer_s = np.array([layer.shared_s(gpus) for layer in layers])
        times[gpus] = np.full((size, size), np.inf)
        for first in range(size - 1):
            times[gpus][first, first + 1 :] = np.cumsum(layer_s[first:])
    return times


def join_bounds(
    left: PipelineBounds, right: PipelineBounds, left_stages: int | Ints, right_stages: int | Ints
) -> PipelineBounds:
    """Bounds of pipelines that consist of two, element by element."""
    slowest_s = np.maximum(left.slowest_s, right.slowest_s)
    if_right_s = right.time_s + left.total_s + 3 * left_stages * slowest_s
    if_left_s = left.time_s + 2 * right.total_s + 2 * right_stages * slowest_s
    total_s = left.total_s + right.total_s
    time_s = 2 * total_s + (2 * (left_stages + right_stages) + 1) * slowest_s
    np.maximum(time_s, np.minimum(if_right_s, if_left_s), out=time_s)
    return PipelineBounds(total_s, slowest_s, time_s)


def either_bounds(bounds: Iterable[PipelineBounds]) -> PipelineBounds:
    """Bounds of pipelines of several kinds together."""
    return PipelineBounds(*(np.minimum.reduce(values) for values in zip(*bounds, strict=True)))


def bounds_on_node(times: StageTimes, gpus_per_node: int) -> dict[tuple[int, int], PipelineBounds]:
    """Bounds on GPUs of one node, by GPUs and stages, where possible; by first layer and end."""
    bounds = {(gpus, 1): PipelineBounds(time, time, 5 * time) for gpus, time in times.items()}
    for gpus in range(2, gpus_per_node + 1):
        for stages in range(2, gpus + 1):
            parts = [
                concatenate_bounds(bounds[own, 1], bounds[gpus - own, stages - 1], 1, stages - 1)
                for own in times
                if (gpus - own, stages - 1) in bounds
            ]
            if parts:
                bounds[gpus, stages] = either_bounds(parts)
    return bounds


def concatenate_bounds(
    left: PipelineBounds, right: PipelineBounds, left_stages: int, right_stages: int
) -> PipelineBounds:
    """Bounds of two pipelines in a row, with any layer between them; by first layer and end."""
    least = PipelineBounds(*(np.full_like(left.total_s, np.inf) for _ in range(3)))
    for middle in range(1, len(left.total_s) - 1):
        heads = left.at(slice(0, middle), slice(middle, middle + 1))
        tails = right.at(slice(middle, middle + 1), slice(middle + 1, None))
        block = least.at(slice(0, middle), slice(middle + 1, None))
        for values, joined in zip(
            block, join_bounds(heads, tails, left_stages, right_stages), strict=True
        ):
            np.minimum(values, joined, out=values)
    return least


def bounds_of_model(
    on_node: dict[tuple[int, int], PipelineBounds], gpus_per_node: int, nodes: int
) -> dict[tuple[int, int], float]:
    """Bounds of the time on all layers, s, by number of nodes, up to `nodes`, and of stages.

    Args:
        on_node: Bounds on the GPUs of one node.
        gpus_per_node: Of each node.
        nodes: Largest number of nodes.
    """
    own = {stages: b for (gpus, stages), b in on_node.items() if gpus == gpus_per_node}
    layers = len(on_node[1, 1].total_s) - 1
    after = {(1, stages): bounds.at(slice(None), -1) for stages, bounds in own.items()}
    for count in range(2, nodes + 1):
        for stages in range(count, min(count * gpus_per_node, layers) + 1):
            joined = [
                join_bounds(bounds, after[count - 1, stages - first], first, stages - first)
                for first, bounds in own.items()
                if (count - 1, stages - first) in after
            ]
            if joined:
                least = either_bounds(joined)
                after[count, stages] = PipelineBounds(*(values.min(axis=1) for values in least))
    return {shape: float(bounds.time_s[0]) for shape, bounds in after.items()}
