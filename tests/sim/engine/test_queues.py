"""Queues of one cluster: each decides as if it were alone, whatever the policy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.worlds import (
    attempts_by_job,
    by_job,
    chosen,
    run_world,
    starts,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.errors import InputError, PolicyError, PolicyFailed
from wattkeeper.policies.forecasts.perfect import PerfectConfig
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Selection
from wattkeeper.policies.points.views import Knobs, Outcome, Running
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.contract.scripted import LIMITS_W
from wattkeeper.sim.cluster.cluster_spec import CapSignal, ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams

NODES = {"a": 2, "b": 1, "c": 2}
"""Nodes of 4 GPUs by type."""
QUEUES = {"one": ("a", "b"), "two": ("c",)}
KINDS = sorted(policies("select"))
CURVES = steady().curves
KNOWN = by_job(*(Profile("cnn", name, 1, 0.9, 10, 32, LIMITS_W[-1], CURVES) for name in "abc"))
TIMELESS = ("fifo", "fjf", "sjf", "srtf")
"""Their schedules do not depend on how often they are asked."""


def cluster(*queues: str, **more: Any) -> ClusterSpec:
    """The nodes of some queues."""
    types = [name for queue in queues for name in QUEUES[queue]]
    groups = tuple(NodeGroup(name, NODES[name], 4) for name in types)
    power = {name: GpuPower(20.0, 250.0) for name in types}
    partitions = {queue: QUEUES[queue] for queue in queues}
    return replace(ClusterSpec(groups, power, partitions=partitions), **more)


def plain(job_id: str, gpu_type: str, submit_s: float, run_s: float, gpus: int = 4) -> Job:
    """A job without a profile."""
    return Job(
        job_id,
        job_id,
        1,
        None,
        gpus,
        submit_s,
        run_s,
        gpu_type=gpu_type,
        estimate_s=run_s,
        recorded_start_s=submit_s,
    )


@st.composite
def loads(draw: st.DrawFn) -> list[Job]:
    """Jobs of both queues, some of which exceed their estimates."""
    jobs: list[Job] = []
    submit_s = 0.0
    for number in range(draw(st.integers(5, 40))):
        gpu_type = draw(st.sampled_from(["a", "b", "a|b", "c", "c"]))
        run_s = float(draw(st.integers(1, 3000)))
        recorded_s = submit_s + draw(st.integers(0, 900))
        jobs.append(
            Job(
                f"{number:02}",
                f"{number:02}",
                1,
                None,
                draw(st.sampled_from([1, 1, 2, 3, 4])),
                submit_s,
                run_s,
                gpu_type=gpu_type,
                user=draw(st.sampled_from("uvw")),
                estimate_s=float(draw(st.integers(0, 3000))),
                recorded_start_s=recorded_s,
            )
        )
        submit_s += draw(st.sampled_from([0.0, 0.0, 7.0, 100.0, 900.0]))
    return jobs


def split(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """The jobs of each queue."""
    first = {queue: names[0] for queue, names in QUEUES.items()}
    return {
        queue: [job for job in jobs if (job.gpu_type == "c") == (name == "c")]
        for queue, name in first.items()
    }


def repeated(name: str, values: Sequence[float], slot_s: float, forecasts: bool) -> Signal:
    """A signal that repeats its values for ever."""
    starts = np.arange(len(values)) * np.float64(slot_s)
    series = SignalSeries(
        name, starts, np.array(values), len(values) * slot_s, period_s=len(values) * slot_s
    )
    return Signal(series, PerfectConfig() if forecasts else None, NamedStreams(1))


def history(world: World) -> dict[str, list[tuple[float, ...]]]:
    """Start, end and preemptions of each attempt by job."""
    return {
        job_id: [(row.start_time_s, row.finish_time_s, row.preemptions) for row in rows]
        for job_id, rows in attempts_by_job(world).items()
    }


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "carbon-aware"])
@settings(max_examples=examples(60, few=6))
@given(jobs=loads(), checkpoint_s=st.sampled_from([0.0, 20.0]), naps=st.booleans())
def test_a_queue_is_as_if_it_were_alone(
    kind: str, jobs: list[Job], checkpoint_s: float, naps: bool
) -> None:
    more = {
        "checkpoint_s": checkpoint_s,
        "restore_s": checkpoint_s / 2,
        "sleep_after_s": 50.0 if naps else None,
        "wake_s": 30.0,
    }
    together = run_world(jobs, cluster=cluster(*QUEUES, **more), policy_set=chosen(select=kind))
    found = history(together)
    assert len(found) == len(jobs)
    for queue, own in split(jobs).items():
        if own:
            nodes = cluster(queue, **more)
            alone = history(run_world(own, cluster=nodes, policy_set=chosen(select=kind)))
            assert {job_id: found[job_id] for job_id in alone} == alone


@settings(max_examples=examples(40))
@given(jobs=loads(), queue=st.sampled_from(["fifo", "fjf", "easy-backfill"]))
def test_a_queue_that_waits_for_cleaner_hours_is_too(jobs: list[Job], queue: str) -> None:
    dated = [job.replace(deadline_s=job.submit_time_s + 2 * job.duration_s) for job in jobs[::2]]
    jobs = sorted([*jobs[1::2], *dated], key=lambda job: (job.submit_time_s, job.job_id))
    select = policies("select")["carbon-aware"].model_validate(
        {"queue": queue, "estimates": "perfect"}
    )
    signals = {"carbon": repeated("carbon", [300.0, 100.0, 200.0, 400.0, 150.0], 600.0, True)}
    more: dict[str, Any] = {"policy_set": chosen(select=select), "signals": signals}
    found = history(run_world(jobs, cluster=cluster(*QUEUES), **more))
    for name, own in split(jobs).items():
        if own:
            alone = history(run_world(own, cluster=cluster(name), **more))
            assert {job_id: found[job_id] for job_id in alone} == alone


@pytest.mark.parametrize("kind", TIMELESS)
@settings(max_examples=examples(40, few=6))
@given(jobs=loads(), draw=st.data())
def test_losses_of_nodes_of_another_queue_change_nothing(
    kind: str, jobs: list[Job], draw: st.DataObject
) -> None:
    """A node of each queue goes down and comes back, now and then; others queue up meanwhile."""
    changes: list[NodeChange] = []
    for node in (0, 3):
        now_s = 0.0
        for _ in range(draw.draw(st.integers(0, 4))):
            now_s += draw.draw(st.integers(1, 3000))
            changes.append(NodeChange(now_s, "down", node))
            now_s += draw.draw(st.integers(1, 3000))
            changes.append(NodeChange(now_s, "up", node))
    changes.sort(key=lambda change: (change.time_s, change.node))
    rules = LossRules(boot_s=5.0)
    whole = run_world(
        jobs,
        cluster=cluster(*QUEUES),
        policy_set=chosen(select=kind),
        losses=RunLosses(rules, iter(changes)),
    )
    found = history(whole)
    assert set(found) == {job.job_id for job in jobs}
    for queue, first in (("one", 0), ("two", 3)):
        own = split(jobs)[queue]
        moved = [
            change._replace(node=change.node - first)
            for change in changes
            if (change.node == 3) == (first == 3)
        ]
        if own:
            alone = run_world(
                own,
                cluster=cluster(queue),
                policy_set=chosen(select=kind),
                losses=RunLosses(rules, iter(moved)),
            )
            rows = history(alone)
            assert {job_id: found[job_id] for job_id in rows} == rows


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "carbon-aware"])
@settings(max_examples=examples(30, few=6))
@given(jobs=loads(), cap=st.integers(0, 12), follows=st.booleans())
def test_a_power_cap_is_shared(kind: str, jobs: list[Job], cap: int, follows: bool) -> None:
    """No job is forgotten that waited for power which a job of another queue gave back."""
    least_w = 20 * 20.0 + 4 * 230.0
    nodes = cluster(*QUEUES, power_cap_w=least_w + cap * 230.0)
    signals = {}
    if follows:
        caps = [least_w + cap * 230.0, least_w, least_w + 12 * 230.0]
        signals = {"cap": repeated("cap", caps, 700.0, False)}
        nodes = replace(nodes, power_cap_w=math.inf, cap=CapSignal("cap"))
    world = run_world(jobs, cluster=nodes, policy_set=chosen(select=kind), signals=signals)
    assert set(history(world)) == {job.job_id for job in jobs}
    assert timeline_of(world).power_w.max() <= least_w + 12 * 230.0 + 1e-3
    if not follows:
        assert timeline_of(world).power_w.max() <= least_w + cap * 230.0 + 1e-3


def test_a_job_starts_when_another_queue_gives_power_back() -> None:
    jobs = [plain("a", "a", 0, 50), plain("c", "c", 10, 50), plain("d", "c", 20, 5)]
    nodes = cluster(*QUEUES, power_cap_w=20 * 20.0 + 4 * 230.0)
    world = run_world(jobs, cluster=nodes)
    assert starts(world) == {"a": 0, "c": 50, "d": 100}


def test_a_queue_may_preempt_for_power_that_another_one_takes() -> None:
    """`short` preempts `long` of its own queue, and the power that is left lets `other` start."""
    jobs = [
        plain("long", "a", 0, 500, 4),
        plain("other", "c", 5, 90, 2),
        plain("short", "a", 10, 20, 2),
    ]
    nodes = cluster(*QUEUES, power_cap_w=20 * 20.0 + 4 * 230.0)
    world = run_world(jobs, cluster=nodes, policy_set=chosen(select="srtf"))
    assert starts(world) == {"long": 0, "short": 10, "other": 10}


@settings(max_examples=examples(60))
@given(
    jobs=loads(),
    pauses=st.lists(st.booleans(), min_size=1, max_size=12),
    holds=st.booleans(),
    kind=st.sampled_from(["fifo", "fjf", "srtf", "easy-backfill"]),
)
def test_pauses_leave_queues_apart(
    jobs: list[Job], pauses: list[bool], holds: bool, kind: str
) -> None:
    """`Tune` pauses all jobs now and then, which give up their GPUs or hold them."""

    def tune(ctx: Context, running: Running) -> Knobs:
        limit_w = 250.0 if running.moment == "start" else None
        return Knobs(limit_w, run="pause" if ctx.signal("s").value else "go")

    config = stub(
        "tune",
        tune=tune,
        moments=(*START_MOMENTS, "signal"),
        signals=("s",),
        limits_unprofiled=True,
    )
    values = np.array([*map(float, pauses), 0.0])
    series = SignalSeries("s", np.arange(len(values)) * np.float64(300.0), values)
    more: dict[str, Any] = {
        "policy_set": chosen(select=kind, tune=config),
        "holds_pauses": holds,
        "signals": {"s": Signal(series, None, NamedStreams(1))},
    }
    found = history(run_world(jobs, cluster=cluster(*QUEUES), **more))
    assert set(found) == {job.job_id for job in jobs}
    for queue, own in split(jobs).items():
        if own:
            alone = history(run_world(own, cluster=cluster(queue), **more))
            assert {job_id: found[job_id] for job_id in alone} == alone


class Strangers:
    """A policy of others, whose queue depends on who asks: one list for each context.

    Attributes:
        waiting: Jobs by context.
        seen: GPU types of the outcomes that it was told of, likewise.
        drawn: First number of its random stream, likewise.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, list[Job]] = defaultdict(list)
        self.seen: dict[int, set[str]] = defaultdict(set)
        self.drawn: dict[int, float] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        self.waiting[id(ctx)].append(job)
        self.drawn.setdefault(id(ctx), float(ctx.rng("draws").random()))

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        self.seen[id(ctx)].add(outcome.start.options.gpu_type)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """Start the last one, whether it fits or not."""
        assert capacity.free_gpus <= capacity.gpus
        waiting = self.waiting[id(ctx)]
        if waiting and capacity.fits(waiting[-1]):
            return Selection(tuple(waiting.pop() for _ in range(len(waiting))))
        return Selection()

    def config(self, **methods: Any) -> Any:
        names = ("on_submit", "observe", "select")
        own = {name: getattr(self, name) for name in names}
        own |= {"on_end": lambda *_: None, "on_refuse": self.on_submit}
        return stub("select", **own | methods)


