"""Measured energy of jobs: what is used, and what their GPUs cannot have drawn."""

import math
from collections.abc import Iterator, Sequence
from typing import Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools
from wattkeeper.scenarios.inputs.clusters import UsedCluster, model_of
from wattkeeper.scenarios.inputs.measured_power import is_measured, measured_power
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.arrow import replace_column, to_floats
from wattkeeper.traces.gpu_time import gpu_seconds, held_gpus

ROUNDING_W: Final = 0.5
"""A mean power that should be a limit differs by less, by rounding."""


class MeasuredEnergy(TypedDict):
    """The jobs of a trace whose energy was measured; `gpu_s`: recorded GPU seconds.

    `shared`: those of them that ran on a part of a node, as a meter of nodes has them. `refused`:
    jobs whose measured energy is not used, since their GPUs cannot have drawn it alone. `sampled`:
    those whose GPUs were sampled (`measured_share`), and the GPU seconds that samples cover.
    """

    jobs: int
    gpu_s: float
    all_jobs: int
    all_gpu_s: float
    shared_jobs: int
    refused_jobs: int
    refused_gpu_s: float
    sampled_jobs: NotRequired[int]
    sampled_gpu_s: NotRequired[float]
    covered_gpu_s: NotRequired[float]


def refuse_impossible(jobs: pa.Table, clusters: Sequence[UsedCluster]) -> pa.Table:
    """The jobs without measured energy that is more than their GPUs can draw.

    That is a mean power of each GPU above the highest power limit of its type: the meter counted
    other GPUs, or the rest of the node, too. Where a type is not known, nothing is refused.
    """
    power_w = measured_power(jobs)
    if not power_w:
        return jobs
    types = jobs["gpu_type"].to_pylist()
    most_w = {text: _most_power_w(text, clusters) for text in dict.fromkeys(types)}
    limits_w = np.array([most_w[text] for text in types])
    impossible = np.array(power_w) > (limits_w + ROUNDING_W) * held_gpus(jobs)
    if not impossible.any():
        return jobs
    energy_j = pc.if_else(pa.array(impossible), None, jobs["energy_j"])
    return replace_column(jobs, "energy_j", energy_j)


def _most_power_w(text: str | None, clusters: Sequence[UsedCluster]) -> float:
    """The most that a GPU of the allowed types draws, W; infinite where that is not known."""
    most_w = 0.0
    for used in clusters:
        for index in used.spec.types_allowed(text):
            name = used.spec.gpu_types[index]
            model = model_of(used, name)
            if model is None:
                return math.inf
            most_w = max(most_w, model.max_limit_w, used.spec.power[name].busy_w or 0.0)
    return most_w or math.inf


def count_measured(
    jobs: pa.Table, recorded_j: pa.Array, clusters: Sequence[UsedCluster]
) -> MeasuredEnergy | None:
    """Count the jobs with measured energy; None if the trace has none.

    `recorded_j`: energy in the trace; that in `jobs` lacks what is not used.
    """
    recorded: Bools = np.asarray(recorded_j.is_valid())
    if not recorded.any():
        return None
    used = is_measured(jobs)
    refused: Bools = recorded & np.asarray(jobs["energy_j"].is_null())
    gpus, gpu_s = held_gpus(jobs), gpu_seconds(jobs)
    spec = clusters[0].spec
    types = jobs["gpu_type"].to_pylist()
    node_gpus = {
        text: min(
            (
                int(spec.capacity[spec.node_type == index].min())
                for index in spec.types_allowed(text)
            ),
            default=1,
        )
        for text in dict.fromkeys(types)
    }
    sizes = np.array([node_gpus[text] for text in types])
    share = to_floats(jobs["measured_share"])
    sampled: Bools = used & np.isfinite(share)
    counts: MeasuredEnergy = {
        "jobs": int(used.sum()),
        "gpu_s": float(gpu_s[used].sum()),
        "all_jobs": len(jobs),
        "all_gpu_s": float(gpu_s.sum()),
        "shared_jobs": int((used & ~sampled & (gpus % sizes != 0)).sum()),
        "refused_jobs": int(refused.sum()),
        "refused_gpu_s": float(gpu_s[refused].sum()),
    }
    if sampled.any():
        counts["sampled_jobs"] = int(sampled.sum())
        counts["sampled_gpu_s"] = float(gpu_s[sampled].sum())
        counts["covered_gpu_s"] = float((gpu_s * share)[sampled].sum())
    return counts


def describe_measured(measured: MeasuredEnergy) -> Iterator[str]:
    """Lines on the jobs that draw what was measured, and on what was not used."""
    whole_s = measured["all_gpu_s"] or 1.0
    used, refused = (
        f"{100 * part_s / whole_s:.3g} % of the GPU hours"
        for part_s in (measured["gpu_s"], measured["refused_gpu_s"])
    )
    if measured["jobs"]:
        yield (
            f"Measured energy: {measured['jobs']:,} of {measured['all_jobs']:,} jobs "
            f"({used}) draw the mean power that their "
            "log has; the others draw the modelled one."
        )
    if measured["shared_jobs"]:
        yield (
            f"Of these, {count(measured['shared_jobs'], 'job')} ran on part of a node: where the "
            "meter counts whole nodes, as most of Slurm's do, what it has is an upper bound of "
            "what their GPUs drew, and the sum over jobs can exceed what the node drew."
        )
    if sampled := measured.get("sampled_jobs"):
        share = measured["covered_gpu_s"] / measured["sampled_gpu_s"]
        yield (
            f"The power of the GPUs of {count(sampled, 'job')} was sampled over {100 * share:.3g} "
            "% of their GPU hours; its mean stands for the rest."
        )
    if measured["refused_jobs"]:
        yield (
            f"Measured energy of {count(measured['refused_jobs'], 'job')} "
            f"({refused}) is not used: their mean "
            "power is above the highest power limit of their GPUs, so the meter counted more than "
            "these. They draw the modelled power."
        )
