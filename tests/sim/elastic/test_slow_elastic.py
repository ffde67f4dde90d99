"""Elastic jobs beside slow nodes, against a replay that goes part by part of a second."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.engine.test_slow_nodes import slow, slow_s
from tests.support.elastic import BUSY_W, IDLE_W, run_elastic, shapes, task
from tests.support.slowed import Change
from tests.support.worlds import attempts
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import ElasticView, Reshape
from wattkeeper.policies.replan._joining import JoiningReplan
from wattkeeper.policies.replan.oobleck import Oobleck
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.sim.elastic.span import PaceClock

UNITS = 12
"""Of a second: a factor of 1, 2, 3, 4, 6 makes a second a whole number of them."""

factors = st.sampled_from([1.0, 2.0, 3.0, 4.0, 6.0])


def test_steps_take_longer_beside_a_slow_node_and_pauses_do_not() -> None:
    """After 2 s of pause a step and a half of 2.5 s; all the rest takes twice as long."""
    world = run_elastic([task()], [slow(5.75, 2.0, 3)], samples=30.0)
    (row,) = shapes(world)
    assert row.pause_s == 2.0
    assert row.until_s == pytest.approx(5.75 + 2 * (3 * 2.5 - 3.75))
    assert slow_s(world) == [pytest.approx(3.75)]
    (attempt,) = attempts(world)
    assert (attempt.time_s, attempt.overhead_s) == pytest.approx((7.5, 2 + 3.75))
    assert attempt.energy_j == pytest.approx(4 * (2 * IDLE_W + 11.25 * BUSY_W))


def test_any_cause_slows_steps_but_none_changes_the_power_of_an_elastic_job() -> None:
    half = Change(5.75, "neighbour", Pace(2.0))
    world = run_elastic([task()], samples=30.0, paces=[half])
    (row,) = shapes(world)
    assert row.until_s == pytest.approx(5.75 + 2 * (3 * 2.5 - 3.75))
    (attempt,) = attempts(world)
    assert attempt.energy_j == pytest.approx(4 * (2 * IDLE_W + 11.25 * BUSY_W))
    with pytest.raises(NotImplementedError):
        run_elastic([task()], samples=30.0, paces=[half._replace(pace=Pace(2.0, 0.5))])


def test_a_job_that_loses_its_slow_node_is_at_full_pace_again() -> None:
    changes = [slow(1.0, 3.0, 3), NodeChange(10.0, "down", 3)]
    world = run_elastic([task()], changes, until_s=40.0)
    first, second = shapes(world)
    assert (first.steps_s, first.samples) == (8.0, 10.0)
    assert first.lost_s == pytest.approx(0.5)
    assert second.samples == 28 // (10 / 3) * 10
    assert slow_s(world) == [pytest.approx(8 - 8 / 3), 0.0]


def test_a_slow_node_that_joins_slows_the_job_down() -> None:
    """The fourth node comes at 12 s, in a pause, and is slow before training goes on at 13 s."""
    changes = [
        NodeChange(0.0, "absent", 3),
        NodeChange(11.0, "down", 0),
        NodeChange(12.0, "up", 3),
        slow(12.5, 4.0, 3),
    ]
    world = run_elastic([task()], changes, until_s=63.0)
    last = shapes(world)[-1]
    assert (last.nodes, last.until_s) == (3, 63.0)
    assert last.samples == math.floor((63 - 13) / (4 * 10 / 3) + 1e-9) * 10


def test_a_checkpoint_before_a_planned_change_takes_longer_too() -> None:
    """Varuna commits at the end of a step of 4/3 s for 3 s, half of it at a third of the pace."""
    changes = [NodeChange(0.0, "absent", 3), NodeChange(9.0, "up", 3)]
    end_s = 7 + math.ceil((9 - 7) / (4 / 3)) * 4 / 3
    fast = task(rate=2.5)
    world = run_elastic(
        [fast],
        [*changes, slow(end_s + 1.5, 3.0, 0)],
        replan="varuna",
        settings={"join": "now"},
        until_s=40.0,
    )
    first = shapes(world)[0]
    assert first.until_s == pytest.approx(end_s + 1.5 + 3 * 1.5)
    assert first.write_s == pytest.approx(1.5 + 3 * 1.5)
    assert slow_s(world)[0] == pytest.approx(3.0)


def test_replan_sees_how_slow_nodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []

    def replan(policy: JoiningReplan, ctx: Context, view: ElasticView) -> Reshape | None:
        seen.append((view.moment, view.slowdown))
        return JoiningReplan.replan(policy, ctx, view)

    monkeypatch.setattr(Oobleck, "replan", replan)
    changes = [slow(1.0, 2.0, 2), slow(1.5, 3.0, 3)]
    changes += [NodeChange(10.0, "down", 3), NodeChange(15.0, "down", 2)]
    run_elastic([task()], changes, until_s=40.0)
    assert [each for each in seen if each[0] == "lost"] == [("lost", 2.0), ("lost", 1.0)]


class Replayed(NamedTuple):
    """What a job did until a loss."""

    steps_s: float
    write_s: float
    lost_s: float
    committed: int
    slow_s: float


def replay(
    begin_s: int, until_s: int, step: int, steps: int, write: int, changes: list[NodeChange]
) -> Replayed:
    """Steps and writes, whose lengths are whole seconds, a twelfth of one after the other."""
    steps_u = write_u = lost_u = slow_u = 0.0
    done, committed = 0, 0
    period = (steps * step + write) * UNITS
    for now_s in range(begin_s, until_s):
        factor = 1
        for change in changes:
            if change.time_s <= now_s:
                factor = int(change.factor)
        for _ in range(UNITS // factor):
            if done % period < steps * step * UNITS:
                steps_u += factor
                lost_u += factor
            else:
                write_u += factor
            slow_u += factor - 1
            done += 1
            if done % period == 0:
                committed, lost_u = committed + steps, 0.0
    return Replayed(steps_u / UNITS, write_u / UNITS, lost_u / UNITS, committed, slow_u / UNITS)


@settings(deadline=None)
@given(
    step=st.integers(1, 4),
    steps=st.integers(1, 4),
    write=st.integers(1, 5),
    lost_s=st.integers(8, 80),
    paces=st.lists(st.tuples(st.integers(0, 15), factors), max_size=6),
)
def test_a_slow_job_is_that_of_a_slow_elastic_replay(
    step: int, steps: int, write: int, lost_s: int, paces: list[tuple[int, float]]
) -> None:
    now_s, changes = 0, []
    for later_s, factor in paces:
        now_s += later_s + 1
        if now_s < lost_s:
            changes.append(slow(float(now_s), factor, 0))
    pause_s = 2 * write
    job = task(batch=4.0 * step, rate=1.0, checkpoint_s=write, restart_s=3.0 * write)
    world = run_elastic(
        [job],
        [*changes, NodeChange(float(lost_s), "down", 1)],
        replan="varuna",
        settings={"every_steps": steps},
        until_s=lost_s + 0.5,
    )
    row = shapes(world)[0]
    expected = replay(pause_s, lost_s, step, steps, write, changes)
    assert row.until_s == lost_s
    assert (row.steps_s, row.write_s, row.lost_s, row.samples / job.batch) == pytest.approx(
        expected[:4], abs=1e-9
    )
    assert slow_s(world)[0] == pytest.approx(expected.slow_s, abs=1e-9)


@given(
    paces=st.lists(st.tuples(st.floats(0.1, 20), st.floats(1, 5)), max_size=6),
    share=st.floats(0, 1),
    length=st.floats(0, 1),
)
def test_the_clock_of_a_pace_goes_both_ways(
    paces: list[tuple[float, float]], share: float, length: float
) -> None:
    now_s, clock = 3.0, PaceClock(3.0, 1.5)
    assert clock.done_s(3.0) == 0
    for later_s, factor in paces:
        now_s += later_s
        clock.change(now_s, factor)
    until_s = now_s + 7.0
    done_s = clock.done_s(until_s)
    assert clock.time_s(done_s) == pytest.approx(until_s)
    part_s = share * done_s
    begin_s = part_s * (1 - length)
    took_s = clock.time_s(part_s) - clock.time_s(begin_s)
    assert clock.span_s(part_s, part_s - begin_s) == pytest.approx(took_s, abs=1e-9)
    assert took_s >= part_s - begin_s - 1e-9
