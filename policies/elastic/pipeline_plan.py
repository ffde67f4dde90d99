"""Pipelines of an elastic job on its nodes: formed anew, or after a loss (Oobleck, SOSP 2023)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from wattkeeper.policies.elastic.instantiation import Instantiation, instantiate, instantiate_counts
from wattkeeper.policies.elastic.microbatches import PipelineGroup
from wattkeeper.policies.elastic.reconfiguration import Pipelines
from wattkeeper.policies.elastic.templates import PipelineTemplate


class PipelinePlan(NamedTuple):
    """The templates of a job.

    Attributes:
        templates: One for each number of nodes, ascending.
        microbatches: Of a step, over all pipelines.
        layer_bytes: Weights and optimizer state of each layer; empty: not known.
    """

    templates: tuple[PipelineTemplate, ...]
    microbatches: int
    layer_bytes: tuple[int, ...] = ()

    @property
    def least(self) -> int:
        """The fewest nodes of a pipeline."""
        return self.templates[0].nodes

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.templates[0].stages[-1].end

    def form(self, nodes: Sequence[int]) -> Pipelines:
        """Balanced pipelines of as many nodes as a set of them can use, in their order.

        The last nodes idle if no set uses all. There are no pipelines of fewer than `least` nodes.
        """
        for used in range(len(nodes), self.least - 1, -1):
            found = _instantiate(self.templates, used, self.microbatches)
            if found is not None:
                numbers = iter(nodes)
                return tuple(tuple(islice(numbers, length)) for length in _lengths(found.groups))
        return ()

    def step_s(self, pipelines: Pipelines) -> float:
        """Time of a step, that of the slowest pipeline, s; infinite if they cannot train.

        Micro-batches are shared as evenly as whole numbers allow. They cannot train where there is
        no template for one of them, or no pipeline at all.
        """
        lengths = Counter(map(len, pipelines))
        counts = tuple([lengths.pop(template.nodes, 0) for template in self.templates])
        if lengths or not any(counts):
            return math.inf
        return _step_s(self.templates, counts, self.microbatches)

    def rates(self, numbers: Iterable[int], batch: float) -> dict[int, float]:
        """Samples a second of balanced pipelines by number of nodes, with steps of `batch`.

        0 on fewer nodes than a pipeline needs.
        """
        return {nodes: batch / self.step_s(self.form(range(nodes))) for nodes in numbers}


def _lengths(groups: Sequence[PipelineGroup]) -> Iterator[int]:
    for group in groups:
        for _ in range(group.pipelines):
            yield group.nodes


@cache
def _instantiate(
    templates: tuple[PipelineTemplate, ...], nodes: int, microbatches: int
) -> Instantiation | None:
    return instantiate(templates, nodes, microbatches)


@cache
def _step_s(
    templates: tuple[PipelineTemplate, ...], counts: tuple[int, ...], microbatches: int
) -> float:
    found = instantiate_counts(templates, counts, microbatches)
    if found is None:
        return math.inf
    used = [template for template, count in zip(templates, counts, strict=True) if count]
    return max(
        template.step_s(group.microbatches)
        for template, group in zip(used, found.groups, strict=True)
    )
