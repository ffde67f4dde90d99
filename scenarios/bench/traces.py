"""Traces that benchmarks make themselves, so that they need no data."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.live.search.architectures import Architecture, draw_candidates
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor
from wattkeeper.scenarios.bench.baselines import MadeJobs, MadeModels
from wattkeeper.traces.fits import load_fit, shipped
from wattkeeper.traces.generate.sample import rate_for_load, sample
from wattkeeper.traces.schema import MODELS, TRAININGS, jobs_table
from wattkeeper.traces.trace import Trace

NAME: Final = "made"
CHANNELS: Final = 3
CLASSES: Final = 10


def make(made: MadeJobs | MadeModels, beside: Path) -> Trace:
    """The trace; the same arguments give the same one.

    Args:
        made: What to make.
        beside: Folder that paths of fits begin at.

    Raises:
        InputError: If there is no such fit.
    """
    if isinstance(made, MadeModels):
        return _models(made)
    fit = load_fit(made.fit if made.fit in shipped() else beside / made.fit)
    scale = rate_for_load(fit, made.load, made.gpus)
    return sample(fit, NAME, made.jobs, made.seed, scale, made.fit)


def _models(made: MadeModels) -> Trace:
    """Networks of the search that `zoo-digits` makes, submitted one after the other."""
    rng = np.random.default_rng([made.seed, zlib.crc32(b"networks")])
    found = draw_candidates(made.models, rng)
    names = [each.name for each in found]
    models = [
        {
            "model": each.name,
            "task": "made",
            "mutated_from": each.mutated_from,
            "accuracy": None,
            "graph": graph_of(each.architecture).to_json(),
        }
        for each in found
    ]
    jobs = jobs_table(
        {
            "job_id": pa.array(names),
            "submit_time_s": pa.array(np.arange(len(names)) * made.every_s),
            "duration_s": pa.nulls(len(names), pa.float64()),
            "gpus": pa.array(np.ones(len(names), np.int32)),
        }
    )
    return Trace(
        name=NAME,
        kind="jobs",
        tables={
            "jobs": jobs,
            "models": pa.Table.from_pylist(models, schema=MODELS),
            "trainings": pa.table({"job_id": names, "model": names}, schema=TRAININGS),
        },
        format="bench",
        origin="synthetic",
        source="mutations of a small convolutional network",
        licence="none needed",
        parameters=made.model_dump(mode="json"),
    )


def graph_of(architecture: Architecture) -> Graph:
    """The graph of an architecture: convolutions with their activations, then a linear layer."""
    nodes: list[Node] = []

    def add(op: str, *inputs: int, shape: tuple[int, ...] = ()) -> int:
        name = f"{len(nodes)}.weight"
        tensors = (Tensor(name, "weight", shape),) if shape else ()
        nodes.append(Node(op, inputs, tensors))
        return len(nodes) - 1

    at, width = SOURCE, CHANNELS
    for stage in architecture:
        for block in stage.blocks:
            before = at
            shape = (stage.width, width, block.kernel, block.kernel)
            at = add("relu", add("conv2d", at, shape=shape))
            if block.residual and width == stage.width:
                at = add("add", at, before)
            width = stage.width
    add("linear", add("mean", at), shape=(CLASSES, width))
    return Graph("", tuple(nodes))
