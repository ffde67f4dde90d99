"""The division of workloads between GPU types: no other one that is possible takes less energy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.planning.assignment import WorkloadDemand, assign

pytest.importorskip("scipy", reason="scipy is not installed: pip install 'wattkeeper[pipeline]'")


@st.composite
def mixes(draw: st.DrawFn) -> list[WorkloadDemand]:
    types = 3
    demands = []
    for _ in range(draw(st.integers(1, 4))):
        times = draw(st.lists(st.floats(10, 1000), min_size=types, max_size=types))
        powers = draw(st.lists(st.floats(50, 700), min_size=types, max_size=types))
        absent = draw(st.integers(0, types))  # of which there is no profile; `types`: all are there
        if absent < types:
            times[absent] = math.inf
        energies = [
            0.0 if math.isinf(time) else time * power
            for time, power in zip(times, powers, strict=True)
        ]
        gpus, rate = draw(st.integers(1, 8)), draw(st.floats(1e-4, 1e-2))
        demands.append(WorkloadDemand(rate, gpus, tuple(times), tuple(energies)))
    return demands


def load(demands: list[WorkloadDemand], shares: Any) -> Any:
    """Busy GPUs of each type."""
    times = np.array([demand.time_s for demand in demands])
    rates = np.array([demand.jobs_per_s * demand.gpus for demand in demands])
    return (np.where(np.isinf(times), 0, times) * shares * rates[:, None]).sum(0)


def power(demands: list[WorkloadDemand], shares: Any) -> float:
    energies = np.array([demand.energy_j for demand in demands])
    rates = np.array([demand.jobs_per_s for demand in demands])
    return float((energies * shares * rates[:, None]).sum())


@given(mixes(), st.lists(st.floats(5, 200), min_size=3, max_size=3), st.randoms())
def test_no_other_division_takes_less_energy(
    demands: list[WorkloadDemand], gpus: list[float], source: Any
) -> None:
    found = assign(demands, gpus)
    assert found.shares.sum(1) == pytest.approx(1)
    assert power(demands, found.shares) == pytest.approx(found.power_w)
    possible = np.isfinite([demand.time_s for demand in demands])
    assert not found.shares[~possible].any()
    if (load(demands, found.shares) > np.array(gpus) * (1 + 1e-6)).any():
        return  # there are too few
    for _ in range(20):
        other = np.where(possible, [[source.uniform(0.01, 1) for _ in gpus] for _ in demands], 0)
        other /= other.sum(1, keepdims=True)
        if (load(demands, other) <= gpus).all():
            assert power(demands, other) >= found.power_w * (1 - 1e-6)

    # Each workload is where its energy and the price of its GPU time are least.
    for demand, shares in zip(demands, found.shares, strict=True):
        costs = np.array(demand.energy_j) + np.array(found.gpu_prices_w) * demand.gpus * np.array(
            [time if math.isfinite(time) else 0.0 for time in demand.time_s]
        )
        costs[~np.isfinite(demand.time_s)] = math.inf
        used = shares > 1e-6
        assert costs[used] == pytest.approx(costs.min(), rel=1e-4)


def test_a_limit_of_the_mean_time_is_paid_in_energy() -> None:
    demand = WorkloadDemand(0.01, 1, (100.0, 200.0), (3000.0, 2000.0))
    free = assign([demand], [10, 10])
    assert free.shares[0] == pytest.approx([0, 1])
    limited = assign([demand], [10, 10], 150)
    assert limited.shares[0] == pytest.approx([0.5, 0.5])
    assert assign([demand], [10, 10], 50).shares[0] == pytest.approx([1, 0])  # as near as it can


def test_a_gpu_costs_what_another_one_would_save() -> None:
    """Ten jobs of 100 s in 1,000 s; one GPU in place of each two saves 1,000 J a job."""
    demand = WorkloadDemand(0.01, 1, (100.0, 100.0), (1000.0, 2000.0))
    found = assign([demand], [0.5, 10])
    assert found.shares[0] == pytest.approx([0.5, 0.5])
    assert found.gpu_prices_w == pytest.approx((10, 0))  # 1,000 J in each 100 s of a GPU
