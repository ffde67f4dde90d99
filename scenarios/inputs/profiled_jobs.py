"""How much of a trace profiles stand for."""

from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.scenarios.spec.sections.workload import MappedDuration
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.results.run_result import RunResult
from wattkeeper.traces.gpu_time import gpu_seconds

SECONDS_PER_HOUR: Final = 3600.0


class ProfiledJobs(TypedDict):
    """The jobs of a trace that are replayed from profiles.

    `gpu_s` is their recorded duration times the GPUs that they hold, summed up; `duration` is what
    sets their duration, where workloads were mapped to them.
    """

    jobs: int
    all_jobs: int
    gpu_s: float
    all_gpu_s: float
    duration: MappedDuration | None


class ProfiledShare(ProfiledJobs):
    """The same with their training time and energy in the runs of the baseline.

    `simulated_gpu_s` is the mean over seeds; `energy_share` is that of the energy of all jobs, None
    where it is not known.
    """

    baseline: str
    simulated_gpu_s: float
    energy_share: float | None


def count_profiled(
    jobs: pa.Table, trained: frozenset[str], duration: MappedDuration | None
) -> ProfiledJobs | None:
    """Count the jobs that have profiles; None if no job has one, or all do and none was mapped."""
    of_scripts = pc.is_in(jobs["workload"], value_set=pa.array(sorted(trained), pa.string()))
    replayed: Bools = np.asarray(pc.and_(jobs["workload"].is_valid(), pc.invert(of_scripts)))
    if not replayed.any() or (duration is None and replayed.all()):
        return None
    gpu_s = gpu_seconds(jobs)
    return {
        "jobs": int(replayed.sum()),
        "all_jobs": len(jobs),
        "gpu_s": float(gpu_s[replayed].sum()),
        "all_gpu_s": float(gpu_s.sum()),
        "duration": duration,
    }


def add_baseline(
    counted: ProfiledJobs, results: Sequence[RunResult], baseline: str
) -> ProfiledShare:
    """Add what profiles stand for in the runs of the baseline."""
    simulated_s: list[float] = []
    energy_j, all_energy_j = 0.0, 0.0
    for result in results:
        if result.variant == baseline:
            table = result.tables["jobs"]
            replayed = np.asarray(table["replayed"]) == "profile"
            energy: Floats = np.asarray(table["energy_j"].cast(pa.float64()).fill_null(np.nan))
            simulated_s.append(float(gpu_seconds(table, "time_s")[replayed].sum()))
            energy_j += float(energy[replayed].sum())
            all_energy_j += float(energy.sum())
    return {
        **counted,
        "baseline": baseline,
        "simulated_gpu_s": sum(simulated_s) / len(simulated_s),
        "energy_share": energy_j / all_energy_j if all_energy_j > 0 else None,
    }


def describe_counted(counted: ProfiledJobs) -> Iterator[str]:
    """A line on the jobs and the recorded time that profiles stand for, before a run."""
    yield f"Profiles stand for {_shares(counted)}."


def describe_share(share: ProfiledShare) -> Iterator[str]:
    """Lines on what profiles stand for, and on the duration of mapped jobs."""
    energy = share["energy_share"]
    of_energy = f", and {_percent(energy or 0.0)} of the modelled energy of jobs"
    of_energy = "" if energy is None else f"{of_energy} ({share['baseline']})"
    yield f"Profiles stand for {_shares(share)}{of_energy}."
    if share["duration"] == "keep":
        yield (
            "Jobs that profiles were mapped to keep their recorded duration in the default "
            "configuration: only ratios are the profile's."
        )
    elif share["duration"] == "workload":
        hours = (share[key] / SECONDS_PER_HOUR for key in ("gpu_s", "simulated_gpu_s"))
        before, after = (f"{count(float(f'{value:.4g}'), 'GPU hour')}" for value in hours)
        yield (
            f"Jobs that profiles were mapped to take the profile's time, not their own: {before} "
            f"recorded, {after} in {share['baseline']} (workload.mapping.duration)."
        )


def _shares(counted: ProfiledJobs) -> str:
    hours = counted["gpu_s"] / counted["all_gpu_s"] if counted["all_gpu_s"] else 0.0
    return (
        f"{_percent(counted['jobs'] / counted['all_jobs'])} of the jobs "
        f"({counted['jobs']:,} of {counted['all_jobs']:,}), {_percent(hours)} of their recorded "
        "GPU hours"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
