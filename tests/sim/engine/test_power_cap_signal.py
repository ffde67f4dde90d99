"""A power cap that follows a signal is never exceeded, and work is conserved."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.pipelines import made_up_profile
from tests.support.worlds import (
    OTHER_GPU,
    AttemptRow,
    SquareRoot,
    attempts,
    build_world,
    by_job,
    chosen,
    decided,
    decisions,
    run_world,
    spec,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.planning.pipelines import plan_point
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Knobs, Running
from wattkeeper.policies.profile import UNLIMITED_W, Profile
from wattkeeper.scenarios.contract.scripted import GPU, LIMITS_W, job
from wattkeeper.sim.cluster.cluster_spec import CapSignal, ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.engine.stragglers import Slowdown
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.recording.row_types import DrawRow
from wattkeeper.traces.pipelines import replayed_profile

PROFILED = steady(5.0, 2.0)
CURVE = PROFILED.curves[32]
TASK = PipelineTask(made_up_profile(2, seed=3, clocks=5), PipelineSchedule("1f1b", 2, 2))
ITERATIONS = 6
KNOWN = by_job(
    PROFILED,
    Profile("cnn", OTHER_GPU, 1, 0.9, PROFILED.max_epochs, 32, LIMITS_W[-1], {32: CURVE}),
    *(replayed_profile("pipe", name, 2, TASK, ITERATIONS) for name in (GPU, OTHER_GPU)),
)


def signal(name: str, length_s: float, values: list[float]) -> Signal:
    starts = np.arange(len(values)) * np.float64(length_s)
    return Signal(
        SignalSeries(name, starts, np.array(values, dtype=np.float64)), None, NamedStreams(1)
    )


def capped(cluster: ClusterSpec, **rules: Any) -> ClusterSpec:
    return replace(cluster, power_cap_w=np.inf, cap=CapSignal("cap", **rules))


def check_cap(world: World, length_s: float, caps: list[float]) -> None:
    """The power of each span of the timeline is below the caps of all slots that it meets."""
    line = timeline_of(world)
    for begin_s, end_s, power_w in zip(
        line.time_s, [*line.time_s[1:], np.inf], line.power_w, strict=True
    ):
        first = int(np.floor(begin_s / length_s + 1e-9))
        last = int(np.ceil(min(end_s / length_s, 1e6) - 1e-9))
        met = caps[first:last] or caps[-1:]
        assert power_w <= min(met) + 1e-3, (begin_s, end_s)


class TestPreempt:
    def test_the_last_one_started_is_preempted_and_resumes(self) -> None:
        world = run_world(
            [job("a"), job("b", 1.0)],
            KNOWN,
            capped(spec(1, 2)),
            signals={"cap": signal("cap", 4.0, [500, 300, 500])},
        )
        rows = {row.job_id: row for row in attempts(world)}
        assert [rows[name].preemptions for name in "ab"] == [0, 1]
        assert rows["a"].finish_time_s == pytest.approx(10.0)
        assert rows["b"].finish_time_s == pytest.approx(15.0)
        assert world.recorder.journal.makers[-1] == ("cap", "preempt")

    def test_what_a_straggler_leaves_is_not_lent_to_others(self) -> None:
        pipe = job("pipe").replace(workload="pipe", gpus=2)
        cap_w = TASK.fastest.energy_j / TASK.fastest.time_s + CURVE.average_power_w[-1] - 5
        changes = (Slowdown(2.0, 3.0), Slowdown(5.0, 1.0))
        world = run_world(
            [pipe, job("cnn", 0.1)],
            KNOWN,
            capped(spec(1, 3)),
            signals={"cap": signal("cap", 1.0, [cap_w])},
            stragglers={"pipe": changes},
        )
        check_cap(world, 1.0, [cap_w])
        rows = {row.job_id: row for row in attempts(world)}
        assert rows["cnn"].start_time_s == rows["pipe"].finish_time_s


class TestLimits:
    def test_limits_fall_and_rise_with_the_cap(self) -> None:
        world = run_world(
            [job("a"), job("b")],
            KNOWN,
            capped(spec(1, 2), obey="limits", share="common"),
            signals={"cap": signal("cap", 4.0, [500, 2 * CURVE.average_power_w[0], 500])},
        )
        slow = CURVE.epoch(250.0)[0] / CURVE.epoch(100.0)[0]
        for row in attempts(world):
            assert row.preemptions == 0
            assert row.power_limit_w == 250.0
            assert row.finish_time_s == pytest.approx(10.0 + 4.0 * (1 - slow))
        low_w, *_, high_w = CURVE.average_power_w
        assert decided(world, "cap") == [
            (time_s, name, f"power_limit_w={limit_w} share_w={share_w}")
            for time_s, limit_w, share_w in ((4.0, 100.0, low_w), (8.0, 250.0, high_w))
            for name in "ab"
        ]

    def test_limits_rise_up_to_what_configure_chose(self) -> None:
        config = stub("configure", configure=lambda ctx, start: Configuration(32, 150.0))
        low_w, middle_w, _ = CURVE.average_power_w
        world = run_world(
            [job("a")],
            KNOWN,
            capped(spec(1, 1), obey="limits"),
            chosen(configure=config),
            signals={"cap": signal("cap", 4.0, [500, low_w, 500])},
        )
        assert attempts(world)[0].power_limit_w == 150.0
        assert decided(world, "cap")[1][2] == f"power_limit_w=150.0 share_w={middle_w}"

    def test_jobs_are_preempted_where_the_lowest_limits_do_not_suffice(self) -> None:
        world = run_world(
            [job("a"), job("b")],
            KNOWN,
            capped(spec(1, 2), obey="limits"),
            signals={"cap": signal("cap", 4.0, [500, CURVE.average_power_w[0] + 20, 500])},
        )
        assert [row.preemptions for row in attempts(world)] == [0, 1]

    def test_the_power_of_a_job_that_ended_goes_to_the_others(self) -> None:
        cap_w = 2 * CURVE.average_power_w[0]
        world = run_world(
            [job("a", scale=0.5), job("b")],
            KNOWN,
            capped(spec(1, 2), obey="limits"),
            signals={"cap": signal("cap", 1.0, [500, cap_w])},
        )
        assert attempts(world)[1].power_limit_w not in (None, 100.0)


class TestJournal:
    """Each pace that the cap sets is a decision of it, with what the job may draw."""

    def test_a_choice_above_the_share_is_lowered_until_the_cap_rises(self) -> None:
        def tune(ctx: Context, running: Running) -> Knobs:
            return Knobs(ctx.signal("s").value)

        config = stub("tune", tune=tune, moments=(*START_MOMENTS, "signal"), signals=("s",))
        _, middle_w, high_w = CURVE.average_power_w
        world = run_world(
            [job("a")],
            KNOWN,
            capped(spec(1, 1), obey="limits"),
            chosen(tune=config),
            signals={
                "cap": signal("cap", 5.0, [500, middle_w, 500]),
                "s": signal("s", 3.0, [100, 100, 250]),
            },
        )
        paces = [(r.time_s, r.point, r.chose) for r in decisions(world) if "limit_w" in r.chose]
        assert paces[1:] == [
            (0.0, "tune", "power_limit_w=100.0"),
            (3.0, "tune", "signal: power_limit_w=100.0"),
            (6.0, "tune", "signal: power_limit_w=250.0"),
            (6.0, "cap", f"power_limit_w=150.0 share_w={middle_w}"),
            (10.0, "cap", f"power_limit_w=250.0 share_w={high_w}"),
        ]

    def test_clocks_of_pipelines(self) -> None:
        pipe = job("pipe").replace(workload="pipe", gpus=2)
        ends = (TASK.clocks_mhz[0], TASK.clocks_mhz[-1])
        lowest_w, highest_w = (plan_point(TASK, TASK.execute(None, mhz)).power_w for mhz in ends)
        for share, word in (("common", "clock_mhz="), ("marginal", "plan=")):
            world = run_world(
                [pipe],
                KNOWN,
                capped(spec(1, 2), obey="limits", share=share),
                signals={"cap": signal("cap", 1.0, [2000, 0.5 * (highest_w + lowest_w), 2000])},
            )
            (_, _, lowered), (_, _, raised) = decided(world, "cap")
            assert lowered.startswith(word)
            assert raised.endswith(f"share_w={highest_w}")

    @pytest.mark.parametrize("cap", [400.0, math.inf])
    def test_caps_that_do_not_change_have_no_decisions(self, cap: float) -> None:
        world = run_world([job("a")], KNOWN, replace(spec(1, 1), power_cap_w=cap))
        assert not decided(world, "cap")


class TestMoment:
    @pytest.mark.parametrize("obey", ["preempt", "limits"])
    def test_a_policy_is_told_its_share(self, obey: str) -> None:
        shares = []

        def tune(ctx: Context, running: Running) -> Knobs | None:
            if running.moment == "cap":
                shares.append(running.share_w)
                return None
            return Knobs(LIMITS_W[-1])

        policy = chosen(tune=stub("tune", tune=tune, moments=(*START_MOMENTS, "cap"), signals=()))
        run_world(
            [job("a"), job("b")],
            KNOWN,
            capped(spec(1, 2), obey=obey),
            policy,
            signals={"cap": signal("cap", 4.0, [500, 400])},
        )
        assert shares
        assert sum(shares[:2]) <= 400


def test_a_job_without_gpus_gets_the_limit_with_which_it_goes_on() -> None:
    def tune(ctx: Context, running: Running) -> Knobs:
        value = ctx.signal("s").value
        return Knobs(value or None, run="go" if value else "pause")

    config = stub("tune", tune=tune, moments=(*START_MOMENTS, "signal"), signals=("s",))
    world = run_world(
        [job()],
        KNOWN,
        capped(spec(1, 1)),
        chosen(tune=config),
        signals={"cap": signal("cap", 4.0, [500]), "s": signal("s", 3.0, [250, 0, 100])},
    )
    (row,) = attempts(world)
    assert row.power_limit_w == 100.0
    assert row.finish_time_s == pytest.approx(6.0 + 7.0 * 2.5**0.5)


def mixed() -> ClusterSpec:
    groups = (NodeGroup(GPU, 2, 1), NodeGroup(OTHER_GPU, 1, 2))
    return ClusterSpec(groups, {GPU: GpuPower(20.0, 250.0), OTHER_GPU: GpuPower(30.0, 250.0)})


class TestNeverExceeded:
    @settings(max_examples=examples(200), deadline=None)
    @given(
        caps=st.lists(
            st.sampled_from([340.0, 420.0, 500.0, 640.0, 1000.0]), min_size=1, max_size=12
        ),
        length_s=st.floats(0.5, 6.0),
        limits=st.lists(st.sampled_from(LIMITS_W), min_size=1, max_size=12),
        workloads=st.lists(
            st.sampled_from(["cnn", "pipe", None, 120.0, 230.0]), min_size=1, max_size=6
        ),
        factors=st.lists(st.sampled_from([1.0, 1.2, 2.0]), max_size=4),
        obey=st.sampled_from(["preempt", "limits"]),
        share=st.sampled_from(["marginal", "proportional", "common"]),
        select=st.sampled_from(["fifo", "srtf", "las", "easy-backfill"]),
        pauses=st.booleans(),
        holds=st.booleans(),
        costs=st.sampled_from([(0.0, 0.0), (0.5, 0.3)]),
    )
    def test_a_cap_that_steps_down_and_up_under_load(
        self,
        caps: list[float],
        length_s: float,
        limits: list[float],
        workloads: list[str | float | None],
        factors: list[float],
        obey: str,
        share: str,
        select: str,
        pauses: bool,
        holds: bool,
        costs: tuple[float, float],
    ) -> None:
        """A number among the workloads is the measured power (W) of a job without a workload."""

        def tune(ctx: Context, running: Running) -> Knobs:
            value = ctx.signal("s").value
            run: Literal["go", "pause"] = "pause" if pauses and value == LIMITS_W[0] else "go"
            pipeline = running.start.options.pipeline
            if running.moment == "start":
                return Knobs(LIMITS_W[-1] if pipeline is None else UNLIMITED_W)
            if pipeline is not None:
                clocks = pipeline.clocks_mhz
                return Knobs(clock_mhz=clocks[LIMITS_W.index(value) % len(clocks)], run=run)
            return Knobs(value, run=run)

        config = stub(
            "tune",
            tune=tune,
            moments=(*START_MOMENTS, "signal", "cap"),
            signals=("s",),
            limits_unprofiled=True,
        )
        cluster = replace(mixed(), checkpoint_s=costs[0], restore_s=costs[1])
        caps = [*caps, 1000.0]
        jobs = [
            job(str(n), n * 0.7).replace(
                workload=name if isinstance(name, str) else None, gpus=1 + (name == "pipe")
            )
            for n, name in enumerate(workloads)
        ]
        changes = tuple(Slowdown(2.5 * n, factor) for n, factor in enumerate(factors, 1))
        slowdowns = {str(n): changes for n, name in enumerate(workloads) if name == "pipe"}
        measured_w = [name if isinstance(name, float) else np.nan for name in workloads]
        world = build_world(
            jobs,
            KNOWN,
            capped(cluster, obey=obey, share=share),
            replace(chosen(select=select), tune=config),
            holds_pauses=holds,
            measured_w=measured_w,
            stragglers=slowdowns,
            signals={
                "cap": signal("cap", length_s, caps),
                "s": signal("s", length_s * 0.7, [*limits, LIMITS_W[-1]]),
            },
        )
        world.run()
        check_cap(world, length_s, caps)
        rows = attempts(world)
        assert sorted(row.job_id for row in rows) == sorted(each.job_id for each in jobs)
        assert all(row.reached_target for row in rows)
        assert {row.epochs for row in rows if row.workload == "pipe"} <= {ITERATIONS}
        work = [10.0 if row.workload == "pipe" else 0.0 for row in rows]
        drawn = world.recorder.details(DrawRow).among(0, len(rows))
        for index, from_s, to_s, energy_j in zip(*drawn.values(), strict=True):
            if rows[index].workload == "pipe":
                continue
            busy_w = np.nan_to_num(measured_w[int(rows[index].job_id)], nan=250.0)
            power_w = energy_j / (to_s - from_s)
            work[index] += (to_s - from_s) * speed(rows[index], power_w, float(busy_w))
            if power_w >= 50:
                limit_w = noted_limit_w(world, rows[index].job_id, from_s)
                assert power_w == pytest.approx(power_under(rows[index], limit_w, float(busy_w)))
        assert work == pytest.approx([10.0] * len(rows), rel=1e-6)


def noted_limit_w(world: World, job_id: str, time_s: float) -> float:
    """The limit that the journal names last for a job up to a time."""
    paces = [
        row.chose
        for row in decisions(world)
        if row.job_id == job_id
        and row.point in ("tune", "cap")
        and row.time_s <= time_s
        and "power_limit_w=" in row.chose
    ]
    return float(paces[-1].partition("power_limit_w=")[2].split()[0])


def power_under(row: AttemptRow, limit_w: float, busy_w: float) -> float:
    """What a job draws under a limit, W."""
    if row.workload is None:
        return SquareRoot().under_limit(limit_w, busy_w)[0]
    return CURVE.average_power_w[CURVE.limits_w.index(limit_w)]


def speed(row: AttemptRow, power_w: float, busy_w: float) -> float:
    """The speed of a job that draws so much; 0 if it draws what its GPU draws idle."""
    if power_w < 50:
        return 0.0
    if row.workload is None:
        return SquareRoot().under_limit(power_w, busy_w)[1]
    known = np.abs(np.array(CURVE.average_power_w) - power_w)
    assert known.min() < 1e-3
    return CURVE.epoch(250.0)[0] / CURVE.epoch(CURVE.limits_w[int(known.argmin())])[0]
