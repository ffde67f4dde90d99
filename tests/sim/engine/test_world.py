"""The world keeps its promises, whatever the cluster, the jobs and the policies."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simpy import Event

from tests.support.worlds import (
    LIMITS_W,
    NEVER,
    AttemptRow,
    Setting,
    attempts,
    attempts_by_job,
    build_world,
    by_job,
    chosen,
    decided,
    decisions,
    job,
    profile,
    run_world,
    settings_of_worlds,
    spec,
    starts,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.profile import Curve, Profile
from wattkeeper.policies.protocols import (
    NEW,
    ClusterView,
    Configuration,
    Job,
    Knobs,
    Placement,
    Start,
)
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.recorder import UNITS_PER_WATT, whole_units
from wattkeeper.sim.engine.sources import RecurringSource
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.results.tables import RunResult, collect

any_world = given(setting=settings_of_worlds())
simulated = given(setting=settings_of_worlds(["simulated"]))
recorded = given(setting=settings_of_worlds(["recorded"]))


class Span(NamedTuple):
    """From when to when a job held which GPUs: nodes, their number, and which of shared ones."""

    job: Job
    from_s: float
    to_s: float
    slots: tuple[tuple[int, int, int], ...]


def slots_of(chose: str) -> tuple[tuple[int, int, int], ...]:
    """A placement as the journal shows it; `NEW` stands for whole GPUs."""
    found = []
    for slot in chose.split():
        node, _, rest = slot.partition(":")
        gpus, _, gpu = rest.partition("/")
        found.append((int(node), int(gpus), int(gpu) if gpu else NEW))
    return tuple(found)


def spans(setting: Setting, world: World) -> list[Span]:
    """Who held which GPUs when, from the journal: between placing, preempting and ending."""
    ended = {job_id: rows[-1].finish_time_s for job_id, rows in attempts_by_job(world).items()}
    held: dict[str, tuple[float, str]] = {}
    by_id = {one.job_id: one for one in setting.jobs}
    found: list[Span] = []

    def left(job_id: str, to_s: float) -> None:
        from_s, chose = held.pop(job_id)
        found.append(Span(by_id[job_id], from_s, to_s, slots_of(chose)))

    for row in decisions(world):
        if row.point == "place":
            assert row.job_id not in held, "it is placed while it holds GPUs"
            held[row.job_id] = row.time_s, row.chose
        elif row.point == "select" and row.chose == "preempt":
            left(row.job_id, row.time_s)
    for job_id in list(held):
        left(job_id, ended[job_id])
    return found


def held_between(found: list[Span], row: AttemptRow) -> float:
    """How long the job of an attempt held its GPUs during it, s."""
    return math.fsum(
        max(0.0, min(one.to_s, row.finish_time_s) - max(one.from_s, row.start_time_s))
        for one in found
        if one.job.job_id == row.job_id
    )


def fifo(setting: Setting, **others: str) -> Setting:
    """The same setting without a power cap, where jobs start in order and nobody is preempted."""
    config = replace(setting.policy_set, select=chosen().select)
    for point, kind in others.items():
        config = replace(config, **{point: getattr(chosen(**{point: kind}), point)})
    cluster = replace(setting.cluster, power_cap_w=None)
    return setting._replace(policy_set=config, cluster=cluster)


def placements(world: World) -> dict[str, dict[int, int]]:
    """GPUs by node of every job, where nobody is preempted."""
    return {
        job_id: {node: gpus for node, gpus, _ in slots_of(chose)}
        for _, job_id, chose in decided(world, "place")
    }


# --- GPUs


@any_world
def test_no_gpu_is_held_twice(setting: Setting) -> None:
    """Nor are more thousandths of a shared one than it has."""
    world, cluster = setting.run(), setting.cluster
    found = [one for one in spans(setting, world) if one.from_s < one.to_s]
    changes = [(one.from_s, 1, n) for n, one in enumerate(found)]
    changes += [(one.to_s, -1, n) for n, one in enumerate(found)]
    whole = [0] * cluster.nodes
    shared: list[dict[int, int]] = [{} for _ in whole]
    for _, sign, n in sorted(changes):
        for node, gpus, gpu in found[n].slots:
            if gpu == NEW:
                whole[node] += sign * gpus
                continue
            assert gpus == 1
            milli = shared[node].pop(gpu, 0) + sign * found[n].job.gpu_milli
            assert 0 <= milli <= 1000
            if milli:
                shared[node][gpu] = milli
        for node, _, _ in found[n].slots:
            assert whole[node] >= 0
            assert whole[node] + len(shared[node]) <= cluster.capacity[node]
    assert not any(whole)
    assert not any(shared)
    assert world.cluster.free_gpus == cluster.gpus
    assert world.cluster.free.tolist() == cluster.capacity.tolist()


@any_world
def test_a_gang_gets_all_its_gpus_or_none(setting: Setting) -> None:
    """All at once, on nodes of one type that it may run on, whenever it is placed."""
    world, cluster = setting.run(), setting.cluster
    found = spans(setting, world)
    for one in found:
        assert sum(gpus for _, gpus, _ in one.slots) == one.job.gpus
        assert all((gpu == NEW) == (one.job.gpu_milli == 1000) for _, _, gpu in one.slots)
        (kind,) = {int(cluster.node_type[node]) for node, _, _ in one.slots}
        assert kind in cluster.types_allowed(one.job.gpu_type)
    last = {one.job.job_id: one for one in sorted(found, key=lambda one: one.from_s)}
    kinds: dict[str, set[str]] = {}
    for one in found:
        kind = cluster.gpu_types[cluster.node_type[one.slots[0][0]]]
        kinds.setdefault(one.job.job_id, set()).add(kind)
    for job_id, rows in attempts_by_job(world).items():
        assert rows[-1].node_ids == sorted({node for node, _, _ in last[job_id].slots})
        for row in rows:
            asked = last[job_id].job
            assert (row.gpus, row.gpu_milli) == (asked.gpus, asked.gpu_milli)
            assert kinds[job_id] == {row.gpu_type}, "it goes on with another type"


def test_a_gang_larger_than_a_node_is_spread() -> None:
    known = by_job(steady(), steady(gpus=5))
    jobs = [job("small"), job("gang", gpus=5)]
    world = run_world(jobs, known, spec(nodes=3, gpus_per_node=2))
    assert starts(world) == {"small": 0.0, "gang": 0.0}
    assert placements(world) == {"small": {0: 1}, "gang": {0: 1, 1: 2, 2: 2}}


def test_a_job_that_holds_part_of_a_gpu_alone_may_be_preempted() -> None:
    part = job("part", duration_s=100.0).replace(workload=None, gpu_milli=500)
    whole = job("whole", 10.0, duration_s=5.0).replace(workload=None)
    world = run_world([part, whole], {}, None, chosen(select="srtf"))
    ended = {row.job_id: row.finish_time_s for row in attempts(world)}
    assert ended == {"part": 105.0, "whole": 15.0}


@pytest.mark.parametrize("select", ["dlas-gpu", "las", "srtf", "gittins"])
def test_a_job_that_others_left_no_place_waits(select: str) -> None:
    """Three are granted GPUs together; once two stand on different nodes, the third has no node."""

    def place(_: object, job: Job, cluster: ClusterView) -> Placement:
        node = int(np.argmax(cluster.free))
        return ((node, job.gpus, NEW),) if cluster.free[node] >= job.gpus else ()

    small = [job(name).replace(workload=None) for name in ("a", "b")]
    wide = job("wide", gpus=2, duration_s=20.0).replace(workload=None)
    policy_set = chosen(select=select, place=stub("place", place=place))
    world = run_world([*small, wide], {}, spec(nodes=2, gpus_per_node=2), policy_set)
    assert starts(world) == {"a": 0.0, "b": 0.0, "wide": 10.0}


# --- attempts


@any_world
def test_every_job_ends(setting: Setting) -> None:
    ended = attempts_by_job(setting.run())
    assert set(ended) == {one.job_id for one in setting.jobs}
    for rows in ended.values():
        assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
        assert not any(row.reached_target for row in rows[:-1])
        assert rows[-1].reached_target or len(rows) == setting.max_attempts


@any_world
def test_retries_follow_at_once(setting: Setting) -> None:
    for rows in attempts_by_job(setting.run()).values():
        for before, after in pairwise(rows):
            assert after.start_time_s == before.finish_time_s
            if not after.preemptions:
                assert after.node_ids == before.node_ids


@any_world
def test_preemptions_are_counted(setting: Setting) -> None:
    world = setting.run()
    told = [row for row in decisions(world) if row.chose == "preempt"]
    counted = {(row.job_id, row.attempt): row.preemptions for row in attempts(world)}
    assert sum(counted.values()) == len(told)
    for key, times in counted.items():
        assert times == sum((row.job_id, row.attempt) == key for row in told)


@any_world
def test_attempts_are_recorded_by_time_of_finishing(setting: Setting) -> None:
    world = setting.run()
    rows = attempts(world)
    assert [row.finish_time_s for row in rows] == sorted(row.finish_time_s for row in rows)
    by_id = {one.job_id: one for one in setting.jobs}
    for row in rows:
        submitted = by_id[row.job_id]
        assert row.submit_time_s == submitted.submit_time_s
        assert row.submit_time_s <= row.start_time_s <= row.finish_time_s
        assert (row.group_id, row.recurrence) == (submitted.group_id, submitted.recurrence)
        assert (row.time_scale, row.workload) == (submitted.time_scale, submitted.workload)
        assert row.replayed == ("duration" if row.workload is None else "profile")
        if row.workload is None:
            assert (row.epochs, row.batch_size, row.power_limit_w) == (None, None, None)
            assert (row.reached_target, row.early_stopped, row.profiled) == (True, False, False)
        else:
            early = not row.reached_target and epochs_of(row) < profile_of(setting, row).max_epochs
            assert row.early_stopped == early


def profile_of(setting: Setting, row: AttemptRow) -> Profile:
    assert row.workload is not None
    return setting.profiles[row.workload, row.gpus, row.gpu_type]


def curve_of(setting: Setting, row: AttemptRow) -> Curve:
    assert row.batch_size is not None
    return profile_of(setting, row).curves[row.batch_size]


def epochs_of(row: AttemptRow) -> int:
    assert row.epochs is not None
    return row.epochs


@any_world
def test_fifo_starts_jobs_in_order_of_submission(setting: Setting) -> None:
    world = fifo(setting).run()
    assert decided(world, "select") == [
        (starts(world)[one.job_id], one.job_id, "start") for one in setting.jobs
    ]
    started = starts(world)
    times = [started[one.job_id] for one in setting.jobs]
    assert times == sorted(times)


@any_world
def test_nobody_waits_while_the_head_of_the_queue_fits(setting: Setting) -> None:
    """A job starts when it is submitted, when the one before it starts, or when GPUs come free."""
    world = fifo(setting, place="first-fit").run()
    started = starts(world)
    freed = {rows[-1].finish_time_s for rows in attempts_by_job(world).values()}
    before = -math.inf
    for one in setting.jobs:
        start_s = started[one.job_id]
        assert start_s == max(one.submit_time_s, before) or start_s in freed
        before = start_s


# --- time and energy


def planned(setting: Setting, world: World) -> Iterator[tuple[AttemptRow, float, float]]:
    """Each attempt, and the seconds and joules of its work, by the profile or as recorded."""
    profiled = {
        (row.job_id, row.attempt): json.loads(row.chose.removeprefix("profile_w="))
        for row in decisions(world)
        if row.chose.startswith("profile_w=")
    }
    durations = {one.job_id: one.duration_s for one in setting.jobs}
    for row in attempts(world):
        if row.workload is None:
            duration_s = durations[row.job_id]
            busy_w = setting.cluster.power[row.gpu_type].busy_w
            assert busy_w is not None
            yield row, duration_s, busy_w * row.gpus * row.gpu_milli / 1000 * duration_s
            continue
        curve = curve_of(setting, row)
        limits = profiled.get((row.job_id, row.attempt), [])
        assert row.profiled == bool(limits)
        assert row.power_limit_w is not None
        epochs = [curve.epoch(row.power_limit_w)] * epochs_of(row)
        if limits and epochs:
            time_s, energy_j = np.mean([curve.epoch(limit) for limit in limits], axis=0).tolist()
            epochs[0] = time_s, energy_j
        time_s = math.fsum(epoch[0] for epoch in epochs) * row.time_scale
        yield row, time_s, math.fsum(epoch[1] for epoch in epochs) * row.time_scale


def idle_w(setting: Setting, row: AttemptRow) -> float:
    """What the GPUs of an attempt draw while it does not train, W."""
    return setting.cluster.power[row.gpu_type].idle_w * row.gpus * row.gpu_milli / 1000


@any_world
def test_time_and_energy_are_those_of_the_work(setting: Setting) -> None:
    """Whoever is preempted does the same work in the end, at the same cost."""
    world = setting.run()
    for row, time_s, energy_j in planned(setting, world):
        assert row.time_s == pytest.approx(time_s, rel=1e-9)
        all_j = energy_j + idle_w(setting, row) * row.overhead_s
        assert row.energy_j == pytest.approx(all_j, rel=1e-9)
        if row.workload is None:
            most_w = setting.cluster.power[row.gpu_type].busy_w or 0.0
            weighed_w = most_w * row.gpus * row.gpu_milli / 1000
        else:
            known = profile_of(setting, row)
            weighed_w = known.max_power_w * known.gpus
            fastest_s = min(curve_of(setting, row).time_per_epoch_s)
            assert row.time_s >= epochs_of(row) * fastest_s * row.time_scale * (1 - 1e-12)
            assert 0 <= epochs_of(row) <= known.max_epochs
        weighed = setting.eta * energy_j + (1 - setting.eta) * weighed_w * time_s
        assert row.cost == pytest.approx(weighed, rel=1e-9)


@any_world
def test_a_run_ends_at_a_recorded_number_of_epochs(setting: Setting) -> None:
    for row in attempts(setting.run()):
        if row.workload is None:
            continue
        curve = curve_of(setting, row)
        if row.reached_target:
            assert row.epochs in curve.epochs
        else:
            assert any(epochs_of(row) < epochs for epochs in curve.epochs)


@simulated
def test_simulated_a_job_holds_its_gpus_while_it_trains(setting: Setting) -> None:
    world = setting.run()
    found = spans(setting, world)
    for row in attempts(world):
        want_s = row.time_s + row.overhead_s
        assert held_between(found, row) == pytest.approx(want_s, rel=1e-9, abs=1e-9)
        if not row.preemptions:
            assert row.finish_time_s - row.start_time_s == pytest.approx(want_s, rel=1e-9, abs=1e-9)


@recorded
def test_recorded_a_job_holds_its_gpus_as_long_as_it_did(setting: Setting) -> None:
    durations = {one.job_id: one.duration_s for one in setting.jobs}
    world = setting.run()
    found = spans(setting, world)
    for row in attempts(world):
        want_s = durations[row.job_id] + row.overhead_s
        assert held_between(found, row) == pytest.approx(want_s, rel=1e-9, abs=1e-9)


@any_world
def test_overheads_are_those_of_waking_saving_and_restoring(setting: Setting) -> None:
    world, cluster = setting.run(), setting.cluster
    for row in attempts(world):
        waits = (row.attempt == 1) + row.preemptions
        start_s = max(cluster.checkpoint_s, cluster.wake_s if cluster.sleep_after_s is not None
                      else 0.0)  # fmt: skip
        most_s = waits * start_s + row.preemptions * cluster.restore_s
        assert 0 <= row.overhead_s <= most_s + 1e-9
        if not row.preemptions and row.attempt > 1:
            assert row.overhead_s == 0


def asleep(setting: Setting, world: World, from_s: float, to_s: float) -> list[float]:
    """How long each node slept, s: it was free for longer than it stays awake."""
    after_s = setting.cluster.sleep_after_s
    if after_s is None:
        return [0.0] * setting.cluster.nodes
    found = []
    for node in range(setting.cluster.nodes):
        mine = sorted(
            (one.from_s, one.to_s)
            for one in spans(setting, world)
            if any(slot[0] == node for slot in one.slots)
        )
        free_s, slept_s = 0.0, []
        for begin_s, end_s in [*mine, (math.inf, math.inf)]:
            if free_s + after_s < begin_s:
                asleep_s, woken_s = max(free_s + after_s, from_s), min(begin_s, to_s)
                slept_s.append(max(0.0, woken_s - asleep_s))
            free_s = max(free_s, end_s)
        found.append(math.fsum(slept_s))
    return found


@any_world
def test_energy_is_the_integral_of_power(setting: Setting) -> None:
    """That of the jobs, of GPUs that nobody holds, less what sleeping nodes save, times pue."""
    world, cluster = setting.run(), setting.cluster
    line = timeline_of(world)
    span_s = line.time_s[-1] - line.time_s[0]
    slept_s = asleep(setting, world, line.time_s[0], line.time_s[-1])
    energies = [row.energy_j for row in attempts(world)]
    held: list[float] = []
    for one in spans(setting, world):
        gpus = one.job.gpus * one.job.gpu_milli / 1000
        kind = cluster.gpu_types[cluster.node_type[one.slots[0][0]]]
        held.append(gpus * (one.to_s - one.from_s))
        energies.append(-cluster.power[kind].idle_w * held[-1])
    for node, slept in enumerate(slept_s):
        power = cluster.power[cluster.gpu_types[cluster.node_type[node]]]
        awake_j, asleep_j = power.idle_w * (span_s - slept), power.sleep_w * slept
        energies.append(float(cluster.capacity[node]) * (awake_j + asleep_j))
    whole_j = cluster.pue * math.fsum(energies)
    assert line.energy_j() == pytest.approx(whole_j, rel=1e-9, abs=1e-9)
    assert line.gpu_seconds() == pytest.approx(math.fsum(held), rel=1e-9, abs=1e-9)
    all_j = math.fsum(row.energy_j for row in attempts(world))
    metrics = collected(setting, world).metrics
    assert metrics["cluster_energy_j"] == line.energy_j()
    assert metrics["energy_j"] == pytest.approx(all_j, rel=1e-12)


@any_world
def test_timeline_stays_within_the_cluster_and_ends_idle(setting: Setting) -> None:
    world, cluster = setting.run(), setting.cluster
    line = timeline_of(world)
    assert (np.diff(line.time_s) > 0).all()
    assert line.time_s[0] == setting.jobs[0].submit_time_s
    assert line.time_s[-1] == max(row.finish_time_s for row in attempts(world))
    assert line.gpus_busy.min() >= 0
    assert line.gpus_busy.max() <= cluster.gpus
    assert line.jobs_waiting.min() >= 0
    assert line.jobs_waiting.max() <= len(setting.jobs)
    assert line.gpus_busy[-1] == line.jobs_waiting[-1] == 0
    waited_s = math.fsum(line.jobs_waiting[:-1] * np.diff(line.time_s))
    mean_s = collected(setting, world).metrics["queue_delay_s"]
    assert waited_s == pytest.approx(mean_s * len(setting.jobs), rel=1e-9, abs=1e-6)
    idle_w = whole_units(cluster.idle_power_w) / UNITS_PER_WATT * cluster.pue
    if cluster.sleep_after_s is None:
        assert line.power_w[-1] == idle_w
    else:
        assert line.power_w[-1] <= idle_w


def uneven() -> Setting:
    """An attempt whose power, before and after its profile, is no whole number of its units."""
    powers_w = (160.6635775767, 172.9496560984)
    assert not any((power_w * UNITS_PER_WATT).is_integer() for power_w in powers_w)
    curve = Curve(32, (150.0, 250.0), (3.2, 2.0), powers_w, (2.0,))
    return Setting(
        jobs=(job(),),
        profiles=by_job(steady()._replace(curves={32: curve})),
        cluster=spec(idle_power_w=0.0),
        policy_set=chosen(tune="zeus-jit"),
        eta=0.5,
        max_attempts=1,
        occupancy="simulated",
        profiling="measured",
        seed=1,
    )


@example(setting=uneven())
@any_world
def test_timeline_returns_to_exactly_the_idle_power(setting: Setting) -> None:
    cluster = replace(setting.cluster, sleep_after_s=None)
    line = timeline_of(setting._replace(cluster=cluster).run())
    idle = round(cluster.idle_power_w * UNITS_PER_WATT) / UNITS_PER_WATT
    assert line.power_w[-1] == idle * cluster.pue
    assert line.power_w.min() >= 0


# --- profiling


@given(setting=settings_of_worlds(["simulated"], ["measured"]))
def test_measured_an_attempt_that_profiles_runs_an_epoch(setting: Setting) -> None:
    policy_set = replace(setting.policy_set, configure=chosen(configure="zeus").configure)
    policy_set = replace(policy_set, tune=chosen(tune="zeus-jit").tune)
    rows = attempts(setting._replace(policy_set=policy_set).run())
    assert any(row.profiled for row in rows) == any(row.workload for row in rows)
    assert all(epochs_of(row) >= 1 for row in rows if row.profiled)


def bounded(cost_bound: float, batch_size: int = 32) -> PolicyConfig:
    config: PolicyConfig = stub(
        "configure",
        configure=lambda ctx, start: Configuration(batch_size, cost_bound=cost_bound),
    )
    return config


def test_measured_the_first_epoch_draws_the_mean_power() -> None:
    known = profile(runs={32: (4.0,)})
    curve = known.curves[32]
    cluster = spec(idle_power_w=0.0)
    world = run_world([job(scale=2.0)], by_job(known), cluster, chosen(tune="zeus-jit"))
    line = timeline_of(world)
    (row,) = attempts(world)
    points = [curve.epoch(limit) for limit in LIMITS_W]
    time_s, energy_j = (sum(values) / len(points) for values in zip(*points, strict=True))
    assert line.time_s.tolist() == pytest.approx([0.0, 2 * time_s, row.finish_time_s])
    kept_w = curve.average_power_w[curve.limits_w.index(row.power_limit_w)]
    assert line.power_w.tolist() == pytest.approx([energy_j / time_s, kept_w, 0.0], abs=1e-8)
    asked, told = decided(world, "tune")
    assert asked[0] == 0.0
    assert told[0] == pytest.approx(2 * time_s)
    assert row.profiled


def test_measured_the_profiling_epoch_is_run_even_without_room() -> None:
    known = profile(runs={32: (4.0,)})
    policy_set = chosen(configure=bounded(1e-6), tune="zeus-jit")
    world = run_world([job()], by_job(known), None, policy_set, max_attempts=2)
    first, second = attempts(world)
    assert (first.epochs, first.profiled, first.early_stopped) == (1, True, True)
    assert first.time_s == pytest.approx(np.mean(known.curves[32].time_per_epoch_s))
    assert (second.epochs, second.profiled, second.time_s) == (0, False, 0.0)


@pytest.mark.parametrize("tune", ["zeus-jit", "max-power"])
def test_foreknown_without_room_nothing_runs(tune: str) -> None:
    known = by_job(profile(runs={32: (4.0,)}))
    policy_set = chosen(configure=bounded(1e-6), tune=tune)
    jobs = [job(), job("b", 1.0)]
    world = run_world(jobs, known, None, policy_set, profiling="foreknown", max_attempts=3)
    rows = attempts(world)
    assert [(row.job_id, row.attempt) for row in rows] == [(x, n) for x in "ab" for n in (1, 2, 3)]
    for row in rows:
        assert (row.epochs, row.time_s, row.energy_j, row.cost) == (0, 0.0, 0.0, 0.0)
        assert row.start_time_s == row.finish_time_s == row.submit_time_s
        assert row.early_stopped
        assert not row.reached_target
    line = timeline_of(world)
    assert line.energy_j() == pytest.approx(20.0)


@pytest.mark.parametrize("profiling", ["measured", "foreknown"])
def test_recorded_a_profile_is_known_before_it_is_measured(profiling: str) -> None:
    settings: dict[str, Any] = {"occupancy": "recorded", "profiling": profiling}
    policy_set = chosen(tune="zeus-jit")
    jobs = [job(duration_s=30.0, scale=1.5)]
    world = run_world(jobs, by_job(profile()), None, policy_set, **settings)
    (row,) = attempts(world)
    assert row.profiled
    assert (row.start_time_s, row.finish_time_s) == (0.0, 30.0)
    assert [time_s for time_s, _, _ in decided(world, "tune")] == [0.0, 0.0]
    assert timeline_of(world).power_w[0] == pytest.approx(row.energy_j / 30.0)


def test_recorded_what_never_ran_holds_its_gpus_and_draws_nothing() -> None:
    policy_set = chosen(configure=bounded(1e-6))
    cluster = spec(idle_power_w=0.0)
    known = by_job(steady())
    world = run_world([job()], known, cluster, policy_set, occupancy="recorded", max_attempts=2)
    rows = attempts(world)
    assert [(row.start_time_s, row.finish_time_s) for row in rows] == [(0.0, 10.0), (10.0, 20.0)]
    assert timeline_of(world).energy_j() == 0.0


@pytest.mark.parametrize("room", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("limit_w", [100.0, 250.0])
def test_an_attempt_stops_before_the_epoch_that_would_cross_its_bound(
    room: int, limit_w: float
) -> None:
    """Time is weighed by the highest limit of the batch size, whatever it runs at."""
    known = steady(epochs=5.0)._replace(max_power_w=400.0)
    time_s, energy_j = known.curves[32].epoch(limit_w)
    epoch_cost = 0.5 * energy_j + 0.5 * 250.0 * time_s
    policy_set = chosen(
        configure=bounded((room + 0.1) * epoch_cost), tune=FixedPowerConfig(power_limit_w=limit_w)
    )
    (row,) = attempts(run_world([job()], by_job(known), None, policy_set, max_attempts=1))
    assert row.epochs == min(room, 5)
    assert row.reached_target == (room >= 5)
    assert row.early_stopped == (room < 5)


def test_a_run_that_never_reaches_is_given_up_after_its_last_epoch() -> None:
    known = profile(runs={32: (NEVER, 11.0)}, max_epochs=10)
    rows = attempts(run_world([job()], by_job(known), max_attempts=3))
    assert [row.epochs for row in rows] == [10, 10, 10]
    assert not any(row.reached_target or row.early_stopped for row in rows)


# --- the same again


def collected(setting: Setting, world: World) -> RunResult:
    return collect(
        "v", setting.seed, world.recorder, world.source, setting.cluster, {}, world.env.events
    )


@any_world
def test_the_same_world_twice(setting: Setting) -> None:
    one, other = setting.run(), setting.run()
    assert attempts(one) == attempts(other)
    assert decisions(one) == decisions(other)
    changes = one.recorder.changes(), other.recorder.changes()
    for mine, others in zip(*changes, strict=True):
        np.testing.assert_array_equal(mine, others)
    results = [collected(setting, world) for world in (one, other)]
    assert results[0].digest == results[1].digest
    assert results[0].events == results[1].events


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


# --- a decision changes the queue behind it


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


# --- what is refused


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    jobs = [job("a"), job("big", 5.0, gpus=5)]
    with pytest.raises(InputError, match=r"job big asks for 5 GPUs, the cluster has 4"):
        run_world(jobs, by_job(steady(), steady(gpus=5)), spec(nodes=2, gpus_per_node=2))


def test_recorded_needs_a_cluster_that_is_large_enough() -> None:
    jobs = [job("a"), job("b", 5.0)]
    settings: dict[str, Any] = {"occupancy": "recorded", "start_on_submit": True}
    with pytest.raises(InputError, match=r"job b finds 0 of 1 GPUs free at 5 s and asks for 1"):
        run_world(jobs, by_job(steady()), spec(), **settings)
    world = run_world(jobs, by_job(steady()), spec(gpus_per_node=2), **settings)
    assert starts(world) == {"a": 0.0, "b": 5.0}


def configures(*answer: Any) -> Any:
    return stub("configure", configure=lambda ctx, start: Configuration(*answer))


def tunes(answer: Knobs) -> Any:
    return stub("tune", tune=lambda ctx, running: answer)


def places(*answer: tuple[int, int]) -> Any:
    slots = tuple((node, gpus, NEW) for node, gpus in answer)
    return stub("place", place=lambda ctx, job, cluster: slots)


@pytest.mark.parametrize(
    ("point", "config", "message"),
    [
        ("configure", configures(33), "batch size 33 for a .* there is 16, 32$"),
        ("configure", configures(32, 125.0), "limit 125 W .* batch size 32, .* 100, 150, 250 W$"),
        ("configure", configures(32, math.nan), "power limit nan W"),
        ("configure", FixedConfig(batch_size=64), "batch size 64 "),
        ("tune", FixedPowerConfig(power_limit_w=149.0), "power limit 149 W .* cnn"),
        ("tune", tunes(Knobs()), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(250.0, (250.0,))), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(profile_w=(250.0,))), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(profile_w=(250.0, 99.0))), "power limit 99 W"),
        ("place", places((0, 3)), "job a asks for 2 GPUs, placed on"),
        ("place", places((2, 1), (0, 1)), "job a: 1 GPUs on node 2 are not free"),
        ("place", places((-1, 1), (0, 1)), "job a: 1 GPUs on node -1 are not free"),
        ("place", places((0, 0), (1, 2)), "job a: 0 GPUs on node 0 are not free"),
        ("place", places((0, 2), (0, 1), (1, -1)), "job a is placed twice on one node"),
        ("place", places((0, 1)), "job a asks for 2 GPUs, placed on"),
        ("place", places((0, 2), (1, 1)), "job a asks for 2 GPUs, placed on"),
    ],
)
@pytest.mark.parametrize("profiling", ["measured", "foreknown"])
def test_a_choice_that_is_not_allowed(
    point: str, config: PolicyConfig, message: str, profiling: str
) -> None:
    known = by_job(profile(runs={16: (2.0,), 32: (2.0,)}, gpus=2))
    cluster = spec(nodes=2, gpus_per_node=2)
    with pytest.raises(PolicyError, match=message) as caught:
        run_world([job(gpus=2)], known, cluster, chosen(**{point: config}), profiling=profiling)
    assert caught.value.point == point
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("bound", [-1.0, -math.inf, math.nan])
def test_a_bound_below_nothing_is_not_allowed(bound: float) -> None:
    with pytest.raises(PolicyError) as caught:
        run_world([job()], by_job(steady()), None, chosen(configure=bounded(bound)))
    assert caught.value.point == "configure"


def test_foresight_must_be_declared() -> None:
    def peek(ctx: Any, start: Start) -> Configuration:
        return Configuration(ctx.foresight(start).default_batch_size)

    with pytest.raises(PolicyError, match="'stub' declares no foresight") as caught:
        run_world([job()], None, None, chosen(configure=stub("configure", configure=peek)))
    assert caught.value.point == "configure"
    honest = stub("configure", needs_foresight=True, configure=peek)
    assert attempts(run_world([job()], None, None, chosen(configure=honest)))


def test_the_view_of_the_cluster_cannot_be_written() -> None:
    view = Cluster(spec(nodes=2))
    for shown in (view.free, view.capacity, view.node_type):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 9


# --- an ordinary process beside the world


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
