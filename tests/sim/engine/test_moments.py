"""`Tune` is asked at the moments that it wants, and its answers are carried out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.worlds import (
    SquareRoot,
    attempts,
    build_world,
    by_job,
    chosen,
    decided,
    integral,
    run_world,
    spec,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.scenarios.contract.scripted import LIMITS_W, job
from wattkeeper.sim.attempts.decided import AttemptTotals
from wattkeeper.sim.engine.features.stragglers import Slowdown
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams

EPOCH_S = 2.0
KNOWN = by_job(steady(5.0, EPOCH_S))
CURVE = steady(5.0, EPOCH_S).curves[32]
MOST_W = LIMITS_W[-1]


def slots(*values: float, length_s: float = 1.0) -> dict[str, Signal]:
    """A signal `s` with these values from 0 s on; the last one holds for ever."""
    starts = np.arange(len(values)) * np.float64(length_s)
    return {
        "s": Signal(
            SignalSeries("s", starts, np.array(values, dtype=np.float64)), None, NamedStreams(1)
        )
    }


def tuned(
    answer: Callable[[Context, Running], Knobs | None], *moments: Moment, **settings: Any
) -> Any:
    """Policies whose `Tune` starts at the highest limit and answers so at some moments."""

    def tune(ctx: Context, running: Running) -> Knobs | None:
        if running.moment == "start":
            return Knobs(running.start.options.limits(running.configuration.batch_size)[-1])
        return answer(ctx, running)

    return chosen(
        tune=stub("tune", tune=tune, moments=(*START_MOMENTS, *moments), signals=("s",), **settings)
    )


def follow(ctx: Context, running: Running) -> Knobs:
    """The limit that the signal names."""
    return Knobs(ctx.signal("s").value)


class TestNothing:
    def test_an_attempt_that_is_asked_and_not_changed_ends_as_if_it_was_not_asked(self) -> None:
        plain = run_world([job()], KNOWN)
        asked = run_world(
            [job()],
            KNOWN,
            policy_set=tuned(lambda *_: None, "signal", "epoch"),
            signals=slots(*range(20)),
        )
        (one,), (other,) = attempts(plain), attempts(asked)
        assert other._replace(energy_j=0.0, cost=0.0) == one._replace(energy_j=0.0, cost=0.0)
        assert other.energy_j == pytest.approx(one.energy_j)
        assert len(decided(asked, "tune")) > 10

    def test_moments_that_are_not_wanted_never_come(self) -> None:
        def refuse(ctx: Context, running: Running) -> Knobs:
            raise AssertionError(running.moment)

        run_world([job()], KNOWN, policy_set=tuned(refuse), signals=slots(*range(20)))


class TestRetune:
    def test_a_new_limit_holds_from_the_moment_on(self) -> None:
        world = run_world(
            [job()], KNOWN, policy_set=tuned(follow, "signal"), signals=slots(250.0, 250.0, 100.0)
        )
        (row,) = attempts(world)
        (fast_s, fast_j), (slow_s, slow_j) = CURVE.epoch(250.0), CURVE.epoch(100.0)
        epochs = 2.0 / fast_s
        assert row.time_s == pytest.approx(2.0 + (5 - epochs) * slow_s)
        assert row.energy_j == pytest.approx(epochs * fast_j + (5 - epochs) * slow_j)
        assert row.power_limit_w == 100.0
        assert (row.reached_target, row.epochs) == (True, 5)

    @given(
        values=st.lists(st.sampled_from(LIMITS_W), min_size=1, max_size=30),
        length_s=st.floats(0.05, 3.0),
        has_workload=st.booleans(),
    )
    def test_work_is_conserved_and_energy_is_the_integral_of_power(
        self, values: list[float], length_s: float, has_workload: bool
    ) -> None:
        jobs = [job(str(n), n * 0.7) for n in range(3)]
        if not has_workload:
            jobs = [each.replace(workload=None) for each in jobs]
        world = run_world(
            jobs,
            KNOWN,
            spec(1, 2),
            tuned(follow, "signal", limits_unprofiled=True),
            signals=slots(*values, length_s=length_s),
        )
        line = timeline_of(world)
        rows = attempts(world)
        idle_w = 20.0
        busy_s = math.fsum(row.finish_time_s - row.start_time_s for row in rows)
        whole_s = float(line.time_s[-1])
        jobs_j = math.fsum(row.energy_j for row in rows)
        idle_j = idle_w * (2 * whole_s - busy_s)
        assert integral(line, line.power_w) == pytest.approx(jobs_j + idle_j)
        for row in rows:
            work = 0.0
            for begin_s, end_s, limit_w in pieces(
                row.start_time_s, row.finish_time_s, values, length_s
            ):
                if has_workload:
                    work += (end_s - begin_s) / CURVE.epoch(limit_w)[0]
                else:
                    work += (end_s - begin_s) * SquareRoot().under_limit(limit_w, 250.0)[1]
            assert work == pytest.approx(5.0 if has_workload else 10.0)


def pieces(
    from_s: float, until_s: float, values: list[float], length_s: float
) -> list[tuple[float, float, float]]:
    """Spans of an attempt with the limit that holds in each: the highest one until it is asked."""
    changes = [(k * length_s, value) for k, value in enumerate(values) if k > 0]
    spans, limit_w, since_s = [], MOST_W, from_s
    for time_s, value in changes:
        if from_s < time_s < until_s:  # an attempt that begins at that time was not there
            spans.append((since_s, time_s, limit_w))
            limit_w, since_s = value, time_s
    return [*spans, (since_s, until_s, limit_w)]


class TestEpoch:
    def test_it_is_asked_after_each_epoch_but_the_last(self) -> None:
        seen: list[tuple[float, float]] = []

        def note(ctx: Context, running: Running) -> Knobs | None:
            seen.append((ctx.now_s, running.progress.epochs))
            return Knobs(100.0) if running.progress.epochs == 2 else None

        world = run_world([job()], KNOWN, policy_set=tuned(note, "epoch"))
        fast_s, slow_s = CURVE.epoch(250.0)[0], CURVE.epoch(100.0)[0]
        ends = [fast_s, 2 * fast_s, 2 * fast_s + slow_s, 2 * fast_s + 2 * slow_s]
        assert [epochs for _, epochs in seen] == [1, 2, 3, 4]
        assert [time_s for time_s, _ in seen] == pytest.approx(ends)
        (row,) = attempts(world)
        assert row.time_s == pytest.approx(2 * fast_s + 3 * slow_s)

    def test_a_training_can_be_stopped(self) -> None:
        def stop(ctx: Context, running: Running) -> Knobs | None:
            return Knobs(run="stop") if running.progress.epochs >= 3 else None

        world = run_world([job(), job("b", 1.0)], KNOWN, policy_set=tuned(stop, "epoch"))
        first, second = attempts(world)
        assert (first.epochs, first.reached_target, first.early_stopped) == (3, False, False)
        assert first.time_s == pytest.approx(3 * EPOCH_S)
        assert second.start_time_s == pytest.approx(first.finish_time_s)


class TestWake:
    def test_it_is_asked_at_the_time_that_it_named_last(self) -> None:
        seen: list[float] = []

        def again(ctx: Context, running: Running) -> Knobs:
            seen.append(ctx.now_s)
            return Knobs(wake_s=ctx.now_s + 1.5 if len(seen) < 3 else math.inf)

        def tune(ctx: Context, running: Running) -> Knobs | None:
            return Knobs(250.0, wake_s=1.0) if running.moment == "start" else again(ctx, running)

        moments = (*START_MOMENTS, "wake")
        run_world([job()], KNOWN, policy_set=chosen(tune=stub("tune", tune=tune, moments=moments)))
        assert seen == [1.0, 2.5, 4.0]

    def test_a_time_that_is_past_is_refused(self) -> None:
        policy = tuned(lambda ctx, _: Knobs(wake_s=ctx.now_s), "epoch", "wake")
        with pytest.raises(PolicyError, match=r"wants to be woken at 2\.0 s; it is 2\.0 s"):
            run_world([job()], KNOWN, policy_set=policy)


def pause_between(begin: float, end: float) -> Callable[[Context, Running], Knobs]:
    """Pause while the signal is between two values."""

    def answer(ctx: Context, running: Running) -> Knobs:
        return Knobs(run="pause" if begin <= ctx.signal("s").value < end else "go")

    return answer


class TestPause:
    SIGNAL: ClassVar[tuple[float, ...]] = tuple(map(float, range(40)))

    @pytest.mark.parametrize("holds", [False, True])
    def test_it_keeps_what_was_done(self, holds: bool) -> None:
        policy = tuned(pause_between(3, 8), "signal")
        world = run_world(
            [job()], KNOWN, policy_set=policy, signals=slots(*self.SIGNAL), holds_pauses=holds
        )
        (row,) = attempts(world)
        assert row.finish_time_s == pytest.approx(15.0)
        assert row.time_s == pytest.approx(10.0)
        idle_j = 5.0 * 20.0 if holds else 0.0
        assert row.energy_j == pytest.approx(5 * CURVE.epoch(250.0)[1] + idle_j)
        assert row.overhead_s == pytest.approx(5.0 if holds else 0.0)
        line = timeline_of(world)
        pauses = 5.0 * 20.0  # idle GPUs draw power, whoever holds them
        assert integral(line, line.power_w) == pytest.approx(5 * CURVE.epoch(250.0)[1] + pauses)

    @pytest.mark.parametrize(("holds", "start_s"), [(False, 3.0), (True, 15.0)])
    def test_its_gpus_are_free_for_others_unless_it_holds_them(
        self, holds: bool, start_s: float
    ) -> None:
        def answer(ctx: Context, running: Running) -> Knobs:
            if running.start.job.job_id == "b":
                return Knobs()
            return pause_between(3, 8)(ctx, running)

        world = run_world(
            [job("a"), job("b", 1.0)],
            KNOWN,
            policy_set=tuned(answer, "signal"),
            signals=slots(*self.SIGNAL),
            holds_pauses=holds,
        )
        rows = {row.job_id: row for row in attempts(world)}
        assert rows["b"].start_time_s == pytest.approx(start_s)
        assert rows["a"].finish_time_s == pytest.approx(15.0 if holds else 20.0)

    @pytest.mark.parametrize("holds", [False, True])
    def test_going_on_costs_what_a_preemption_costs(self, holds: bool) -> None:
        cluster = replace(spec(), restore_s=1.5)
        world = run_world(
            [job()],
            KNOWN,
            cluster,
            tuned(pause_between(3, 8), "signal"),
            signals=slots(*self.SIGNAL),
            holds_pauses=holds,
        )
        (row,) = attempts(world)
        assert row.finish_time_s == pytest.approx(16.5)

    def test_a_job_that_never_goes_on_is_an_error(self) -> None:
        policy = tuned(pause_between(3, math.inf), "signal")
        with pytest.raises(PolicyError, match="job a was paused, and never went on"):
            run_world([job()], KNOWN, policy_set=policy, signals=slots(*self.SIGNAL))

    @pytest.mark.parametrize("holds", [False, True])
    @pytest.mark.parametrize("workload", ["cnn", None])
    def test_it_may_begin_with_a_pause(self, holds: bool, workload: str | None) -> None:
        def tune(ctx: Context, running: Running) -> Knobs:
            limit_w = 250.0 if running.moment == "start" else None
            return Knobs(limit_w, run="pause" if ctx.signal("s").value < 4 else "go")

        config = stub(
            "tune",
            tune=tune,
            moments=(*START_MOMENTS, "signal"),
            signals=("s",),
            limits_unprofiled=True,
        )
        world = run_world(
            [job(workload=workload or "cnn").replace(workload=workload)],
            KNOWN,
            policy_set=chosen(tune=config),
            signals=slots(*self.SIGNAL),
            holds_pauses=holds,
        )
        (row,) = attempts(world)
        assert row.finish_time_s == pytest.approx(14.0)
        assert row.time_s == pytest.approx(10.0)

    @given(
        pauses=st.lists(st.booleans(), min_size=1, max_size=20),
        length_s=st.floats(0.05, 3.0),
        holds=st.booleans(),
        select=st.sampled_from(
            ["fifo", "easy-backfill", "dlas-gpu", "srtf", "las", "gittins", "fair-share"]
        ),
    )
    def test_work_is_conserved_over_pauses_and_preemptions(
        self, pauses: list[bool], length_s: float, holds: bool, select: str
    ) -> None:
        def answer(ctx: Context, running: Running) -> Knobs:
            return Knobs(run="pause" if ctx.signal("s").value else "go")

        world = build_world(
            [job(str(n), n * 0.7, duration_s=10.0 - n) for n in range(4)],
            KNOWN,
            spec(1, 2),
            replaced(tuned(answer, "signal"), select),
            signals=slots(*map(float, pauses), 0.0, length_s=length_s),
            holds_pauses=holds,
        )
        world.run()
        rows = attempts(world)
        assert sorted(row.job_id for row in rows) == ["0", "1", "2", "3"]
        for row in rows:
            assert row.time_s == pytest.approx(10.0)
            assert row.finish_time_s - row.start_time_s >= 10.0 - 1e-9
        line = timeline_of(world)
        jobs_j = math.fsum(row.energy_j - row.overhead_s * 20.0 for row in rows)
        idle_j = 20.0 * (2 * float(line.time_s[-1]) - 40.0)
        assert integral(line, line.power_w) == pytest.approx(jobs_j + idle_j)

    @given(
        runs=st.lists(st.sampled_from(["go", "pause", "stop"]), min_size=1, max_size=20),
        length_s=st.floats(0.05, 3.0),
        holds=st.booleans(),
        select=st.sampled_from(["fifo", "dlas-gpu", "srtf", "las", "gittins", "fair-share"]),
    )
    @example(["pause", "pause", "pause", "stop"], 1.0, True, "srtf")
    def test_a_paused_job_may_be_stopped_wherever_it_waits(
        self, runs: list[Any], length_s: float, holds: bool, select: str
    ) -> None:
        def answer(ctx: Context, running: Running) -> Knobs:
            return Knobs(run=[*runs, "go"][int(ctx.signal("s").value)])

        world = run_world(
            [job(str(n), n * 0.7, duration_s=10.0 - n) for n in range(4)],
            KNOWN,
            spec(1, 1),
            replaced(tuned(answer, "signal"), select),
            signals=slots(*map(float, range(len(runs) + 1)), length_s=length_s),
            holds_pauses=holds,
        )
        rows = attempts(world)
        assert sorted(row.job_id for row in rows) == ["0", "1", "2", "3"]
        line = timeline_of(world)
        assert line.gpus_busy.max() <= 1
        jobs_j = math.fsum(row.energy_j - row.overhead_s * 20.0 for row in rows)
        idle_j = 20.0 * (float(line.time_s[-1]) - math.fsum(row.time_s for row in rows))
        assert integral(line, line.power_w) == pytest.approx(jobs_j + idle_j)

    def test_a_job_that_begins_with_a_pause_may_be_stopped_as_it_begins(self) -> None:
        def tune(ctx: Context, running: Running) -> Knobs:
            return Knobs(250.0, run="pause") if running.moment == "start" else Knobs(run="stop")

        world = run_world(
            [job("a", 1.0), job("b", 2.0)],
            KNOWN,
            spec(1, 1),
            chosen(tune=stub("tune", tune=tune, moments=(*START_MOMENTS, "straggler"))),
            stragglers={name: (Slowdown(0.0, 2.0),) for name in ("a", "b")},
        )
        assert [(row.job_id, row.time_s, row.reached_target) for row in attempts(world)] == [
            ("a", 0.0, False),
            ("b", 0.0, False),
        ]

    def test_a_pause_that_a_preemption_interrupts_counts_as_one(self) -> None:
        def answer(ctx: Context, running: Running) -> Knobs:
            if running.start.job.job_id == "b":
                return Knobs()
            return pause_between(3, 9)(ctx, running)

        world = run_world(
            [job("a", duration_s=10.0), job("b", 4.0, duration_s=1.0)],
            by_job(steady(2.0, EPOCH_S)),
            spec(1, 1),
            replaced(tuned(answer, "signal"), "srtf"),
            signals=slots(*self.SIGNAL),
            holds_pauses=True,
        )
        number, preemptions, paused_s = (
            world.recorder.column(name) for name in ("number", "preemptions", "tune_paused_s")
        )
        assert preemptions[number == 0] == [1]
        assert paused_s[number == 0] == pytest.approx([6.0])


class TestPowerCap:
    @given(
        values=st.lists(st.sampled_from([0.0, *LIMITS_W]), min_size=1, max_size=20),
        length_s=st.floats(0.05, 3.0),
        holds=st.booleans(),
        cap_w=st.floats(240.0, 700.0),
        restore_s=st.sampled_from([0.0, 0.5]),
        has_workload=st.booleans(),
    )
    def test_it_is_kept_over_retunes_and_pauses(
        self,
        values: list[float],
        length_s: float,
        holds: bool,
        cap_w: float,
        restore_s: float,
        has_workload: bool,
    ) -> None:
        """The signal is a limit, or 0 for a pause, after which the limit is the highest."""

        def answer(ctx: Context, running: Running) -> Knobs:
            value = ctx.signal("s").value
            return Knobs(value) if value else Knobs(250.0, run="pause")

        jobs = [job(str(n), n * 0.7) for n in range(4)]
        if not has_workload:
            jobs = [each.replace(workload=None) for each in jobs]
        cluster = replace(spec(1, 3), restore_s=restore_s, power_cap_w=cap_w + 60.0)
        world = run_world(
            jobs,
            KNOWN,
            cluster,
            tuned(answer, "signal", limits_unprofiled=True),
            signals=slots(*values, 250.0, length_s=length_s),
            holds_pauses=holds,
        )
        line = timeline_of(world)
        assert line.power_w.max() <= cap_w + 60.0 + 1e-6
        assert len(attempts(world)) == 4


def replaced(policy_set: Any, select: str) -> Any:
    """The same policies with another scheduler."""
    return replace(policy_set, select=chosen(select=select).select)


class TestRefusals:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (Knobs(123.0), r"power limit 123 W was chosen"),
            (Knobs(profile_w=(100.0,)), r"profiled at the start, not at epoch"),
            (Knobs(run="dance"), r"run is go, pause or stop; found 'dance'"),  # type: ignore[arg-type]
        ],
    )
    def test_what_is_not_allowed_is_refused(self, answer: Knobs, message: str) -> None:
        with pytest.raises(PolicyError, match=message):
            run_world([job()], KNOWN, policy_set=tuned(lambda *_: answer, "epoch"))

    def test_a_signal_that_is_not_declared_cannot_be_read(self) -> None:
        def read(ctx: Context, running: Running) -> Knobs | None:
            ctx.signal("other")
            return None

        with pytest.raises(PolicyError, match="declares no signal 'other'"):
            run_world([job()], KNOWN, policy_set=tuned(read, "epoch"), signals=slots(1.0))

    def test_nothing_is_no_answer_at_the_start(self) -> None:
        policy = chosen(tune=stub("tune", tune=lambda *_: None))
        with pytest.raises(PolicyError, match="answers with knobs at the start"):
            run_world([job()], KNOWN, policy_set=policy)


class TestLost:
    def test_a_lost_attempt_goes_on_with_the_knobs_in_force(self) -> None:
        seen: list[tuple[int, Moment, float | None]] = []

        def tune(ctx: Context, running: Running) -> Knobs | None:
            seen.append((running.start.attempt, running.moment, running.knobs.power_limit_w))
            if running.moment == "start":
                return Knobs(250.0, wake_s=1.0)
            return Knobs(100.0, wake_s=5.0) if running.start.attempt == 1 else None

        policy = chosen(tune=stub("tune", tune=tune, moments=(*START_MOMENTS, "wake")))
        world = build_world([job()], KNOWN, policy_set=policy, max_attempts=2)

        def lose(_: object) -> None:
            (execution,) = world.board.running.values()
            execution.pause()
            decision = execution.work.decision  # type: ignore[attr-defined]
            world.lost(execution.attempt, decision, AttemptTotals(1, 2.0, 200.0, False))

        world.env.schedule_at(3.0, Callback(lose))
        world.run()
        assert seen == [(1, "start", None), (1, "wake", 250.0), (2, "wake", 100.0)]
        assert [row.power_limit_w for row in attempts(world)] == [100.0, 100.0]
        assert attempts(world)[1].time_s == pytest.approx(5 * CURVE.epoch(100.0)[0])
