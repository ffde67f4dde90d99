"""Which workloads run on which GPU types, for the least energy: a linear program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import EnvironmentLacks

DIGITS: Final = 9
"""Significant digits of prices: the last ones of a solver differ between machines."""

BEYOND: Final = 1e3
"""Cost of a GPU or a second beyond what there is, over the largest of the energies."""


class WorkloadDemand(NamedTuple):
    """What the jobs of a workload need on each GPU type.

    Attributes:
        jobs_per_s: Jobs that are submitted in a second.
        gpus: GPUs of a job.
        time_s: Time of a job by type, s; infinite where it cannot run.
        energy_j: Energy of a job by type, J.
    """

    jobs_per_s: float
    gpus: int
    time_s: tuple[float, ...]
    energy_j: tuple[float, ...]


class TypeShares(NamedTuple):
    """A solution, and what its limits cost.

    Attributes:
        shares: Share of the jobs of each workload on each type, shape (workloads, types).
        power_w: Energy of all jobs in a second.
        gpu_prices_w: Energy that a further GPU of each type would save in a second, W.
        delay_price_w: Energy that a further second of the mean time of a job would save, a job, W.
        fits: Whether the limits are kept.
    """

    shares: Floats
    power_w: float
    gpu_prices_w: tuple[float, ...]
    delay_price_w: float
    fits: bool


def assign(
    demands: Sequence[WorkloadDemand], gpus: Sequence[float], mean_s: float = math.inf
) -> TypeShares:
    """Assign workloads to GPU types for the least energy.

    The jobs of a workload may be divided between types. Each type is busy for at most the time that
    there is, and the mean time of a job is at most `mean_s`. Where that cannot be, both limits are
    exceeded as little as possible, and prices are those of the excess. It is solved by HiGHS
    (Huangfu and Hall, Mathematical Programming Computation '18).

    Args:
        demands: What workloads need; each runs on one type at least.
        gpus: GPUs of each type.
        mean_s: Largest mean time of a job, s.

    Raises:
        EnvironmentLacks: If scipy is absent.
    """
    try:
        from scipy.optimize import linprog
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "prices of GPU types need scipy: pip install 'wattkeeper[pipeline]'"
        ) from None
    rates = np.array([demand.jobs_per_s for demand in demands])
    widths = np.array([demand.gpus for demand in demands])
    time_s = np.array([demand.time_s for demand in demands])
    energy_j = np.array([demand.energy_j for demand in demands])
    runs = np.isfinite(time_s)
    rows, types = np.nonzero(runs)
    total = rates.sum()
    jobs = rates[rows] / total  # of one job of the mix, so that all workloads weigh alike
    loads = jobs * widths[rows] * time_s[rows, types] * total
    of_type = np.equal.outer(np.arange(len(gpus)), types) * loads
    times = jobs * time_s[rows, types]
    largest_j = float(energy_j[runs].max())
    costs = [*(jobs * energy_j[rows, types]), BEYOND * largest_j, BEYOND * largest_j]
    available = np.maximum(np.array(gpus, float), 1e-9)
    beyond = np.column_stack([-np.ones(len(gpus)), np.zeros(len(gpus))])
    limits = [np.column_stack([of_type / available[:, None], beyond])]
    bounds = [np.ones(len(gpus))]
    if math.isfinite(mean_s):
        scale_s = max(mean_s, 1e-9)
        limits.append(np.array([[*(times / scale_s), 0.0, -1.0]]))
        bounds.append(np.array([max(mean_s, 0.0) / scale_s]))
    whole = np.equal.outer(np.arange(len(demands)), rows).astype(float)
    solved = linprog(
        costs,
        np.vstack(limits),
        np.concatenate(bounds),
        np.column_stack([whole, np.zeros((len(demands), 2))]),
        np.ones(len(demands)),
        method="highs",
    )
    shares = np.zeros(time_s.shape)
    shares[rows, types] = solved.x[:-2]
    prices = -solved.ineqlin.marginals  # J a job of the mix, for all of a type or of the time
    delay_w = prices[len(gpus)] / scale_s if math.isfinite(mean_s) else 0.0
    return TypeShares(
        shares,
        float(solved.x[:-2] @ costs[:-2]) * total,
        tuple(_round(price * total / each) for price, each in zip(prices, available, strict=False)),
        _round(delay_w),
        bool(solved.x[-2:].max() < 1e-9),
    )


def _round(value: float) -> float:
    return float(f"{max(value, 0.0):.{DIGITS}g}")
