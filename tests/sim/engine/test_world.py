"""Runs repeat exactly, decisions change what follows, and SimPy processes run beside."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Event

from tests.support.messages import assert_states
from tests.support.world_views import any_world, collected
from tests.support.worlds import (
    Setting,
    attempts,
    build_world,
    by_job,
    chosen,
    decisions,
    run_world,
    spec,
    starts,
    steady,
    stub,
)
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Selection
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.engine.sources import RecurringSource
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.recording.recorder import UNITS_PER_WATT, whole_units
from wattkeeper.sim.recording.row_types import PowerChangeRow

FIRST_FIT = chosen().place.build()


@any_world
def test_the_same_world_twice(setting: Setting) -> None:
    one, other = setting.run(), setting.run()
    assert attempts(one) == attempts(other)
    assert decisions(one) == decisions(other)
    changes = one.recorder.events(PowerChangeRow), other.recorder.events(PowerChangeRow)
    for mine, others in zip(*changes, strict=True):
        np.testing.assert_array_equal(mine, others)
    results = [collected(setting, world) for world in (one, other)]
    assert results[0].digest == results[1].digest
    assert results[0].events == results[1].events


@pytest.mark.parametrize("workload", [None, "cnn"])
@pytest.mark.parametrize("select", ["fifo", "las"])
def test_a_world_that_ends_by_an_error_is_collected(workload: str | None, select: str) -> None:
    def fail_late(ctx: Context, wanted: Job, cluster: ClusterView) -> Placement:
        if wanted.job_id == "last":
            raise ZeroDivisionError
        where: Placement = FIRST_FIT.place(ctx, wanted, cluster)
        return where

    jobs = [job(f"{number}", workload=workload, duration_s=9.0) for number in range(5)]
    jobs.append(job("last", 5.0, workload=workload, duration_s=9.0))
    policy_set = chosen(select=select, place=stub("place", place=fail_late))
    before = count_worlds()
    with pytest.raises(PolicyError):
        run_world(jobs, by_job(steady()), spec(gpus_per_node=2), policy_set)
    assert count_worlds() == before


def test_a_world_whose_preempted_job_never_resumes_is_collected() -> None:
    class Once:
        """Preempts the first job when the second one comes, and starts none after that."""

        def __init__(self) -> None:
            self.jobs: list[Job] = []

        def on_submit(self, ctx: Context, submitted: Job) -> None:
            self.jobs.append(submitted)

        def select(self, ctx: Context, capacity: CapacityView) -> Selection:
            if len(self.jobs) == 1:
                self.jobs.append(self.jobs[0])
                return Selection((self.jobs[0],))
            if len(self.jobs) == 3:
                self.jobs.append(self.jobs[0])
                return Selection(preempt=(self.jobs[0],))
            return Selection()

    policy = Once()
    jobs = [job(str(number), 5.0 * number, workload=None, duration_s=9.0) for number in range(2)]
    select = stub("select", on_submit=policy.on_submit, select=policy.select)
    before = count_worlds()
    with pytest.raises(PolicyError, match="never placed"):
        run_world(jobs, by_job(steady()), spec(), chosen(select=select))
    assert count_worlds() == before


def count_worlds() -> int:
    gc.collect()
    return sum(type(kept) is World for kept in gc.get_objects())


def test_the_journal_tells_what_was_decided() -> None:
    policy_set = chosen(configure="zeus", tune="zeus-jit")
    world = run_world(RecurringSource({"cnn": 10}), None, None, policy_set)
    journal = decisions(world)
    assert [row.time_s for row in journal] == sorted(row.time_s for row in journal)
    kinds = {"configure": "zeus", "tune": "zeus-jit", "select": "fifo", "place": "first-fit"}
    assert {row.point: row.policy for row in journal} == kinds
    for row in attempts(world):
        about = [x for x in journal if (x.job_id, x.attempt) == (row.job_id, row.attempt)]
        (configured,) = (x.chose for x in about if x.point == "configure")
        assert f"batch_size={row.batch_size} " in configured
        last = [x.chose for x in about if x.point == "tune"][-1]
        assert last == f"power_limit_w={row.power_limit_w}"
        assert len([x for x in about if x.point in ("select", "place")]) == 2 * (row.attempt == 1)


@given(st.floats(-1e9, 1e9) | st.integers(-(2**53), 2**53).map(lambda n: n / 2 / UNITS_PER_WATT))
def test_power_is_rounded_to_whole_units_half_to_even(power_w: float) -> None:
    assert whole_units(power_w) == round(power_w * UNITS_PER_WATT)


def test_the_digest_of_what_was_seen_changes_with_it() -> None:
    def saw(gpus: int) -> list[int]:
        known = by_job(steady(), steady(gpus=2))
        world = run_world([job("a", gpus=gpus)], known, spec(gpus_per_node=2))
        return [row.saw for row in decisions(world)]

    assert saw(1) == saw(1)
    assert all(one != other for one, other in zip(saw(1)[1:], saw(2)[1:], strict=True))


def second_start(limit_w: float, **settings: Any) -> tuple[float, float]:
    """When the second of two jobs starts, and the energy of the first."""
    policy_set = chosen(tune=FixedPowerConfig(power_limit_w=limit_w))
    jobs = [job("a", duration_s=30.0), job("b", 1.0, duration_s=30.0)]
    world = run_world(jobs, by_job(steady()), None, policy_set, **settings)
    return starts(world)["b"], attempts(world)[0].energy_j


def test_simulated_a_decision_changes_the_queue_behind_it() -> None:
    (fast_s, fast_j), (slow_s, slow_j) = second_start(250.0), second_start(100.0)
    assert fast_s == 10.0
    assert slow_s == pytest.approx(10.0 * 2.5**0.5)
    assert slow_j < fast_j


def test_recorded_a_decision_leaves_the_queue_as_it_was() -> None:
    fast_s, fast_j = second_start(250.0, occupancy="recorded")
    slow_s, slow_j = second_start(100.0, occupancy="recorded")
    assert fast_s == slow_s == 30.0
    assert slow_j < fast_j


def test_a_job_of_no_recorded_duration_ends_when_it_starts() -> None:
    jobs = [job("a", duration_s=0.0), job("b", 0.0, duration_s=30.0)]
    world = run_world(jobs, by_job(steady()), occupancy="recorded")
    assert starts(world) == {"a": 0.0, "b": 0.0}
    assert world.env.now == 30.0
    first, second = attempts(world)
    assert first.energy_j == second.energy_j > 0


@pytest.mark.parametrize("duration_s", [5e-324, 1e-320, 1e-300, 1e-9])
def test_a_recorded_duration_that_is_too_short_for_its_energy_is_refused(duration_s: float) -> None:
    with pytest.raises(InputError) as refused:
        run_world([job("a", duration_s=duration_s)], by_job(steady()), occupancy="recorded")
    assert_states(str(refused.value), "GW", "durations")


def test_an_ordinary_process_may_run_in_the_same_environment() -> None:
    def world() -> World:
        jobs = [job("a"), job("b", 5.0), job("c", 10.0)]
        return build_world(jobs, by_job(steady()))

    alone, beside = world(), world()
    alone.run()
    seen: list[tuple[float, int]] = []

    def look() -> Generator[Event, Any, None]:
        for _ in range(8):
            yield beside.env.timeout(5.0)
            seen.append((beside.env.now, beside.cluster.free_gpus))

    beside.env.process(look())
    beside.run()
    assert attempts(beside) == attempts(alone)
    assert decisions(beside) == decisions(alone)
    assert [time_s for time_s, _ in seen] == [5.0 * n for n in range(1, 9)]
    assert dict(seen)[5.0] == dict(seen)[25.0] == 0
    assert dict(seen)[35.0] == 1
