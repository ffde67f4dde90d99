"""Networks that need no data: those of the search of `zoo-digits`, which nobody trained."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.inputs.zoo_models import TraceModel, TraceModels
from wattkeeper.sim.engine.sources import recurring_id

if TYPE_CHECKING:
    from wattkeeper.sim.search.architectures import Architecture

CHANNELS = 3
CLASSES = 10


def draw_models(recurrences: Mapping[str, int]) -> TraceModels:
    """A network for each recurrence of each workload: a mutation of that of an earlier one.

    A workload is a task of its own. Nothing but its name decides on its networks.
    """
    from wattkeeper.sim.search.architectures import draw_candidates

    of_job: dict[str, str] = {}
    known: dict[str, TraceModel] = {}
    for workload, number in recurrences.items():
        rng = np.random.default_rng([zlib.crc32(b"networks"), zlib.crc32(workload.encode())])
        for recurrence, network in enumerate(draw_candidates(number, rng), start=1):
            name, origin = f"{workload}/{network.name}", network.mutated_from
            mutated_from = None if origin is None else f"{workload}/{origin}"
            child = ChildModel(name, workload, graph_of(network.architecture), mutated_from)
            known[name] = TraceModel(child, None)
            of_job[recurring_id(workload, recurrence)] = name
    return TraceModels(of_job, known)


def graph_of(architecture: Architecture) -> Graph:
    """The graph of an architecture: convolutions with their activations, then a linear layer."""
    nodes: list[Node] = []

    def add(op: str, *inputs: int, shape: tuple[int, ...] = ()) -> int:
        name = f"{len(nodes)}.weight"
        tensors = (Tensor(name, "weight", shape),) if shape else ()
        nodes.append(Node(op, inputs, tensors))
        return len(nodes) - 1

    node, width = SOURCE, CHANNELS
    for stage in architecture:
        for block in stage.blocks:
            before = node
            shape = (stage.width, width, block.kernel, block.kernel)
            node = add("relu", add("conv2d", node, shape=shape))
            if block.residual and width == stage.width:
                node = add("add", node, before)
            width = stage.width
    add("linear", add("mean", node), shape=(CLASSES, width))
    return Graph("", tuple(nodes))
