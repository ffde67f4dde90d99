"""Nodes become slow: jobs keep the pace of their slowest node, and energy is that of power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.engine.test_node_losses import SlowClock, down, loss_rules, plain, run, spans, up
from tests.sim.engine.test_pipelines import FASTEST, ITERATIONS, KNOWN, ROOM, TASK, pipeline
from tests.support.examples import examples
from tests.support.world_views import collected
from tests.support.worlds import (
    Setting,
    attempts,
    by_job,
    chosen,
    decided,
    run_world,
    settings_of_worlds,
    spec,
    steady,
    stub,
)
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.cluster_results.columns import recorded_columns
from wattkeeper.sim.engine.features.stragglers import Slowdown
from wattkeeper.sim.engine.world import World


def slow(time_s: float, factor: float, node: int = 0) -> NodeChange:
    return NodeChange(time_s, "degraded", node, factor=factor)


def slow_s(world: World) -> list[float]:
    columns = recorded_columns(world.recorder, world.cluster.spec)
    if "slow_s" not in columns:
        return [0.0] * len(columns["time_s"])
    values: list[float] = columns["slow_s"].to_pylist()
    return values


# --- one job


def test_a_slow_node_makes_a_job_take_longer_at_the_same_power() -> None:
    """From 20 to 60 s half as much is done as else: 20 s are added."""
    world = run([plain("a", 0.0, 100.0)], [slow(20.0, 2.0), slow(60.0, 1.0)], LossRules())
    (row,) = attempts(world)
    assert (row.finish_time_s, row.time_s, row.overhead_s) == (120.0, 100.0, 20.0)
    assert row.energy_j == 250 * 120.0
    assert slow_s(world) == [20.0]
    assert decided(world, "node") == [(20.0, "a", "slowdown=2.0"), (60.0, "a", "slowdown=1.0")]
    found = [(r.time_s, r.event, r.factor, r.jobs) for r in world.recorder.node_changes]
    assert found == [(20.0, "degraded", 2.0, 1), (60.0, "degraded", 1.0, 1)]


def test_a_training_takes_longer_and_policies_hear_of_it_as_profiled() -> None:
    """Five epochs of 2 s."""
    world = run([job("a")], [slow(3.0, 1.5)], LossRules(), profiles=by_job(steady(5.0, 2.0)))
    (row,) = attempts(world)
    assert (row.finish_time_s, row.epochs, row.time_s) == (3 + 7 * 1.5, 5, 10.0)
    assert row.energy_j == pytest.approx(180.0 * 13.5)
    assert row.cost == pytest.approx(0.5 * 180 * 10 + 0.5 * 250 * 10)


def test_a_job_on_several_nodes_keeps_the_pace_of_the_slowest() -> None:
    changes = [slow(10.0, 2.0, 0), slow(20.0, 4.0, 1), slow(40.0, 1.0, 0), slow(60.0, 1.0, 1)]
    cluster = spec(nodes=3)
    jobs = [plain("a", 0.0, 100.0, gpus=2), plain("b", 0.0, 30.0)]
    world = run(jobs, changes, LossRules(), cluster=cluster)
    rows = {row.job_id: row for row in attempts(world)}
    assert rows["a"].finish_time_s == 60 + (100 - 10 - 10 / 2 - 40 / 4)
    assert rows["b"].finish_time_s == 30.0
    assert [row.jobs for row in world.recorder.node_changes] == [1, 1, 0, 1]


def test_a_job_that_starts_or_goes_on_elsewhere_has_the_pace_of_its_new_nodes() -> None:
    """Job a starts at 5 s on the slow node; it is preempted, and goes on on the other one."""
    jobs = [plain("x", 0.0, 6.0), plain("a", 5.0, 10.0), plain("y", 6.0, 1.0)]
    world = run(
        jobs,
        [slow(1.0, 2.0, 1)],
        LossRules(),
        cluster=spec(nodes=2),
        policy_set=chosen(select="srtf"),
    )
    rows = {row.job_id: row for row in attempts(world)}
    assert rows["a"].node_ids == [1]
    assert rows["a"].finish_time_s == 5 + 2 * 10
    jobs = [plain("a", 0.0, 10.0), plain("b", 2.0, 1.0), plain("c", 2.0, 2.0)]
    world = run(
        jobs,
        [slow(0.0, 2.0, 0)],
        LossRules(),
        cluster=spec(nodes=2),
        policy_set=chosen(select="srtf"),
    )
    rows = {row.job_id: row for row in attempts(world)}
    assert rows["a"].preemptions == 1
    assert rows["a"].node_ids == [1]
    assert slow_s(world)[-1] == 1.0  # from 0 to 2 s alone
    assert rows["a"].finish_time_s == 3 + 9


def test_a_node_that_came_back_is_not_slow_any_more() -> None:
    changes = [slow(5.0, 2.0), down(10.0), up(20.0)]
    world = run([plain("a", 0.0, 100.0)], changes, LossRules(CheckpointRule(5.0, 0.0)))
    assert spans(world) == [(0.0, 10.0), (20.0, 20.0 + 100 - 5.0)]
    assert slow_s(world) == [2.5, 0.0]


def test_at_one_time_a_job_ends_before_its_node_becomes_slow_and_arrivals_find_it_slow() -> None:
    jobs = [plain("a", 0.0, 5.0), plain("b", 5.0, 5.0)]
    world = run(jobs, [slow(5.0, 3.0)], LossRules())
    assert spans(world) == [(0.0, 5.0), (5.0, 20.0)]
    assert slow_s(world) == [0.0, 10.0]


def test_slowness_is_no_event_an_epoch() -> None:
    def events(epochs: float) -> int:
        changes = [slow(3.0, 1.5), slow(7.0, 1.0)]
        known = by_job(steady(epochs, 100.0 / epochs, max_epochs=2000))
        return run([job("a")], changes, LossRules(), profiles=known).env.events

    assert events(5.0) == events(1000.0)


def test_only_training_is_slowed_down() -> None:
    """Reading the checkpoint takes 4 s at any pace."""
    rules = LossRules(CheckpointRule(10.0, 0.0), read_s=4.0)
    changes = [down(10.0), up(20.0), slow(21.0, 2.0)]
    world = run([plain("a", 0.0, 15.0)], changes, rules)
    assert spans(world) == [(0.0, 10.0), (20.0, 24.0 + 2 * 5)]


def test_a_job_paused_by_tune_goes_on_at_the_pace_of_its_nodes() -> None:
    """Paused from 10 to 20 s, with its GPUs or without."""

    def tune(ctx: Context, running: Running) -> Knobs:
        if running.moment == "start":
            return Knobs(250.0, wake_s=10.0)
        return Knobs(run="pause", wake_s=20.0) if ctx.now_s == 10 else Knobs()

    policy_set = chosen(
        tune=stub("tune", limits_unprofiled=True, moments=("start", "wake"), tune=tune)
    )
    for holds in (True, False):
        changes = [slow(15.0, 2.0)]
        world = run(
            [plain("a", 0.0, 30.0)], changes, LossRules(), policy_set=policy_set, holds_pauses=holds
        )
        (row,) = attempts(world)
        assert row.finish_time_s == 20 + 2 * 20
        assert slow_s(world) == [20.0]


def test_a_power_limit_and_slowness_change_independently() -> None:
    """At 100 W it has a speed of sqrt(100 / 250)."""

    def tune(ctx: Context, running: Running) -> Knobs:
        return Knobs(250.0, wake_s=20.0) if running.moment == "start" else Knobs(100.0)

    config = stub("tune", limits_unprofiled=True, moments=("start", "wake"), tune=tune)
    changes = [slow(10.0, 2.0), slow(30.0, 1.0)]
    world = run([plain("a", 0.0, 40.0)], changes, LossRules(), policy_set=chosen(tune=config))
    (row,) = attempts(world)
    speed = math.sqrt(100 / 250)
    left_s = (40 - 10 - 10 / 2 - 10 / 2 * speed) / speed
    assert row.finish_time_s == pytest.approx(30 + left_s)
    assert row.energy_j == pytest.approx(250 * 20 + 100 * (10 + left_s))


# --- what `Place` sees


def test_a_change_of_nodes_is_seen_by_jobs_that_wait() -> None:
    """A policy that takes no slow node, and one that takes only a node that gave notice."""

    def no_slow(_: Context, one: Job, cluster: ClusterView) -> Placement:
        fit = (cluster.free >= one.gpus) & (cluster.slowdowns == 1)
        return ((int(fit.argmax()), one.gpus, NEW),) if fit.any() else ()

    def noticed(_: Context, one: Job, cluster: ClusterView) -> Placement:
        fit = (cluster.free >= one.gpus) & (cluster.deadlines_s < 50)
        return ((int(fit.argmax()), one.gpus, NEW),) if fit.any() else ()

    jobs = [plain("a", 1.0, 5.0), plain("b", 2.0, 5.0)]
    changes = [slow(0.0, 1.1), slow(10.0, 1.0)]
    policy_set = chosen(place=stub("place", place=no_slow))
    world = run(jobs, changes, LossRules(), policy_set=policy_set)
    assert spans(world) == [(10.0, 15.0), (15.0, 20.0)]
    notice = NodeChange(12.0, "notice", 1, deadline_s=40.0)
    policy_set = chosen(place=stub("place", place=noticed))
    world = run(jobs, [notice], LossRules(), policy_set=policy_set, cluster=spec(nodes=2))
    assert [(row.start_time_s, row.node_ids) for row in attempts(world)] == [
        (12.0, [1]),
        (17.0, [1]),
    ]


def test_jobs_start_on_steady_nodes_and_lose_less() -> None:
    """Node 0 gives notice 5 s before job b starts, node 1 is slow."""
    notice = NodeChange(5.0, "notice", 0, deadline_s=20.0)
    changes = [slow(1.0, 2.0, 1), notice, down(20.0, 0), up(30.0, 0)]
    jobs = [plain("b", 10.0, 20.0), plain("c", 10.0, 20.0)]
    lost, ends = {}, {}
    for place in ("first-fit", "steady"):
        world = run(
            jobs, changes, LossRules(), policy_set=chosen(place=place), cluster=spec(nodes=4)
        )
        lost[place] = sum(row.lost_gpu_s for row in world.recorder.node_changes)
        ends[place] = [row.finish_time_s for row in attempts(world)]
    assert lost == {"first-fit": 10.0, "steady": 0.0}
    assert ends == {"first-fit": [20.0, 40.0, 50.0], "steady": [30.0, 30.0]}


def test_racks_are_those_of_the_losses() -> None:
    racks = (0, 0, 1, 1)
    losses = RunLosses(LossRules(), iter([down(1.0, 0), NodeChange(2.0, "up", 0, rack=7)]), racks)
    world = run_world([plain("a", 0.0, 5.0)], cluster=spec(nodes=4), losses=losses)
    assert world.cluster.racks.tolist() == [7, 0, 1, 1]


# --- pipeline-parallel jobs


def test_a_slow_node_is_a_straggler_of_a_pipeline_parallel_job() -> None:
    """The same as one elsewhere; of both, the slower one sets the pace."""
    half_s = 10 * FASTEST.time_s
    world = run_world(
        [pipeline()], KNOWN, ROOM, losses=RunLosses(LossRules(), iter([slow(half_s, 1.5)]))
    )
    (row,) = attempts(world)
    assert row.finish_time_s == pytest.approx(half_s * 2.5)
    waits_j = TASK.waiting_w * FASTEST.time_s * 0.5
    assert row.energy_j == pytest.approx(ITERATIONS * FASTEST.energy_j + 10 * waits_j)
    elsewhere = run_world([pipeline()], KNOWN, ROOM, stragglers={"a": (Slowdown(half_s, 1.5),)})
    assert attempts(elsewhere)[0].energy_j == pytest.approx(row.energy_j)
    both = run_world(
        [pipeline()],
        KNOWN,
        ROOM,
        losses=RunLosses(LossRules(), iter([slow(0.0, 1.2)])),
        stragglers={"a": (Slowdown(half_s, 1.5), Slowdown(2 * half_s, 1.0))},
    )
    done = 10 / 1.2 + 10 / 1.5
    assert attempts(both)[0].finish_time_s == pytest.approx(
        2 * half_s + (ITERATIONS - done) * 1.2 * FASTEST.time_s
    )


def test_tune_is_asked_when_a_node_of_a_pipeline_parallel_job_becomes_slow() -> None:
    perseus = policies("tune")["perseus"].model_validate({})
    changes = [slow(1.0, 1.3), slow(20.0, 1.0)]
    world = run_world(
        [pipeline()],
        KNOWN,
        ROOM,
        chosen(tune=perseus),
        losses=RunLosses(LossRules(), iter(changes)),
    )
    assert [time_s for time_s, *_ in decided(world, "tune")] == [0.0, 1.0, 20.0]


# --- against a slow replay


UNITS = 12
"""Of a second: a factor of 1, 2, 3, 4, 6 makes a second a whole number of them."""


class Replayed(NamedTuple):
    """What a job did: start and end of each attempt, and what each lost, and waited for."""

    spans: list[tuple[float, float]]
    lost_s: list[float]
    slow_s: list[float]


def replay(duration_s: int, rule: CheckpointRule, changes: Sequence[NodeChange]) -> Replayed:
    """A job on one node, a twelfth of a second of its work after the other."""
    scaled = rule._replace(every_s=rule.every_s * UNITS, write_s=rule.write_s * UNITS)
    done = Replayed([], [], [])
    factor, clock, begun_s, kept = 1, SlowClock(scaled), 0, 0
    is_up, at = True, 0
    waited_s = 0.0
    for now_s in range(10_000):
        while at < len(changes) and changes[at].time_s == now_s:
            change, at = changes[at], at + 1
            if change.event == "degraded":
                factor = int(change.factor)
            elif change.event == "down":
                lost = clock.trained - clock.saved
                done.spans.append((begun_s, now_s))
                done.lost_s.append(lost / UNITS)
                done.slow_s.append(waited_s)
                kept += clock.saved
                is_up, factor = False, 1
            else:
                is_up, begun_s, waited_s, clock = True, now_s, 0.0, SlowClock(scaled)
        for unit in range(UNITS // factor if is_up else 0):
            if kept + clock.trained == duration_s * UNITS:
                end_s = now_s + unit * factor / UNITS
                waited_s += (end_s - now_s) * (1 - 1 / factor)
                return _end(done, begun_s, end_s, waited_s)
            clock.step()
        waited_s += is_up * (1 - 1 / factor)
        if kept + clock.trained == duration_s * UNITS and is_up:
            return _end(done, begun_s, now_s + 1, waited_s)
    raise AssertionError("it does not end")


def _end(done: Replayed, begun_s: float, end_s: float, waited_s: float) -> Replayed:
    done.spans.append((begun_s, end_s))
    done.lost_s.append(0.0)
    done.slow_s.append(waited_s)
    return done


@st.composite
def courses(draw: st.DrawFn) -> list[NodeChange]:
    """What happens to a node at whole seconds; at one time once, and it comes back in the end."""
    changes: list[NodeChange] = []
    is_up, now_s = True, 0
    for _ in range(draw(st.integers(0, 8))):
        now_s += draw(st.integers(1, 15))
        if is_up and draw(st.booleans()):
            changes.append(slow(float(now_s), draw(st.sampled_from([1.0, 2.0, 3.0, 4.0, 6.0]))))
        else:
            changes.append((down if is_up else up)(float(now_s)))
            is_up = not is_up
    return changes if is_up else [*changes, up(float(now_s + 3))]


@settings(deadline=None)
@given(
    duration_s=st.integers(1, 40),
    every=st.integers(1, 9),
    write=st.integers(1, 9),
    blocking=st.booleans(),
    changes=courses(),
)
def test_a_slow_job_is_that_of_a_slow_replay(
    duration_s: int, every: int, write: int, blocking: bool, changes: list[NodeChange]
) -> None:
    rule = CheckpointRule(float(every), float(write if blocking else min(write, every)), blocking)
    world = run([plain("a", 0.0, float(duration_s))], changes, LossRules(rule))
    expected = replay(duration_s, rule, changes)
    rows = attempts(world)
    columns = recorded_columns(world.recorder, world.cluster.spec)
    lost_s = columns["lost_time_s"].to_pylist() if "lost_time_s" in columns else [0.0] * len(rows)
    found = [value for span in spans(world) for value in span]
    assert found == pytest.approx([value for span in expected.spans for value in span], abs=1e-9)
    assert lost_s == pytest.approx(expected.lost_s, abs=1e-9)
    assert slow_s(world) == pytest.approx(expected.slow_s, abs=1e-9)


# --- random worlds


@st.composite
def changes_of(draw: st.DrawFn, nodes: int) -> list[NodeChange]:
    """Nodes become slow, give notice, go down and come back, all of them in the end."""
    changes: list[NodeChange] = []
    is_down = set[int]()
    now_s = 0.0
    for _ in range(draw(st.integers(0, 14))):
        now_s += draw(st.sampled_from([0.0, 1.0, 5.0]) | st.floats(0.0, 30.0))
        node = draw(st.integers(0, nodes - 1))
        if node in is_down:
            changes.append(up(now_s, node))
            is_down.remove(node)
            continue
        event = draw(st.sampled_from(["slow", "slow", "slow", "notice", "down"]))
        if event == "slow":
            changes.append(slow(now_s, draw(st.sampled_from([1.0, 1.5]) | st.floats(1, 5)), node))
        elif event == "notice":
            changes.append(NodeChange(now_s, "notice", node, deadline_s=now_s + 5))
        else:
            changes.append(down(now_s, node))
            is_down.add(node)
    return [*changes, *(up(now_s + 1, node) for node in sorted(is_down))]


@settings(deadline=None, max_examples=examples(400))
@given(data=st.data(), setting=settings_of_worlds(["simulated"], ["measured"]))
def test_whatever_is_slow_each_job_ends_and_energy_is_the_integral_of_power(
    data: st.DataObject, setting: Setting
) -> None:
    changes = data.draw(changes_of(setting.cluster.nodes))
    world = setting.run(RunLosses(data.draw(loss_rules()), iter(changes)))
    rows = attempts(world)
    assert {row.job_id for row in rows} == {job.job_id for job in setting.jobs}
    columns = recorded_columns(world.recorder, world.cluster.spec)
    paused_s = columns["tune_paused_s"].to_pylist() if "tune_paused_s" in columns else None
    for index, (row, waited_s) in enumerate(zip(rows, slow_s(world), strict=True)):
        assert 0 <= waited_s <= row.overhead_s + 1e-6
        if not row.preemptions and not (paused_s and paused_s[index]):
            span_s = row.finish_time_s - row.start_time_s
            assert row.time_s + row.overhead_s == pytest.approx(span_s, rel=1e-9, abs=1e-6)
    result = collected(setting, world)
    metrics, table = result.metrics, result.tables["timeline"]
    times, power_w = (table[name].to_numpy() for name in ("time_s", "power_w"))
    integral_j = math.fsum((power_w[:-1] * (times[1:] - times[:-1])).tolist())
    assert metrics["cluster_energy_j"] == pytest.approx(integral_j, rel=1e-9, abs=1e-6)
    of_jobs = (metrics["training_energy_j"] + metrics["held_energy_j"]) / setting.cluster.pue
    assert of_jobs == pytest.approx(sum(row.energy_j for row in rows), rel=1e-9, abs=1e-3)


def _useful_s(world: World) -> dict[str, float]:
    """Training by job that was not lost, s."""
    columns = recorded_columns(world.recorder, world.cluster.spec)
    rows = attempts(world)
    lost_s = columns["lost_time_s"].to_pylist() if "lost_time_s" in columns else [0.0] * len(rows)
    useful_s = dict.fromkeys(sorted(row.job_id for row in rows), 0.0)
    for row, lost in zip(rows, lost_s, strict=True):
        useful_s[row.job_id] += row.time_s - lost
    return useful_s


def _types(world: World) -> dict[str, set[str]]:
    """The GPU types of the attempts of each job."""
    types: dict[str, set[str]] = {}
    for row in attempts(world):
        types.setdefault(row.job_id, set()).add(row.gpu_type)
    return types


@settings(deadline=None)
@given(data=st.data(), setting=settings_of_worlds(["simulated"], ["measured"]))
def test_slowness_and_losses_leave_the_work_as_it_is(data: st.DataObject, setting: Setting) -> None:
    """With policies whose choices do not depend on time; of jobs on GPUs of the same types."""
    plain_setting = setting._replace(policy_set=chosen(), max_attempts=1)
    changes = data.draw(changes_of(setting.cluster.nodes))
    world = plain_setting.run(RunLosses(data.draw(loss_rules()), iter(changes)))
    undisturbed = plain_setting.run()
    types, types_before = _types(world), _types(undisturbed)
    same = {name for name, before in types_before.items() if types[name] == before}
    useful_s, before_s = _useful_s(world), _useful_s(undisturbed)
    found = {name: useful_s[name] for name in same}
    assert found == pytest.approx({name: before_s[name] for name in same}, rel=1e-9, abs=1e-6)
