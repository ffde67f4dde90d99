"""Which workloads run on which GPU types, for the least energy: a linear program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
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
    """A solution, and what the limits of its GPUs cost.

    Attributes:
        shares: Share of the jobs of each workload on each type, shape (workloads, types).
        power_w: Energy of all jobs in a second, W.
        gpu_prices_w: Energy that a further GPU of each type would save in a second, W.
    """

    shares: Floats
    power_w: float
    gpu_prices_w: tuple[float, ...]


def check_solver() -> None:
    """Check that `assign` can solve.

    Raises:
        EnvironmentLacks: If scipy is absent.
    """
    if find_spec("scipy") is None:
        raise EnvironmentLacks(
            "the choice between GPU types needs scipy: pip install 'wattkeeper[pipeline]'"
        )


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
        gpus: GPUs of each type; one at least.
        mean_s: Largest mean time of a job, s; above 0.
    """
    from scipy.optimize import linprog

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
    largest_j = float(energy_j[runs].max())
    costs = [*(jobs * energy_j[rows, types]), BEYOND * largest_j, BEYOND * largest_j]
    available = np.array(gpus, float)
    beyond = np.column_stack([-np.ones(len(gpus)), np.zeros(len(gpus))])
    limits = [np.column_stack([of_type / available[:, None], beyond])]
    bounds = [np.ones(len(gpus))]
    if math.isfinite(mean_s):
        limits.append(np.array([[*(jobs * time_s[rows, types] / mean_s), 0.0, -1.0]]))
        bounds.append(np.ones(1))
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
    prices = -solved.ineqlin.marginals  # J a job of the mix, for all GPUs of a type
    return TypeShares(
        shares,
        float(solved.x[:-2] @ costs[:-2]) * total,
        tuple(_round(price * total / each) for price, each in zip(prices, available, strict=False)),
    )


def _round(value: float) -> float:
    return float(f"{max(value, 0.0):.{DIGITS}g}")
