"""Search for the best pipelines on parts of a model (Oobleck, SOSP 2023, section 4.1).

The best pipeline of a part joins the best ones of two smaller parts. The time of a pipeline is not
made of the times of its parts, so that this is a heuristic: another choice between equal parts, or
a better part, can lead to another result. The search therefore finds what trying all candidates in
their order finds, and leaves out only those whose lower bound is above the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.elastic.bounds import (
    PipelineBounds,
    StageTimes,
    bounds_on_node,
    concatenate_bounds,
    either_bounds,
    join_bounds,
)
from wattkeeper.policies.elastic.stages import TemplateStage

ROUNDING: Final = 1e-9
"""Relative difference below which a bound may exceed a time by rounding alone."""


class PipelineShape(NamedTuple):
    """Size of a pipeline: stages on some nodes, or, if it is one node, on some of its GPUs."""

    nodes: int
    gpus: int
    stages: int


class BestPipeline(NamedTuple):
    """The best pipeline of a shape on some layers.

    Attributes:
        time_s: Time of an iteration, s; infinite if there is no pipeline.
        total_s: Sum of the stages, s.
        slowest_s: Time of the slowest stage, s.
        slowest: Its number, the last of equal ones.
        rest_s: Sum of the stages from it on, s.
        middle: First layer of the second of the two joined pipelines.
        split: Number of the pair of their shapes.
    """

    time_s: float
    total_s: float = np.inf
    slowest_s: float = np.inf
    slowest: int = 0
    rest_s: float = np.inf
    middle: int = 0
    split: int = 0


NO_PIPELINE: Final = BestPipeline(np.inf)


class _Splits(NamedTuple):
    """Pairs of shapes that make up one, in their order, with bounds of both parts.

    Attributes:
        pairs: The shapes.
        left: Bounds of the first parts, by pair, first layer and middle.
        right: Bounds of the second parts, by pair, end and middle.
        left_stages: Numbers of stages of the first parts, as a column.
        right_stages: Those of the second parts.
    """

    pairs: tuple[tuple[PipelineShape, PipelineShape], ...]
    left: PipelineBounds
    right: PipelineBounds
    left_stages: Ints
    right_stages: Ints


class TemplateSearch:
    """The best pipelines of a model, kept between calls.

    Args:
        times: Of all stages.
        gpus_per_node: GPUs of each node.

    Attributes:
        layers: Number of layers.
        on_node: Bounds on the GPUs of one node, by GPUs and stages.
    """

    def __init__(self, times: StageTimes, gpus_per_node: int) -> None:
        self.times = times
        self.gpus_per_node = gpus_per_node
        self.layers = len(times[1]) - 1
        self.on_node = bounds_on_node(times, gpus_per_node)
        self._bounds: dict[PipelineShape, PipelineBounds] = {}
        self._splits: dict[PipelineShape, _Splits] = {}
        self._best: dict[tuple[PipelineShape, int, int], BestPipeline] = {}

    def best(self, shape: PipelineShape, first: int, end: int) -> BestPipeline:
        """The best pipeline on the layers from `first` to before `end`."""
        key = (shape, first, end)
        best = self._best.get(key)
        if best is None:
            best = self._best[key] = self._find(shape, first, end)
        return best

    def stages(self, shape: PipelineShape, first: int, end: int) -> Iterator[TemplateStage]:
        """The stages of the best pipeline."""
        best = self.best(shape, first, end)
        if shape.stages == 1:
            yield TemplateStage(first, end, shape.gpus, best.total_s)
            return
        left, right = self._splits[shape].pairs[best.split]
        yield from self.stages(left, first, best.middle)
        yield from self.stages(right, best.middle, end)

    def _find(self, shape: PipelineShape, first: int, end: int) -> BestPipeline:
        if shape.stages == 1:
            time_s = float(self.times[shape.gpus][first, end])
            return BestPipeline(4 * time_s, time_s, time_s, 0, time_s)
        bounds_s = self._bounds_s(shape, first, end)
        seed = int(bounds_s.argmin())
        if bounds_s[seed] == np.inf:
            return NO_PIPELINE
        best = self._join(shape, first, end, seed)
        open_ones = np.flatnonzero(bounds_s * (1 - ROUNDING) <= best.time_s)
        for candidate in open_ones[bounds_s[open_ones].argsort()].tolist():
            if bounds_s[candidate] * (1 - ROUNDING) > best.time_s:
                break
            other = self._join(shape, first, end, candidate)
            if _rank(other) < _rank(best):
                best = other
        return best

    def _bounds_s(self, shape: PipelineShape, first: int, end: int) -> Floats:
        """Lower bounds of the time of all candidates, by pair of shapes and middle, s."""
        splits = self._splits_of(shape)
        middles = slice(first + 1, end)
        left = splits.left.at(slice(None), first, middles)
        right = splits.right.at(slice(None), end, middles)
        return join_bounds(left, right, splits.left_stages, splits.right_stages).time_s.ravel()

    def _join(self, shape: PipelineShape, first: int, end: int, candidate: int) -> BestPipeline:
        """The pipeline of a candidate."""
        split, offset = divmod(candidate, end - first - 1)
        middle = first + 1 + offset
        left_shape, right_shape = self._splits[shape].pairs[split]
        left = self.best(left_shape, first, middle)
        right = self.best(right_shape, middle, end)
        if left.slowest_s > right.slowest_s:
            slowest_s, slowest = left.slowest_s, left.slowest
            rest_s = left.rest_s + right.total_s
        else:
            slowest_s, slowest = right.slowest_s, right.slowest + left_shape.stages
            rest_s = right.rest_s
        total_s = left.total_s + right.total_s
        time_s = total_s + (2 * shape.stages + slowest + 1) * slowest_s + rest_s
        return BestPipeline(time_s, total_s, slowest_s, slowest, rest_s, middle, split)

    def _splits_of(self, shape: PipelineShape) -> _Splits:
        if shape not in self._splits:
            pairs = split_shape(shape)
            left = [self._bounds_of(left) for left, _ in pairs]
            right = [self._bounds_of(right) for _, right in pairs]
            self._splits[shape] = _Splits(
                pairs,
                PipelineBounds(*(np.stack(values) for values in zip(*left, strict=True))),
                PipelineBounds(
                    *(np.stack([each.T for each in values]) for values in zip(*right, strict=True))
                ),
                np.array([[left.stages] for left, _ in pairs]),
                np.array([[right.stages] for _, right in pairs]),
            )
        return self._splits[shape]

    def _bounds_of(self, shape: PipelineShape) -> PipelineBounds:
        """Bounds of all pipelines of a shape, by first layer and end."""
        nodes, gpus, stages = shape
        if nodes == 1:
            return self.on_node[gpus, stages]
        if shape not in self._bounds:
            self._bounds[shape] = either_bounds(
                concatenate_bounds(self._bounds_of(left), self._bounds_of(right), *both)
                for left, right in split_shape(shape)
                if left.nodes == 1
                for both in [(left.stages, right.stages)]
            )
        return self._bounds[shape]


def split_shape(shape: PipelineShape) -> tuple[tuple[PipelineShape, PipelineShape], ...]:
    """The pairs of shapes that make up one, in the order in which they are tried."""
    nodes, gpus, stages = shape
    if nodes > 1:
        cuts = [((left, gpus), (nodes - left, gpus)) for left in range(1, nodes)]
    else:
        cuts = [((1, left), (1, gpus - left)) for left in range(1, gpus)]
    pairs = (
        (PipelineShape(*left, first), PipelineShape(*right, stages - first))
        for left, right in cuts
        for first in range(1, stages)
    )
    return tuple(pair for pair in pairs if is_possible(pair[0]) and is_possible(pair[1]))


def is_possible(shape: PipelineShape) -> bool:
    """Whether groups of 1, 2, 4, ... GPUs, one for each stage, use all GPUs of the nodes."""
    return shape.nodes * shape.gpus.bit_count() <= shape.stages <= shape.nodes * shape.gpus


def _rank(best: BestPipeline) -> tuple[float, int, int]:
    """By which the first of the fastest is the least."""
    return best.time_s, best.middle, best.split
