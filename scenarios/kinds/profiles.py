"""Profiles as a scenario wants them, and the run times and deadlines that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.profile import UNLIMITED_W, Profile
from wattkeeper.scenarios.spec.sections.workload import ReplayedWorkload
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.traces.arrow import replace_column

RUNS: Final = 100
"""Least number of runs that stand for a distribution of epochs."""


def adjust_profile(profile: Profile, workload: ReplayedWorkload) -> Profile:
    """The profile with the epochs and the power limits that a workload states."""
    curves = dict(profile.curves)
    if workload.interpolate_w is not None:
        curves = {
            size: curve
            if curve.limits_w == (UNLIMITED_W,)
            else interpolate_limits(curve, workload.interpolate_w)
            for size, curve in curves.items()
        }
    max_epochs = profile.max_epochs
    if workload.epochs is not None:
        max_epochs = workload.epochs
        epochs = (float(workload.epochs),)
        curves = {size: curve._replace(epochs=epochs, paces=()) for size, curve in curves.items()}
    if workload.epochs_sd is not None:
        curves = {
            size: curve._replace(
                epochs=spread(curve.epochs, max_epochs, workload.epochs_sd), paces=()
            )
            for size, curve in curves.items()
        }
    return profile._replace(curves=curves, max_epochs=max_epochs)


def spread(epochs: tuple[float, ...], max_epochs: int, sd: float) -> tuple[float, ...]:
    """Whole epochs of equally probable runs, at least `RUNS`, with a lognormal distribution.

    Its median is the geometric mean of the runs that reached the target within `max_epochs`, and
    `sd` the standard deviation of ln(epochs). The share of the others stays.
    """
    reached = [run for run in epochs if run <= max_epochs]
    if not reached:
        return epochs
    copies = -(-RUNS // len(epochs))
    from statistics import NormalDist, fmean

    center, runs = fmean(map(math.log, reached)), len(reached) * copies
    deviates = [NormalDist().inv_cdf((run + 0.5) / runs) for run in range(runs)]
    drawn = [max(1.0, math.floor(math.exp(center + sd * z) + 0.5)) for z in deviates]
    return tuple(drawn + [math.inf] * (len(epochs) - len(reached)) * copies)


def run_time_s(profile: Profile, batch_size: int | None) -> float:
    """Expected time of a training at the highest limit, s.

    Args:
        profile: Of the workload.
        batch_size: That jobs run at; the default one if None, or if it was not profiled, which the
            check of policies refuses.
    """
    curve = profile.curves.get(batch_size or 0) or profile.curves[profile.default_batch_size]
    return curve.expected_epochs(profile.max_epochs) * curve.epoch(curve.max_limit_w)[0]


def set_deadlines(
    jobs: pa.Table, slack: float | None, profiles: Profiles, batch_size: int | None
) -> pa.Table:
    """The jobs of a trace; those without a deadline get one by their slack, if that is stated."""
    if slack is None:
        return jobs
    longest_s = longest_run_times(profiles, batch_size)
    workloads, gpus = jobs["workload"].to_pylist(), jobs["gpus"].to_pylist()
    duration_s: Floats = np.asarray(jobs["duration_s"].cast(pa.float64()).fill_null(np.nan))
    scale: Floats = np.asarray(jobs["time_scale"])
    profiled = scale * [longest_s.get(key, np.nan) for key in zip(workloads, gpus, strict=True)]
    run_s = np.where([name is None for name in workloads], duration_s, profiled)
    due_s = np.asarray(jobs["submit_time_s"]) + (1 + slack) * run_s
    return replace_column(
        jobs, "deadline_s", pc.coalesce(jobs["deadline_s"], pa.array(due_s, from_pandas=True))
    )


def longest_run_times(
    profiles: Profiles, batch_size: int | None
) -> Mapping[tuple[str, int], float]:
    """Expected run time on the slowest of its GPU types, s, by workload and number of GPUs."""
    longest: dict[tuple[str, int], float] = {}
    for (name, gpus, _), profile in profiles.items():
        run_s = run_time_s(profile, batch_size)
        longest[name, gpus] = max(longest.get((name, gpus), 0.0), run_s)
    return longest
