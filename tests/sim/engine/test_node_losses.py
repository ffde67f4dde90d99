"""Nodes go down and come back: what jobs lose, and what a checkpoint saves of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.world_views import collected
from tests.support.worlds import (
    AttemptRow,
    Setting,
    attempts,
    build_world,
    by_job,
    chosen,
    decided,
    run_world,
    settings_of_worlds,
    spec,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Selection
from wattkeeper.policies.points.views import Configuration, Knobs, Running
from wattkeeper.policies.registry import find_config
from wattkeeper.scenarios.contract.scripted import LIMITS_W, job, profile
from wattkeeper.sim.cluster.checkpoints import CheckpointClock, CheckpointRule
from wattkeeper.sim.cluster.losses import EXPECTED, LossRate, LossRules, NodeChange, RunLosses
from wattkeeper.sim.cluster_results.columns import recorded_columns
from wattkeeper.sim.engine.features.node_losses import MOST_LOSSES
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.replay.latencies import Latencies


def plain(name: str, submit_s: float, duration_s: float, gpus: int = 1) -> Job:
    """A job without a workload."""
    return job(name, submit_s, duration_s=duration_s, gpus=gpus).replace(workload=None)


def down(time_s: float, node: int = 0) -> NodeChange:
    return NodeChange(time_s, "down", node)


def up(time_s: float, node: int = 0) -> NodeChange:
    return NodeChange(time_s, "up", node)


def run(
    jobs: Sequence[Job], changes: Sequence[NodeChange], rules: LossRules, **other: object
) -> World:
    return run_world(jobs, losses=RunLosses(rules, iter(changes)), **other)


def spans(world: World) -> list[tuple[float, float]]:
    """Start and end of each attempt, in order of ending."""
    return [(row.start_time_s, row.finish_time_s) for row in attempts(world)]


def lost_s(world: World) -> list[float]:
    columns = recorded_columns(world.recorder, world.cluster.spec)
    values: list[float] = columns["lost_time_s"].to_pylist()
    return values


# --- one job, one loss


@pytest.mark.parametrize(
    ("checkpoints", "read_s", "lost", "end_s"),
    [
        (CheckpointRule(), 0.0, 35.0, 150.0),
        (CheckpointRule(10.0, 2.0), 3.0, 10.0, 50 + 3 + 80 + 7 * 2.0),
        (CheckpointRule(10.0, 4.0, blocking=False), 0.0, 5.0, 50 + 70.0),
        (CheckpointRule(10.0, 6.0, blocking=False), 0.0, 15.0, 50 + 80.0),
        (CheckpointRule(1000.0, 6.0), 0.0, 35.0, 150.0),
    ],
)
def test_a_job_goes_on_from_its_last_checkpoint(
    checkpoints: CheckpointRule, read_s: float, lost: float, end_s: float
) -> None:
    """A write of 6 s that began at 30 s is not complete at 35 s: the one of 20 s counts."""
    rules = LossRules(checkpoints, read_s=read_s)
    world = run([plain("a", 0.0, 100.0)], [down(35.0), up(50.0)], rules)
    assert spans(world) == [(0.0, 35.0), (50.0, end_s)]
    assert lost_s(world) == [lost, 0.0]
    first, second = attempts(world)
    assert [first.attempt, second.attempt] == [1, 2]
    assert [first.reached_target, second.reached_target] == [False, True]
    assert first.time_s + second.time_s == pytest.approx(100.0 + lost)
    writes = {2: 2 * 2.0 + 1.0, 10: 7 * 2.0}  # complete ones of 2 s, and the one cut off after 1 s
    if checkpoints.blocking and checkpoints.every_s == 10:
        assert [first.overhead_s, second.overhead_s] == [writes[2], writes[10] + read_s]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_a_loss_during_the_start_leaves_the_recorded_run_as_it_was(seed: int) -> None:
    """The attempt that follows replays the run that the lost one would have replayed."""
    known = by_job(profile(runs={32: tuple(range(1, 10))}))
    delays = Latencies(start_s=30.0)
    rules = LossRules(CheckpointRule())
    plain = run_world([job("a")], known, seed=seed, latencies=delays)
    changes = [down(10.0), up(20.0), down(40.0), up(60.0)]
    world = run([job("a")], changes, rules, profiles=known, seed=seed, latencies=delays)
    (alone,), again = attempts(plain), attempts(world)
    assert [row.attempt for row in again] == [1, 2, 3]
    assert [row.epochs for row in again[:2]] == [None, None]
    assert again[2].epochs == alone.epochs
    assert again[2].finish_time_s == alone.finish_time_s + 60.0


def test_a_training_goes_on_with_the_epochs_that_it_saved() -> None:
    """Five epochs of 2 s, saved each 3 s: 1.5 epochs are kept of the 2 that were done."""
    known = by_job(steady(5.0, 2.0))
    rules = LossRules(CheckpointRule(3.0, 0.0))
    world = run([job("a")], [down(4.0), up(10.0)], rules, profiles=known)
    first, second = attempts(world)
    assert (first.finish_time_s, second.start_time_s, second.finish_time_s) == (4.0, 10.0, 17.0)
    assert (first.epochs, second.epochs) == (None, 5)
    assert [first.time_s, second.time_s] == pytest.approx([4.0, 7.0])
    assert first.energy_j + second.energy_j == pytest.approx(180.0 * 11)


def test_another_node_takes_the_job_at_once_and_a_node_down_takes_none() -> None:
    world = run(
        [plain("a", 0.0, 10.0), plain("b", 6.0, 10.0), plain("c", 7.0, 1.0)],
        [down(5.0)],
        LossRules(),
        cluster=spec(nodes=2),
    )
    assert [(row.job_id, row.node_ids) for row in attempts(world)] == [
        ("a", [0]),
        ("a", [1]),
        ("b", [1]),
        ("c", [1]),
    ]
    assert spans(world) == [(0.0, 5.0), (5.0, 15.0), (15.0, 25.0), (25.0, 26.0)]


@pytest.mark.parametrize(("last", "order"), [(False, ["a", "b"]), (True, ["b", "a"])])
def test_a_job_waits_anew_before_or_behind_those_that_wait(last: bool, order: list[str]) -> None:
    world = run(
        [plain("a", 0.0, 10.0), plain("b", 1.0, 10.0)],
        [down(5.0), up(6.0)],
        LossRules(requeues_last=last),
    )
    assert [row.job_id for row in attempts(world)[1:]] == order


def test_a_node_that_came_back_boots_before_jobs_start_there() -> None:
    world = run(
        [plain("a", 0.0, 10.0)], [down(5.0), up(6.0), down(7.0), up(8.0)], LossRules(boot_s=3.0)
    )
    assert spans(world) == [(0.0, 5.0), (11.0, 21.0)]


def test_at_one_time_a_job_ends_before_its_node_is_lost_and_the_node_returns_before_arrivals() -> (
    None
):
    world = run([plain("a", 0.0, 5.0), plain("b", 6.0, 1.0)], [down(5.0), up(6.0)], LossRules())
    assert spans(world) == [(0.0, 5.0), (6.0, 7.0)]


def test_a_job_whose_nodes_never_come_back_is_counted_and_the_others_end() -> None:
    world = run(
        [plain("a", 0.0, 10.0, gpus=2), plain("b", 1.0, 1.0)],
        [down(5.0, 1)],
        LossRules(),
        cluster=spec(nodes=2),
        policy_set=chosen(select="fjf"),
    )
    assert [row.job_id for row in attempts(world)] == ["a", "b"]
    assert world.recorder.unable == [0]


@pytest.mark.slow
def test_configure_is_told_of_a_job_that_is_given_up() -> None:
    """Once: of no loss after which the job goes on."""
    told: list[str] = []
    policy = stub(
        "configure",
        configure=lambda ctx, start: Configuration(start.options.default_batch_size),
        on_loss=lambda ctx, start: told.append(start.job.job_id),
    )
    times = [1e-3 * number for number in range(1, MOST_LOSSES + 2)]
    changes = [each(time_s) for time_s in times for each in (down, up)]
    world = run([job("a", 0.0)], changes, LossRules(), policy_set=chosen(configure=policy))
    assert told == ["a"]
    assert world.recorder.unable == [0]


def test_the_journal_names_the_loss() -> None:
    world = run([plain("a", 0.0, 10.0)], [down(5.0), up(6.0)], LossRules())
    assert decided(world, "node") == [(5.0, "a", "lost")]


def test_a_node_that_is_down_draws_nothing() -> None:
    world = run([plain("a", 0.0, 10.0)], [down(4.0), up(6.0)], LossRules(boot_s=1.0))
    line = timeline_of(world)
    at = np.searchsorted(line.time_s, [3.9, 5.0, 6.5, 8.0], side="right") - 1
    assert line.power_w[at].tolist() == [250.0, 0.0, 20.0, 250.0]
    assert line.jobs_waiting[at].tolist() == [0, 1, 1, 0]


def test_a_preempted_job_loses_nothing_with_the_node_that_it_left() -> None:
    world = build_world(
        [plain("a", 0.0, 10.0), plain("b", 4.0, 1.0)],
        cluster=spec(nodes=1),
        policy_set=chosen(select="srtf"),
        losses=RunLosses(LossRules(), iter([down(4.5), up(5.0)])),
    )
    world.run()
    assert [(row.job_id, row.attempt) for row in attempts(world)] == [("b", 1), ("b", 2), ("a", 1)]
    assert attempts(world)[-1].time_s == 10.0


@pytest.mark.parametrize(
    ("checkpoints", "lost"),
    [
        (CheckpointRule(math.inf, 2.0), 3.0),  # written from 30 to 32 s
        (CheckpointRule(math.inf, 6.0), 30.0),  # not complete
        (CheckpointRule(math.inf, 2.0, blocking=False), 5.0),
        (CheckpointRule(math.inf, 0.0), 5.0),
        (CheckpointRule(), 35.0),
    ],
)
def test_a_job_writes_a_checkpoint_on_notice(checkpoints: CheckpointRule, lost: float) -> None:
    notice = NodeChange(30.0, "notice", 0, deadline_s=35.0)
    rules = LossRules(checkpoints, heeds_notice=True)
    world = run([plain("a", 0.0, 100.0)], [notice, down(35.0), up(50.0)], rules)
    assert lost_s(world) == [lost, 0.0]
    assert [row.event for row in world.recorder.node_changes] == ["notice", "down", "up"]


def test_a_job_whose_limit_may_change_counts_its_last_phase() -> None:
    """20 s are saved when the node is lost, after 30 s of training; the other 80 s follow."""
    tune = stub(
        "tune", limits_unprofiled=True, moments=("start", "wake"), tune=lambda *_: Knobs(250.0)
    )
    world = run(
        [plain("a", 0.0, 100.0)],
        [down(35.0), up(50.0)],
        LossRules(CheckpointRule(10.0, 2.0)),
        policy_set=chosen(tune=tune),
    )
    first, second = attempts(world)
    assert [first.time_s, second.time_s] == [30.0, 80.0]
    assert [first.energy_j, second.energy_j] == [250 * 35.0, 250 * 94.0]


def test_epochs_that_were_trained_at_a_lower_limit_are_lost_with_their_time() -> None:
    """Two epochs at the lowest limit take longer than two at the highest one, which is in force."""
    limits_w = (min(LIMITS_W), max(LIMITS_W))

    def choose(ctx: Context, _: Running) -> Knobs:
        return Knobs(limits_w[ctx.now_s > 30.0])

    tune = stub("tune", moments=("start", "epoch"), tune=choose)
    world = run(
        [job("a")],
        [down(40.0), up(50.0)],
        LossRules(CheckpointRule(math.inf, 0.0)),
        profiles=by_job(steady(5.0, 10.0)),
        policy_set=chosen(tune=tune),
    )
    first, second = attempts(world)
    assert (first.time_s, lost_s(world)[0]) == (40.0, 40.0)
    assert (second.start_time_s, second.finish_time_s) == (50.0, 100.0)
    assert [second.time_s, second.energy_j] == pytest.approx([50.0, 180.0 * 50])


def test_an_interval_follows_the_losses_that_were_observed() -> None:
    """Each loss on four nodes in 1,000 s lowers the mean time between them."""
    rate = LossRate(4)
    before = rate.mean_s(1, 0.0)
    assert before == pytest.approx(1 / EXPECTED)
    for time_s in (1000.0, 2000.0, 3000.0):
        rate.change(time_s, "down")
        rate.change(time_s, "up")
    assert rate.mean_s(1, 4000.0) == pytest.approx((16_000 + 1 / EXPECTED) / 4)
    assert rate.mean_s(2, 4000.0) == pytest.approx((16_000 + 1 / EXPECTED) / 8)
    rules = LossRules(CheckpointRule(write_s=10.0), "young")
    rule = rules.checkpoints_of(2, rate, 4000.0)
    assert rule.every_s == pytest.approx(math.sqrt(20 * rate.mean_s(2, 4000.0)))


# --- the clock of checkpoints, against a slow one


class SlowClock:
    """Steps of one unit of time."""

    def __init__(self, rule: CheckpointRule) -> None:
        self.rule = rule
        self.trained = self.saved = self.begun = 0
        self.writing = 0
        self.pending: int | None = None

    def step(self) -> None:
        every, write = int(self.rule.every_s), int(self.rule.write_s)
        if self.rule.blocking:
            if self.writing == 0 and self.trained - self.begun == every:
                self.begun, self.writing = self.trained, write
            if self.writing:
                self.writing -= 1
                if self.writing == 0:
                    self.saved = self.trained
            else:
                self.trained += 1
            return
        self.trained += 1
        if self.pending is not None:
            self.writing -= 1
            if self.writing == 0:
                self.saved, self.pending = self.pending, None
        if self.trained - self.begun == every:
            self.begun = self.pending = self.trained
            self.writing = write


@given(
    every=st.integers(1, 9),
    write=st.integers(1, 9),
    blocking=st.booleans(),
    spans=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3)), min_size=1, max_size=6),
    repeats=st.sampled_from([1, 40]),
    writes=st.booleans(),
)
def test_checkpoints_in_closed_form_are_those_of_a_step_by_step_clock(
    every: int, write: int, blocking: bool, spans: list[tuple[int, int]], repeats: int, writes: bool
) -> None:
    """What is not saved is known by its pace, however often that changed."""
    write = write if blocking else min(write, every)
    rule = CheckpointRule(float(every), float(write), blocking)
    if not writes:
        rule, every = CheckpointRule(), sum(span for span, _ in spans) * repeats + 1
    clock = CheckpointClock(rule)
    slow = SlowClock(CheckpointRule(float(every), float(write), blocking))
    trained, powers_w = 0.0, list[float]()
    for span, power in spans * repeats:
        trained += clock.advance(float(span), float(power), (float(power), 1.0))
        for _ in range(span):
            slow.step()
            powers_w += [float(power)] * (slow.trained - len(powers_w))
        assert trained == slow.trained
        assert clock.unsaved_s == slow.trained - slow.saved
        lost = [
            (one.power_w, second) for one in clock.unsaved() for second in range(int(one.time_s))
        ]
        assert [power_w for power_w, _ in lost] == powers_w[slow.saved :]


@given(
    every=st.integers(1, 9),
    write=st.integers(0, 9),
    passed=st.integers(0, 30),
    training=st.integers(1, 60),
)
def test_a_training_takes_as_long_as_its_checkpoints_say(
    every: int, write: int, passed: int, training: int
) -> None:
    clock = CheckpointClock(CheckpointRule(float(every), float(write)))
    clock.advance(float(passed), 1.0, (1.0, 1.0))
    span_s = clock.span_s(float(training))
    assert clock.advance(span_s, 1.0, (1.0, 1.0)) == training


# --- random worlds


@st.composite
def changes_of(draw: st.DrawFn, nodes: int) -> tuple[NodeChange, ...]:
    """Nodes go down and come back, all of them in the end."""
    changes, is_down = [], set[int]()
    now_s = 0.0
    for _ in range(draw(st.integers(0, 12))):
        now_s += draw(st.sampled_from([0.0, 1.0, 5.0]) | st.floats(0.0, 30.0))
        node = draw(st.integers(0, nodes - 1))
        if draw(st.booleans()) and node not in is_down:
            changes.append(NodeChange(now_s, "notice", node))
            continue
        event = up if node in is_down else down
        is_down ^= {node}
        changes.append(event(now_s, node))
    changes += [up(now_s + 1, node) for node in sorted(is_down)]
    order = {"down": 0, "up": 1, "notice": 2}
    return tuple(sorted(changes, key=lambda change: (change.time_s, order[change.event])))


@st.composite
def loss_rules(draw: st.DrawFn) -> LossRules:
    every_s = draw(st.sampled_from([math.inf, 2.0, 7.5]))
    blocking = draw(st.booleans())
    return LossRules(
        CheckpointRule(every_s, draw(st.sampled_from([0.0, 0.5, 2.0])), blocking),
        read_s=draw(st.sampled_from([0.0, 1.5])),
        requeues_last=draw(st.booleans()),
        boot_s=draw(st.sampled_from([0.0, 4.0])),
        heeds_notice=draw(st.booleans()),
    )


def valid(changes: Sequence[NodeChange]) -> Iterator[NodeChange]:
    """Leave out what sorting by event at equal times put in a wrong order."""
    is_down = set[int]()
    for change in changes:
        if change.event == "notice":
            yield change
        elif (change.event == "down") != (change.node in is_down):
            is_down ^= {change.node}
            yield change
    last_s = changes[-1].time_s if changes else 0.0
    yield from (up(last_s + 1, node) for node in sorted(is_down))


@settings(deadline=None, max_examples=examples(600))
@given(data=st.data(), setting=settings_of_worlds(["simulated"], ["measured"]))
def test_whatever_is_lost_each_job_ends_and_energy_is_the_integral_of_power(
    data: st.DataObject, setting: Setting
) -> None:
    changes = tuple(valid(data.draw(changes_of(setting.cluster.nodes))))
    world = setting.run(RunLosses(data.draw(loss_rules()), iter(changes)))
    rows = attempts(world)
    assert {row.job_id for row in rows} == {job.job_id for job in setting.jobs}
    assert not world.recorder.unable
    columns = recorded_columns(world.recorder, world.cluster.spec)
    is_lost = (
        [node is not None for node in columns["lost_node"].to_pylist()]
        if ("lost_node" in columns)
        else [False] * len(rows)
    )
    by_job: dict[str, list[AttemptRow]] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(row)
    for found in by_job.values():
        assert [row.attempt for row in found] == list(range(1, len(found) + 1))
        for one, other in pairwise(found):
            assert one.finish_time_s <= other.start_time_s
    ended = Counter(row.job_id for row, lost in zip(rows, is_lost, strict=True) if not lost)
    assert all(1 <= ended[job.job_id] <= setting.max_attempts for job in setting.jobs)
    _no_attempt_is_on_a_node_that_is_down(rows, changes)
    result = collected(setting, world)
    metrics = result.metrics
    line = timeline_of_result(result)
    assert metrics["cluster_energy_j"] == pytest.approx(line, rel=1e-9, abs=1e-6)
    lost = sum(change.event == "down" for change in changes)
    assert metrics["node_losses"] <= lost


def _no_attempt_is_on_a_node_that_is_down(
    rows: Sequence[AttemptRow], changes: Sequence[NodeChange]
) -> None:
    since: dict[int, float] = {}
    for change in changes:
        if change.event == "down":
            since[change.node] = change.time_s
        if change.event != "up":
            continue
        from_s = since.pop(change.node)
        for row in rows:
            if change.node in row.node_ids and not row.preemptions:
                assert row.finish_time_s <= from_s or row.start_time_s >= change.time_s


def timeline_of_result(result: object) -> float:
    table = result.tables["timeline"]  # type: ignore[attr-defined]
    times, power_w = (table[name].to_numpy() for name in ("time_s", "power_w"))
    return math.fsum((power_w[:-1] * np.diff(times)).tolist())


@given(setting=settings_of_worlds(["simulated"], ["measured"]))
def test_without_a_loss_nothing_changes(setting: Setting) -> None:
    """But for the last bits: checkpoints that cost nothing are counted."""
    rules = LossRules(CheckpointRule(5.0, 0.0))
    assert np.array(spans(setting.run())) == pytest.approx(
        np.array(spans(setting.run(RunLosses(rules, iter([])))))
    )


@pytest.mark.parametrize("kind", ["srtf", "las", "gittins"])
@given(data=st.data(), setting=settings_of_worlds(["simulated"], ["measured"]))
def test_what_could_not_start_is_tried_again_whenever_it_may(
    kind: str, data: st.DataObject, setting: Setting
) -> None:
    """Types, parts of GPUs, a power cap, losses: as if all were tried in each pass."""
    changes = tuple(valid(data.draw(changes_of(setting.cluster.nodes))))
    rules = data.draw(loss_rules())
    config = find_config("select", kind)
    policy = config.build()

    def try_all(ctx: Context, capacity: CapacityView) -> Selection:
        policy.retry_all()
        selection: Selection = policy.select(ctx, capacity)
        return selection

    tells = {
        name: getattr(policy, name)
        for name in ("on_submit", "on_end", "on_pause", "on_resume", "on_refuse", "wake_s")
    }
    each_time = stub("select", select=try_all, **tells)
    runs = [
        setting._replace(policy_set=replace(setting.policy_set, select=select)).run(
            RunLosses(rules, iter(changes))
        )
        for select in (config, each_time)
    ]
    assert attempts(runs[0]) == attempts(runs[1])
    assert decided(runs[0], "select") == decided(runs[1], "select")
