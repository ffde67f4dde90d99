"""The order of what comes at one time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Event

from tests.support.examples import examples
from tests.support.worlds import (
    attempts,
    by_job,
    chosen,
    run_world,
    spec,
    starts,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.scheduling.queueing import InOrder
from wattkeeper.scenarios.contract.scripted import job, profile
from wattkeeper.sim.engine.sources import RecurringSource
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import Callback, LoopClient, ScheduledEvent


def test_order_of_events_at_one_time() -> None:
    """Also what is asked for at that time by what comes later in it."""
    env, called = SimulationEnvironment(), []

    def note(what: str) -> ScheduledEvent:
        return Callback(lambda _: called.append((env.now, what)))

    def process() -> Generator[Event, None, None]:
        yield env.timeout(1.0)
        called.append((env.now, "process"))
        env.schedule_at(1.0, note("callback of the process"))

    class Scripted(LoopClient):
        def arrive(self) -> None:
            called.append((env.now, "arrival"))
            env.next_arrival_s = math.inf
            env.pass_is_due = True

        def schedule(self) -> None:
            called.append((env.now, "pass"))
            if len(called) < 7:
                env.pass_is_due = True

    env.driven, env.next_arrival_s = Scripted(), 1.0
    env.process(process())
    env.schedule_at(2.0, note("later"))
    cancelled = note("cancelled")
    env.schedule_at(1.0, cancelled)
    for what in ("first", "second"):
        env.schedule_at(1.0, note(what))
    cancelled.cancel()
    env.run()
    expected = ["first", "second", "arrival", "process", "callback of the process"]
    expected += ["pass", "pass"]
    assert called == [(1.0, what) for what in expected] + [(2.0, "later")]


class Watch:
    """Policies that note what they see."""

    def __init__(self) -> None:
        self.starts: list[tuple[float, str, int]] = []
        self.observed: list[tuple[float, str]] = []
        self.free: list[tuple[float, str, int]] = []
        self._first_fit = chosen().place.build()

    def configure(self, ctx: Any, start: Start) -> Configuration:
        self.starts.append((ctx.now_s, start.job.job_id, start.group_in_flight))
        return Configuration(start.options.default_batch_size)

    def observe(self, ctx: Any, outcome: Any) -> None:
        self.observed.append((ctx.now_s, outcome.start.job.job_id))

    def place(self, ctx: Any, job: Job, cluster: Any) -> Any:
        self.free.append((ctx.now_s, job.job_id, int(cluster.free.sum())))
        return self._first_fit.place(ctx, job, cluster)

    def policies(self, **others: Any) -> Any:
        return chosen(
            configure=stub("configure", configure=self.configure, observe=self.observe),
            place=stub("place", place=self.place),
            **others,
        )


def in_order(rank: Callable[[Job], float]) -> Any:
    """A queue that is served by rank; a world needs a new one."""

    class Queue(InOrder):
        def rank(self, ctx: Any, job: Job) -> float:
            return rank(job)

    queue = Queue()
    asked = ("on_submit", "on_end", "select", "on_refuse", "wake_s")
    return stub("select", **{name: getattr(queue, name) for name in asked})


def smallest_first() -> Any:
    return in_order(lambda job: float(job.gpus))


def test_a_job_that_arrives_when_another_ends_takes_its_gpu() -> None:
    watch = Watch()
    jobs = [job("a", group="g"), job("b", 10.0, group="g", recurrence=2)]
    world = run_world(jobs, by_job(steady()), None, watch.policies(), start_on_submit=True)
    assert starts(world) == {"a": 0.0, "b": 10.0}
    assert watch.starts == [(0.0, "a", 0), (10.0, "b", 0)], "the end of a was not known"
    assert timeline_of(world).jobs_waiting.tolist() == [0, 0, 0]


def test_at_one_time_ends_come_before_arrivals_and_these_before_one_pass() -> None:
    """Both ends free a GPU each; the waiting gang would fit, had the small job not arrived."""
    watch = Watch()
    jobs = [job("a"), job("b"), job("gang", 1.0, gpus=2), job("small", 10.0)]
    policy_set = watch.policies(select=smallest_first())
    known = by_job(steady(), steady(gpus=2))
    world = run_world(jobs, known, spec(gpus_per_node=2), policy_set)
    assert starts(world) == {"a": 0.0, "b": 0.0, "small": 10.0, "gang": 20.0}
    assert watch.free == [(0.0, "a", 2), (0.0, "b", 1), (10.0, "small", 2), (20.0, "gang", 2)]
    assert watch.observed[:2] == [(10.0, "a"), (10.0, "b")], "ends keep the order of starts"


def test_at_one_time_all_arrive_before_one_starts() -> None:
    jobs = [job("gang", 5.0, gpus=2), job("b", 5.0), job("c", 5.0)]
    known = by_job(steady(), steady(gpus=2))
    policy_set = chosen(select=smallest_first())
    world = run_world(jobs, known, spec(gpus_per_node=2), policy_set)
    assert starts(world) == {"b": 5.0, "c": 5.0, "gang": 15.0}


def test_what_follows_an_end_joins_the_pass_of_its_time() -> None:
    """The next recurrence is submitted when the last one ended, behind who waits already."""
    watch = Watch()
    known = by_job(steady(), profile("other", runs={32: (5.0,)}, epoch_s=2.0))
    world = run_world(RecurringSource({"cnn": 2, "other": 2}), known, None, watch.policies())
    order = ["cnn/1", "other/1", "cnn/2", "other/2"]
    assert list(starts(world).items()) == [(x, 10.0 * n) for n, x in enumerate(order)]
    assert {row.submit_time_s for row in attempts(world)} == {0.0, 10.0, 20.0}


def test_equal_ranks_keep_the_order_of_submission() -> None:
    names = ["d", "b", "a", "c"]
    policy_set = chosen(select=in_order(lambda job: 0.0))
    world = run_world([job(x) for x in names], by_job(steady()), None, policy_set)
    assert list(starts(world)) == names


@settings(max_examples=examples(200), deadline=None)
@given(gaps=st.lists(st.floats(0.0, 1e5), min_size=1, max_size=10))
def test_on_an_idle_cluster_a_job_starts_when_it_is_submitted(gaps: list[float]) -> None:
    times = np.cumsum(gaps).tolist()
    jobs = [job(f"{n}", time_s) for n, time_s in enumerate(times)]
    world = run_world(jobs, by_job(steady()), spec(nodes=len(jobs)))
    assert [starts(world)[one.job_id] for one in jobs] == times
