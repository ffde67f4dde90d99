"""Depth and replicas of a pipeline for the GPUs at hand (Varuna, EuroSys 2022, section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from wattkeeper.policies.errors import InputError


class CutSection(NamedTuple):
    """The layers between two cut-points.

    Attributes:
        forward_s: Forward pass of a micro-batch, by size in the order of `MorphingModel`, s.
        backward_s: Backward pass of a micro-batch, by size in the same order, s.
        state_bytes: Weights, gradients and optimizer state.
        sample_bytes: What one sample of a micro-batch takes besides.
        gradient_bytes: What replicas add up after each step.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    state_bytes: int
    sample_bytes: int
    gradient_bytes: int


class MorphingModel(NamedTuple):
    """A model with cut-points of nearly equal work.

    Attributes:
        sections: Between the cut-points, in order.
        microbatch_samples: The measured sizes of micro-batches, ascending.
        memory_bytes: Of a GPU.
        bandwidth_bytes_per_s: Of a GPU in an all-reduce between replicas.
    """

    sections: tuple[CutSection, ...]
    microbatch_samples: tuple[int, ...]
    memory_bytes: int
    bandwidth_bytes_per_s: float


class MorphedShape(NamedTuple):
    """How a job runs on its GPUs.

    Attributes:
        depth: Stages of a pipeline.
        replicas: Number of pipelines.
        microbatch_samples: Samples of a micro-batch.
        microbatches: Of each pipeline in a step.
        step_s: Time of a step, s.
        idle_gpus: GPUs that have no stage.
        samples_per_s: Samples a second; those that replicas cannot share evenly do not count.
    """

    depth: int
    replicas: int
    microbatch_samples: int
    microbatches: int
    step_s: float
    idle_gpus: int
    samples_per_s: float


def morph(model: MorphingModel, gpus: int, batch_samples: int) -> MorphedShape | None:
    """The shape with the fastest step, of equal ones that of fewer stages; None if none fits.

    A pipeline of P stages and m micro-batches takes m + P - 1 times its slowest stage, which passes
    forwards twice, since it recomputes activations, and backwards once. This approximates the
    schedule that Varuna simulates.

    Args:
        model: What was measured.
        gpus: At hand.
        batch_samples: Samples of a step; each replica takes the same whole number.

    Raises:
        InputError: If numbers are below 1, or the measurements do not fit together.
    """
    _check(model, gpus, batch_samples)
    sections = len(model.sections)
    shapes = [
        shape
        for depth in range(1, min(sections - 1, gpus) + 1)
        if sections % depth == 0
        and (shape := _shape(model, depth, gpus, batch_samples)) is not None
    ]
    return min(shapes, key=lambda shape: shape.step_s, default=None)


def _shape(model: MorphingModel, depth: int, gpus: int, batch_samples: int) -> MorphedShape | None:
    """The shape of a depth; None if no micro-batch fits, or a replica has no sample."""
    width = len(model.sections) // depth
    stages = [
        model.sections[first : first + width] for first in range(0, len(model.sections), width)
    ]
    replicas = gpus // depth
    size = _largest_microbatch(model, stages)
    if size is None or batch_samples < replicas:
        return None
    samples = model.microbatch_samples[size]
    microbatches = math.ceil(batch_samples // replicas / samples)
    slowest_s = max(
        sum(2 * section.forward_s[size] + section.backward_s[size] for section in stage)
        for stage in stages
    )
    gradient_bytes = max(sum(section.gradient_bytes for section in stage) for stage in stages)
    # A ring sends each byte twice, but for the part that a replica already has.
    reduce_s = 2 * (replicas - 1) / replicas * gradient_bytes / model.bandwidth_bytes_per_s
    step_s = (microbatches + depth - 1) * slowest_s + reduce_s
    shared = batch_samples // replicas * replicas
    rate = shared / step_s if step_s else math.inf
    idle_gpus = gpus - depth * replicas
    return MorphedShape(depth, replicas, samples, microbatches, step_s, idle_gpus, rate)


def _largest_microbatch(model: MorphingModel, stages: Sequence[Sequence[CutSection]]) -> int | None:
    """Index of the largest micro-batch that fits on all stages; None if none does."""
    for size in reversed(range(len(model.microbatch_samples))):
        samples = model.microbatch_samples[size]
        fullest_bytes = max(
            sum(section.state_bytes + samples * section.sample_bytes for section in stage)
            for stage in stages
        )
        if fullest_bytes <= model.memory_bytes:
            return size
    return None


def _check(model: MorphingModel, gpus: int, batch_samples: int) -> None:
    sizes = model.microbatch_samples
    if gpus < 1 or batch_samples < 1:
        raise InputError(
            f"{gpus} GPUs and {batch_samples} samples of a step; 1 or more of each are allowed"
        )
    if len(model.sections) < 2:
        raise InputError(f"the model has {len(model.sections)} sections; 2 or more are needed")
    if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
        raise InputError(f"sizes of micro-batches are {sizes}; ascending ones from 1 are allowed")
    if not model.bandwidth_bytes_per_s > 0:
        raise InputError(f"the bandwidth is {model.bandwidth_bytes_per_s} B/s; it must be above 0")
    for number, section in enumerate(model.sections):
        for name, times_s in (("forward", section.forward_s), ("backward", section.backward_s)):
            if len(times_s) != len(sizes):
                raise InputError(
                    f"section {number} has {len(times_s)} times of {name} passes; one for each of "
                    f"{len(sizes)} sizes of micro-batches is needed"
                )
            for time_s in times_s:
                if not (math.isfinite(time_s) and time_s >= 0):
                    raise InputError(
                        f"a {name} pass of section {number} takes {time_s} s; 0 or more is allowed"
                    )
