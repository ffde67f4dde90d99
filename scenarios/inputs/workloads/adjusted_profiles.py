"""Profiles as a scenario wants them: other epochs, limits between the recorded ones."""

from __future__ import annotations

import math
from typing import Final

from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.profile import UNLIMITED_W, Drift, Profile
from wattkeeper.scenarios.spec.sections.workload import RecurringWorkload, ReplayedWorkload

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
        curves = {size: curve._replace(epochs=epochs) for size, curve in curves.items()}
    if workload.epochs_sd is not None:
        curves = {
            size: curve._replace(epochs=spread(curve.epochs, max_epochs, workload.epochs_sd))
            for size, curve in curves.items()
        }
    drift = None
    if isinstance(workload, RecurringWorkload) and workload.drift is not None:
        drift = Drift(workload.drift.after, workload.drift.per_octave, workload.drift.over)
    return profile._replace(curves=curves, max_epochs=max_epochs, drift=drift)


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
