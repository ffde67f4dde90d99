"""Jobs that wait for cleaner hours: never too late, never for nothing, at the offline optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.select_worlds import Pool, Ran, World, make_job
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.forecasting import ForecastConfig
from wattkeeper.policies.forecasts.history import HistoryConfig
from wattkeeper.policies.forecasts.perfect import PerfectConfig
from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.select.carbon_aware import CarbonAwareConfig, Outlook, best_start
from wattkeeper.policies.signals import SignalView
from wattkeeper.sim.kernel.clock import FixedTime
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams

HOUR_S, DAY_S = 3600.0, 86400.0


def make_signal(values: list[float], forecast: ForecastConfig) -> Signal:
    """Hourly values that repeat."""
    starts = np.arange(len(values), dtype=np.float64) * HOUR_S
    end_s = HOUR_S * len(values)
    series = SignalSeries("carbon", starts, np.array(values), end_s, "g/kWh", end_s)
    return Signal(series, forecast, NamedStreams(1))


@dataclass
class Here:
    signal_source: Signal
    now_s: float = 0.0

    def signal(self, name: str) -> SignalView:
        return self.signal_source.view(FixedTime(self.now_s))


def run_jobs(config: CarbonAwareConfig, jobs: list[Job], signal: Signal, gpus: int = 10_000) -> Ran:
    world = World(config.build(), jobs, Pool(gpus))
    here = Here(signal)
    world.now = here  # type: ignore[assignment]
    world.ctx = cast("Context", here)
    return world.run()


def cost_of(values: list[float], start_s: float, run_s: float) -> float:
    """Integral of hourly values that repeat."""
    total, time_s = 0.0, start_s
    while time_s < start_s + run_s - 1e-9:
        hour = math.floor(time_s / HOUR_S + 1e-9)
        end_s = min((hour + 1) * HOUR_S, start_s + run_s)
        total += values[hour % len(values)] * (end_s - time_s)
        time_s = end_s
    return total


DAYS = st.lists(st.integers(-20, 100).map(float), min_size=24, max_size=24)
JOBS = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(1, 50_000), st.integers(0, 40)),
    min_size=1,
    max_size=12,
)
FORECASTS = st.sampled_from([PerfectConfig(), HistoryConfig(), PersistenceConfig()])


def make_jobs(rows: list[tuple[int, int, int]]) -> list[Job]:
    """Jobs of a submission, a run time, and a slack in tenths; none: no deadline."""
    return [
        make_job(
            number,
            float(submit_s),
            float(run_s),
            deadline_s=submit_s + (1 + tenths / 10) * run_s if tenths else math.nan,
        )
        for number, (submit_s, run_s, tenths) in enumerate(rows)
    ]


@given(DAYS, JOBS, FORECASTS, st.sampled_from(["fifo", "fjf", "easy-backfill"]))
def test_no_job_starts_after_its_latest_start(
    values: list[float], rows: list[tuple[int, int, int]], forecast: ForecastConfig, queue: str
) -> None:
    jobs = make_jobs(rows)
    config = CarbonAwareConfig.model_validate({"queue": queue})
    ran = run_jobs(config, jobs, make_signal(values, forecast))
    assert sorted(ran.end_s) == [job.number for job in jobs]
    for job in jobs:
        start_s = ran.first_start_s[job.number]
        if math.isnan(job.deadline_s):
            assert start_s == job.submit_time_s
        else:
            assert job.submit_time_s <= start_s <= job.deadline_s - job.duration_s + 1e-6


@given(DAYS, JOBS)
def test_the_oracle_has_the_cost_of_the_best_start(
    values: list[float], rows: list[tuple[int, int, int]]
) -> None:
    jobs = make_jobs(rows)
    ran = run_jobs(CarbonAwareConfig(), jobs, make_signal(values, PerfectConfig()))
    for job in jobs:
        if math.isnan(job.deadline_s):
            continue
        submit_s, run_s = job.submit_time_s, job.duration_s
        latest_s = job.deadline_s - run_s
        borders = [HOUR_S * hour for hour in range(200)]
        starts = [submit_s, latest_s, *borders, *(border - run_s for border in borders)]
        least = min(cost_of(values, s, run_s) for s in starts if submit_s <= s <= latest_s)
        found = cost_of(values, ran.first_start_s[job.number], run_s)
        assert found == pytest.approx(least, rel=1e-9, abs=1e-4)


@given(DAYS, JOBS, FORECASTS, st.integers(1, 3))
def test_a_full_cluster_loses_nothing(
    values: list[float], rows: list[tuple[int, int, int]], forecast: ForecastConfig, gpus: int
) -> None:
    jobs = make_jobs(rows)
    first, second = (
        run_jobs(CarbonAwareConfig(), jobs, make_signal(values, forecast), gpus) for _ in "ab"
    )
    assert sorted(first.end_s) == [job.number for job in jobs]
    assert first == second


def test_a_constant_signal_holds_no_job() -> None:
    jobs = [make_job(0, 100.0, 5000.0, deadline_s=90_000.0)]
    ran = run_jobs(CarbonAwareConfig(), jobs, make_signal([300.0] * 24, PerfectConfig()))
    assert ran.first_start_s == {0: 100.0}


def test_a_least_gain_lets_jobs_start_at_once() -> None:
    values = [100.0] * 12 + [90.0] * 12
    jobs = [make_job(0, 0.0, HOUR_S, deadline_s=DAY_S)]
    signal = make_signal(values, PerfectConfig())
    assert run_jobs(CarbonAwareConfig(), jobs, signal).first_start_s == {0: 12 * HOUR_S}
    ran = run_jobs(CarbonAwareConfig(least_gain=0.1), jobs, signal)
    assert ran.first_start_s == {0: 0.0}


def test_only_jobs_whose_plan_fails_are_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []

    def count(outlook: Outlook, latest_s: float, run_s: float) -> tuple[float, float]:
        planned.append(run_s)
        return best_start(outlook, latest_s, run_s)

    monkeypatch.setattr("wattkeeper.policies.select.carbon_aware.best_start", count)
    values: list[float] = [100.0 - hour for hour in range(24)]
    jobs = [make_job(n, float(n), HOUR_S, deadline_s=DAY_S) for n in range(200)]
    run_jobs(CarbonAwareConfig(), jobs, make_signal(values, PerfectConfig()))
    assert len(planned) <= 2 * len(jobs)


def test_a_job_without_an_estimate_is_refused() -> None:
    job = make_job(0, 0.0, HOUR_S, deadline_s=DAY_S, estimate_s=math.nan)
    with pytest.raises(PolicyError, match=r"job 0 has estimate_s nan"):
        run_jobs(CarbonAwareConfig(), [job], make_signal([1.0, 2.0] * 12, PerfectConfig()))


def test_an_outlook_begins_within_a_slot() -> None:
    values: Floats = np.array([4.0, 1.0])
    outlook = Outlook.of(1800.0, 3600.0, 3600.0, values)
    assert outlook.total.tolist() == [0.0, 7200.0, 10_800.0]
    assert best_start(outlook, 3600.0, 3600.0) == (3600.0, 3600.0)