def test_a_policy_of_others_knows_one_queue() -> None:
    """It is told of the jobs and outcomes of its queue alone, and draws other numbers there."""
    strangers = Strangers()
    jobs = [
        Job(str(number), str(number), 1, "cnn", 1, number / 2, gpu_type="abc"[number % 3])
        for number in range(60)
    ]
    world = run_world(jobs, KNOWN, cluster(*QUEUES), chosen(select=strangers.config()))
    assert len(starts(world)) == 60
    assert [*strangers.seen.values()] == [{"a", "b"}, {"c"}]
    assert len(set(strangers.drawn.values())) == 2


@pytest.mark.parametrize("method", ["on_submit", "on_end", "select", "wake_s", "observe"])
def test_what_a_policy_of_others_raises_names_it(method: str) -> None:
    def divide(*_: object) -> Any:
        return 1 // 0

    job = Job("mine", "mine", 1, "cnn", 1, 0.0, gpu_type="c")
    config = Strangers().config(**{method: divide})
    with pytest.raises(PolicyFailed) as failed:
        run_world([job], KNOWN, cluster(*QUEUES), chosen(select=config))
    assert_states(str(failed.value), "select policy 'stub' failed", "divide raised ZeroDiv")


def test_an_answer_of_a_wrong_type_is_named() -> None:
    def select(*_: object) -> Any:
        return 3

    config = Strangers().config(select=select)
    with pytest.raises(PolicyFailed) as failed:
        run_world(
            [plain("mine", "c", 0, 5)], cluster=cluster(*QUEUES), policy_set=chosen(select=config)
        )
    assert_states(str(failed.value), "job mine", "wrong type (no Selection)")


def test_a_job_of_another_queue_cannot_be_started() -> None:
    jobs = {name: plain(name, name, 0, 5) for name in "ac"}
    known: list[Job] = []
    config = Strangers().config(
        on_submit=lambda _, job: known.append(job), select=lambda *_: Selection(tuple(known))
    )
    with pytest.raises(PolicyError, match="was started, but does not wait"):
        run_world(jobs.values(), cluster=cluster(*QUEUES), policy_set=chosen(select=config))


def test_a_job_of_several_queues_is_refused() -> None:
    with pytest.raises(InputError, match="GPU types of 2 queues"):
        run_world([plain("mine", "b|c", 0, 5)], cluster=cluster(*QUEUES))


def test_partitions_that_share_a_type_share_a_queue() -> None:
    groups = tuple(NodeGroup(name, 1, 4) for name in "abcde")
    power = {name: GpuPower(20.0, 250.0) for name in "abcde"}
    partitions = {"x": ("b", "d"), "y": ("a",), "z": ("d", "e"), "w": ("a",)}
    spec = ClusterSpec(groups, power, partitions=partitions)
    assert spec.queues == (("a",), ("b", "d", "e"), ("c",))
    assert replace(spec, partitions={}).queues == (tuple("abcde"),)
