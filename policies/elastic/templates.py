"""Pipeline templates of Oobleck (SOSP 2023, section 4.1): the split of a model over nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.elastic.bounds import bounds_of_model, stage_times
from wattkeeper.policies.elastic.search import ROUNDING, PipelineShape, TemplateSearch
from wattkeeper.policies.elastic.stages import LayerCost, TemplateStage, check_layers
from wattkeeper.policies.errors import InputError


class PipelineTemplate(NamedTuple):
    """How a pipeline of so many nodes splits the model.

    Attributes:
        nodes: Number of nodes.
        gpus_per_node: GPUs of each, all of which are used.
        stages: In the order of the layers; no stage lies on two nodes.
        iteration_s: Time of an iteration with about four micro-batches for each stage, s.
    """

    nodes: int
    gpus_per_node: int
    stages: tuple[TemplateStage, ...]
    iteration_s: float

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)

    def step_s(self, microbatches: int) -> float:
        """Time of a step of so many micro-batches, s, without that of adding up gradients.

        The first micro-batch passes all stages, the others follow at the pace of the slowest one.
        """
        times_s = [stage.time_s for stage in self.stages]
        return sum(times_s) + (microbatches - 1) * max(times_s)

    @property
    def layers_by_node(self) -> tuple[range, ...]:
        """The layers of each node."""
        nodes = []
        first = gpus = 0
        for stage in self.stages:
            gpus += stage.gpus
            if gpus == self.gpus_per_node:
                nodes.append(range(first, stage.end))
                first, gpus = stage.end, 0
        return tuple(nodes)


def most_nodes(layers: int, gpus_per_node: int) -> int:
    """The most nodes that a model of so many layers splits over: a stage has 1, 2, 4, ... GPUs."""
    return layers // gpus_per_node.bit_count()


def template_sizes(least: int, nodes: int, losses: int, most: int) -> range:
    """Numbers of nodes of the templates, so that each loss leaves pipelines of such sizes.

    Args:
        least: Fewest nodes that hold the model.
        nodes: Of the job.
        losses: Number of nodes that may be lost at a time; one pipeline more always exists.
        most: The most nodes that its layers split over.

    Raises:
        InputError: If the nodes do not suffice for so many pipelines, or layers for one.
    """
    if least < 1 or losses < 0:
        raise InputError(
            f"{losses} losses and pipelines of {least} nodes or more: 0 or more losses and 1 or "
            "more nodes are allowed"
        )
    if nodes < (losses + 1) * least:
        raise InputError(
            f"the job has {nodes} nodes; {losses + 1} pipelines of {least} nodes, which survive "
            f"{losses} losses, need {(losses + 1) * least}"
        )
    if least > most:
        raise InputError(
            f"pipelines of {least} nodes or more; the layers split over {most} at most"
        )
    return range(least, min(nodes - losses * least, most) + 1)


def plan_templates(
    layers: Sequence[LayerCost], gpus_per_node: int, sizes: Sequence[int]
) -> tuple[PipelineTemplate, ...]:
    """The template for each number of nodes.

    Memory is not looked at.

    Args:
        layers: Costs of the layers, in order.
        gpus_per_node: GPUs of each node.
        sizes: Numbers of nodes.

    Raises:
        InputError: If a size is below 1 or needs more stages than there are layers, or if times
            of layers are absent or wrong.
    """
    check_layers(layers, gpus_per_node)
    most = most_nodes(len(layers), gpus_per_node)
    for size in sizes:
        if not 1 <= size <= most:
            raise InputError(
                f"a template for {size} nodes of {gpus_per_node} GPUs; the model of {len(layers)} "
                f"layers splits over 1 to {most}"
            )
    if not sizes:
        return ()
    search = TemplateSearch(stage_times(layers, gpus_per_node), gpus_per_node)
    bounds_s = bounds_of_model(search.on_node, gpus_per_node, max(sizes))
    templates = []
    for size in sizes:
        by_stages = {
            stages: time_s for (nodes, stages), time_s in bounds_s.items() if nodes == size
        }
        templates.append(_plan_template(size, search, by_stages))
    return tuple(templates)


def _plan_template(
    nodes: int, search: TemplateSearch, bounds_s: dict[int, float]
) -> PipelineTemplate:
    """The template of the number of stages with the least time, of equal ones the smaller.

    Args:
        nodes: Number of nodes.
        search: Of the best pipelines.
        bounds_s: Lower bounds of the time by number of stages, s.
    """
    best_s, best_stages = np.inf, 0
    # One stage takes less than its bound: its time is defined apart.
    for stages in sorted(bounds_s, key=lambda stages: (stages > 1, bounds_s[stages])):
        if bounds_s[stages] * (1 - ROUNDING) > best_s:
            break
        best = search.best(PipelineShape(nodes, search.gpus_per_node, stages), 0, search.layers)
        time_s = 4 * best.total_s if stages == 1 else best.time_s
        if (time_s, stages) < (best_s, best_stages):
            best_s, best_stages = time_s, stages
    shape = PipelineShape(nodes, search.gpus_per_node, best_stages)
    stages_of_best = tuple(search.stages(shape, 0, search.layers))
    return PipelineTemplate(nodes, search.gpus_per_node, stages_of_best, best_s)
