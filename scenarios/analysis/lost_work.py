"""Useful and lost work of each variant: GPU time and energy of attempts by what became of them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.traces.arrow import to_floats

COLUMNS: Final = (
    "gpus",
    "gpu_milli",
    "energy_j",
    "time_s",
    "overhead_s",
    "lost_time_s",
    "lost_energy_j",
    "slow_s",
)
OF_JOBS: Final = ("job_id", "attempt", "lost_node")
"""Columns that say which jobs never ended."""


class SplitWork(NamedTuple):
    """GPU time (s) or energy (J) of all attempts of a variant, mean over seeds.

    Attributes:
        useful: Training of jobs that ended, without what was lost; of energy with that of
            overheads, which is not recorded apart from it.
        overhead: Writing and reading checkpoints, waking, restoring, waiting for power.
        slow: What slow nodes add to training; of energy in `useful`.
        unended: The same of jobs that never ended.
        lost: Training that was lost with a node.
    """

    useful: float
    overhead: float
    slow: float
    unended: float
    lost: float


class VariantWork(NamedTuple):
    """What the attempts of a variant did.

    Attributes:
        gpu_s: GPU time, s.
        energy_j: Energy, J; None if it is not known of all attempts.
    """

    gpu_s: SplitWork
    energy_j: SplitWork | None


def find_losing(study: Study) -> list[str]:
    """The variants whose nodes may be lost."""
    variants = study.summary["variants"].items()
    return [name for name, about in variants if "node_losses" in about["metrics"]]


def read_work(study: Study) -> dict[str, VariantWork]:
    """The work of each variant."""
    runs: dict[str, list[VariantWork]] = {}
    metrics = [about["metrics"] for about in study.summary["variants"].values()]
    some_never_end = any(each.get("unable_jobs", {}).get("mean") for each in metrics)
    columns = COLUMNS + OF_JOBS * some_never_end  # texts are slow to read
    for run in study.runs("jobs", columns):
        runs.setdefault(run.variant, []).append(_sum_run(run.rows))
    return {variant: _mean(each) for variant, each in runs.items()}


def _sum_run(rows: Mapping[str, pa.Array]) -> VariantWork:
    """The work of one run."""
    gpus, milli, time_s, overhead_s, energy_j = (
        to_floats(rows[name]) for name in ("gpus", "gpu_milli", "time_s", "overhead_s", "energy_j")
    )
    lost_s, lost_j = (np.nan_to_num(to_floats(rows[n])) for n in ("lost_time_s", "lost_energy_j"))
    slow_s = np.nan_to_num(to_floats(rows["slow_s"]))
    held, unended = gpus * milli / WHOLE, _never_ended(rows)
    energy, none = None, np.zeros(len(held))
    if np.isfinite(energy_j).all():
        energy = _split(energy_j - lost_j, none, none, lost_j, unended)
    overhead = (overhead_s - slow_s) * held
    gpu_s = _split((time_s - lost_s) * held, overhead, slow_s * held, lost_s * held, unended)
    return VariantWork(gpu_s, energy)


def _split(
    kept: Floats, overhead: Floats, slow: Floats, lost: Floats, unended: npt.NDArray[np.bool_]
) -> SplitWork:
    useful, without = float(kept[~unended].sum()), float(kept[unended].sum())
    return SplitWork(useful, float(overhead.sum()), float(slow.sum()), without, float(lost.sum()))


def _never_ended(rows: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
    """Which attempts are of jobs whose last attempt ended with a node, shape (attempts,)."""
    if "lost_node" not in rows:
        return np.zeros(len(rows["gpus"]), dtype=np.bool_)
    is_lost = rows["lost_node"].is_valid().to_numpy(zero_copy_only=False)
    job = rows["job_id"].dictionary_encode().indices.to_numpy()
    last = np.zeros(int(job.max()) + 1, dtype=np.int64)
    attempt = rows["attempt"].to_numpy()
    np.maximum.at(last, job, attempt)
    never = np.zeros(len(last), dtype=np.bool_)
    never[job[is_lost & (attempt == last[job])]] = True
    found: npt.NDArray[np.bool_] = never[job]
    return found


def _mean(runs: list[VariantWork]) -> VariantWork:
    """Means over seeds."""
    energies = [run.energy_j for run in runs if run.energy_j is not None]
    energy = SplitWork(*np.mean(energies, axis=0).tolist()) if len(energies) == len(runs) else None
    return VariantWork(SplitWork(*np.mean([run.gpu_s for run in runs], axis=0).tolist()), energy)
