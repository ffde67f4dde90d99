"""Elastic jobs in a world: pauses, steps, commits, gains, losses, and others that wait."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.support.elastic import BUSY_W, IDLE_W, run_elastic, shapes, task
from tests.support.worlds import attempts, chosen, decided, decisions, spec, timeline_of
from wattkeeper.policies.points.job import Job
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.losses import LossRules, NodeChange
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.recording.row_types import HoldRow


def down(time_s: float, node: int) -> NodeChange:
    return NodeChange(time_s, "down", node)


def up(time_s: float, node: int) -> NodeChange:
    return NodeChange(time_s, "up", node)


def absent(node: int) -> NodeChange:
    return NodeChange(0.0, "absent", node)


def notice(time_s: float, node: int, deadline_s: float) -> NodeChange:
    return NodeChange(time_s, "notice", node, "", deadline_s)


def plain(name: str, submit_s: float, duration_s: float, gpus: int = 1) -> Job:
    return job(name, submit_s, duration_s=duration_s, gpus=gpus).replace(workload=None)


def spans(world: World, number: int = 0) -> list[tuple[float, float, int]]:
    """Begin, end and nodes of each shape."""
    return [(row.time_s, row.until_s, row.nodes) for row in shapes(world, number)]


# --- alone


def test_a_job_pauses_and_trains_all_its_samples() -> None:
    """40 samples in steps of 10 at 4 samples a second, after a pause of 2 s."""
    world = run_elastic([task()], samples=40.0)
    (row,) = shapes(world)
    assert spans(world) == [(0.0, 12.0, 4)]
    assert (row.pause_s, row.steps_s, row.samples, row.lost_s) == (2.0, 10.0, 40.0, 0.0)
    (attempt,) = attempts(world)
    assert attempt.reached_target
    assert attempt.overhead_s == 2.0
    assert attempt.energy_j == pytest.approx(10 * 4 * BUSY_W + 2 * 4 * IDLE_W)


def test_samples_that_are_no_whole_number_of_steps_take_another_step() -> None:
    world = run_elastic([task()], samples=41.0)
    assert shapes(world)[0].samples == 50.0


def test_a_loss_costs_the_step_under_way_and_a_pause() -> None:
    """Lost after 2 s of pause and 3 steps of 2.5 s and one second: three nodes go on."""
    world = run_elastic([task()], [down(10.5, 1)], samples=60.0)
    first, second = shapes(world)
    assert (first.samples, first.lost_s, first.lost_samples) == (30.0, 1.0, 0.0)
    assert (second.moment, second.nodes, second.pause_s) == ("lost", 3, 2.0)
    assert second.until_s == pytest.approx(10.5 + 2 + 3 * 10 / 3)


@pytest.mark.parametrize(("at_s", "kept", "lost_steps"), [(40.0, 10, 5), (34.0, 10, 3)])
def test_varuna_goes_back_to_its_last_checkpoint(at_s: float, kept: int, lost_steps: int) -> None:
    """Pause 7 s, ten steps of 1 s, 3 s to write: checkpoints are complete at 20, 33, 46 s."""
    fast = task(rate=2.5)
    world = run_elastic([fast], [down(at_s, 0)], replan="varuna", until_s=60.0)
    row = shapes(world)[0]
    written = (at_s - 7) // 13 * 10
    assert row.samples == written * 10
    assert row.write_s == pytest.approx((at_s - 7) // 13 * 3)
    assert row.steps_s + row.write_s + row.pause_s == pytest.approx(at_s)
    assert row.lost_s == pytest.approx((at_s - 7) % 13)


def test_losses_of_one_moment_cost_one_pause() -> None:
    world = run_elastic([task()], [down(10.0, 1), down(10.0, 3)], until_s=30.0)
    assert spans(world) == [(0.0, 10.0, 4), (10.0, 30.0, 2)]
    assert [each[2] for each in decided(world, "replan")] == [
        "nodes=2 rate=2 pause_s=2",
        "nodes=4 rate=4 pause_s=2",
        "nodes=2 rate=2 pause_s=2",
    ]


def test_a_loss_in_a_pause_begins_it_anew() -> None:
    world = run_elastic([task()], [down(10.0, 1), down(11.0, 2)], until_s=30.0)
    assert spans(world) == [(0.0, 10.0, 4), (10.0, 11.0, 3), (11.0, 30.0, 2)]
    assert [row.pause_s for row in shapes(world)] == [2.0, 1.0, 2.0]


def test_too_few_nodes_stop_a_job_until_enough_are_there() -> None:
    changes = [down(10.0, 0), down(10.0, 1), down(12.0, 2), up(20.0, 0), up(25.0, 1)]
    world = run_elastic([task()], changes, until_s=40.0)
    assert spans(world) == [(0.0, 10.0, 4), (10.0, 12.0, 2), (20.0, 25.0, 2), (25.0, 40.0, 3)] or (
        spans(world)[:3] == [(0.0, 10.0, 4), (10.0, 12.0, 2), (20.0, 40.0, 2)]
    )
    assert shapes(world)[2].moment == "start"


def test_a_rate_of_0_stops_a_job_after_its_pause_until_a_node_comes() -> None:
    slow = task(least=2)._replace(rates=(0.0, 0.0, 0.0, 3.0, 4.0))
    changes = [down(10.0, 0), down(10.0, 1), up(20.0, 0)]
    world = run_elastic([slow], changes, until_s=40.0)
    assert spans(world) == [(0.0, 10.0, 4), (10.0, 20.0, 2), (20.0, 40.0, 3)]
    stopped = shapes(world)[1]
    assert (stopped.pause_s, stopped.steps_s) == (2.0, 0.0)
    assert shapes(world)[2].pause_s == 2.0


def test_a_job_that_stops_while_others_wait_gives_them_its_nodes() -> None:
    stops = task("stops", least=1, most=3, checkpoint_s=0.0)._replace(rates=(0.0, 0.0, 1.5, 2.0))
    waits = task("waits", least=3, most=3)
    changes = [NodeChange(1.0, "down", 0), NodeChange(2.0, "up", 0)]
    world = run_elastic([stops, waits], changes, replan="varuna", nodes=3, samples=20.0)
    rows = shapes(world)
    assert (rows[1].moment, rows[1].nodes, rows[1].samples_per_s) == ("lost", 1, 0.0)
    assert rows[2].moment == "start"
    assert shapes(world, 1)[-1].samples == 20.0


@pytest.mark.parametrize(("join", "nodes"), [("loss", [3]), ("now", [3, 4]), ("pays", [3, 4])])
def test_nodes_that_come_are_taken_up_as_join_says(join: str, nodes: list[int]) -> None:
    """Three nodes train steps of 10/3 s after 2 s; the fourth comes at 10 s."""
    world = run_elastic([task()], [absent(3), up(10.0, 3)], settings={"join": join}, until_s=100.0)
    rows = shapes(world)
    assert [row.nodes for row in rows] == nodes
    if join != "loss":
        boundary_s = 2 + 3 * 10 / 3
        assert rows[1].time_s == pytest.approx(boundary_s)
        assert [row.moment for row in rows] == ["start", "boundary"]
        assert rows[0].lost_s == pytest.approx(0.0, abs=1e-9)


def test_a_node_that_comes_in_a_pause_joins_without_another() -> None:
    world = run_elastic([task()], [absent(3), down(10.0, 0), up(11.0, 3)], until_s=30.0)
    assert spans(world) == [(0.0, 10.0, 3), (10.0, 11.0, 2), (11.0, 30.0, 3)]
    assert [row.pause_s for row in shapes(world)] == [2.0, 1.0, 1.0]


def test_varuna_writes_before_it_takes_up_a_node() -> None:
    fast = task(rate=2.5)
    world = run_elastic(
        [fast], [absent(3), up(10.5, 3)], replan="varuna", settings={"join": "now"}, until_s=60.0
    )
    first, second = shapes(world)
    step_s = 10 / 7.5
    assert first.until_s == pytest.approx(7 + 3 * step_s + 3)
    assert (first.write_s, first.samples) == (3.0, 30.0)
    assert first.lost_s == pytest.approx(0, abs=1e-9)
    assert (second.nodes, second.pause_s) == (4, 7.0)


@pytest.mark.parametrize(("warned_s", "kept"), [(5.0, 40.0), (2.0, 0.0)])
def test_a_notice_keeps_finished_steps_if_it_comes_in_time(warned_s: float, kept: float) -> None:
    """Pause 7 s, steps of 1 s: lost at 11.5 s, within the fifth; a checkpoint takes 3 s."""
    fast = task(rate=2.5)
    changes = [notice(11.5 - warned_s, 0, 11.5), down(11.5, 0)]
    world = run_elastic([fast], changes, replan="on-notice", until_s=60.0)
    first, second = shapes(world)
    assert first.samples == kept
    assert first.lost_s == pytest.approx(0.5 if kept else 4.5)
    assert second.pause_s == (10.0 if kept else 7.0)


def test_a_notice_of_a_node_before_its_last_loss_is_forgotten() -> None:
    fast = task(rate=2.5)
    changes = [notice(1.0, 0, 5.0), down(5.0, 0), up(6.0, 0), down(30.0, 0)]
    world = run_elastic([fast], changes, replan="on-notice", until_s=60.0)
    assert shapes(world)[-2].samples == 0.0


def test_a_job_that_never_commits_is_given_up() -> None:
    changes = [change for n in range(20_010) for change in (down(1.0 + n, 0), up(1.5 + n, 0))]
    world = run_elastic([task(least=4, batch=1e6)], changes, samples=1e9)
    assert world.recorder.unable == [0]


def test_many_checkpoints_take_no_more_memory_than_some() -> None:
    """Each step of 1 s is written in 0.5 s, 40,000 times."""
    fast = task(rate=2.5, checkpoint_s=0.5)
    world = run_elastic([fast], replan="varuna", settings={"every_steps": 1}, until_s=60_009.5)
    (row,) = shapes(world)
    assert row.write_s == pytest.approx(20_000)
    assert row.samples == 400_000
    assert len(world.recorder.events(HoldRow)[0]) <= 10_001


def test_a_batch_that_is_a_fraction_takes_no_step_more_by_rounding() -> None:
    """2.1 samples are 7 batches of 0.3, though 2.1 / 0.3 is more than 7."""
    assert 2.1 / 0.3 > 7
    world = run_elastic([task(batch=0.3)], samples=2.1)
    assert [row.samples for row in shapes(world)] == pytest.approx([2.1])


@pytest.mark.parametrize("others", [(), (plain("o", 35.0, 20.0, gpus=3),)])
def test_a_job_that_waits_when_all_end_is_unable_to(others: tuple[Job, ...]) -> None:
    """Too few nodes are up from 20 s on: with and without others that want them, too."""
    changes = [down(20.0, node) for node in range(3)] + [up(50.0, 0), up(50.0, 1)]
    world = run_elastic([task()], changes, until_s=40.0, others=others)
    assert world.recorder.unable == [0]
    assert all(row.start_time_s < 40.0 for row in attempts(world) if row.job_id == "e")


@pytest.mark.parametrize("select", ["fifo", "fjf", "sjf", "dlas-gpu", "gittins"])
def test_a_job_that_waits_when_all_end_does_not_start_later(select: str) -> None:
    """Its nodes are free from 100 s on; another job that was submitted after it runs then."""
    others = [plain("o", 0.0, 100.0, gpus=4), plain("p", 20.0, 10.0, gpus=4)]
    world = run_elastic(
        [task()], others=others, until_s=50.0, submit_s=10.0, policy_set=chosen(select=select)
    )
    assert world.recorder.unable == [0]
    assert [row.job_id for row in attempts(world)] == ["o", "p"]
    assert {row.job_id for row in decisions(world) if row.point == "place"} == {"o", "p"}


def test_jobs_that_take_spare_nodes_together_stay_below_the_cap() -> None:
    """Two jobs on two of six nodes each pause together; the cap allows one node more in all."""
    tasks = [task("e", 2, 6), task("f", 2, 6)]
    cap_w = 6 * IDLE_W + 5 * (BUSY_W - IDLE_W)
    cluster = replace(spec(6, 1, IDLE_W), power_cap_w=cap_w)
    world = run_elastic(tasks, cluster=cluster, until_s=100.0)
    assert [row.nodes for row in (*shapes(world, 0), *shapes(world, 1))].count(3) == 1
    assert max(timeline_of(world).power_w) == cap_w


def test_a_job_that_trains_when_all_end_is_able_to() -> None:
    assert run_elastic([task()], [down(20.0, 0)], until_s=40.0).recorder.unable == []


# --- with others


def test_an_elastic_job_gives_nodes_to_those_that_wait_and_takes_them_back() -> None:
    """One job waits at 10 s: the elastic one gives a node at the end of its step, at 12 s."""
    world = run_elastic(
        [task()], settings={"join": "now"}, others=[plain("o", 10.0, 20.0)], until_s=60.0
    )
    other = next(row for row in attempts(world) if row.job_id == "o")
    assert (other.start_time_s, other.finish_time_s) == (12.0, 32.0)
    nodes = [row.nodes for row in shapes(world)]
    assert nodes == [4, 3, 4]
    assert all(row.lost_s == pytest.approx(0, abs=1e-9) for row in shapes(world)[:-1])


def test_an_elastic_job_keeps_its_fewest_nodes_and_waits_for_them() -> None:
    world = run_elastic(
        [task()], others=[plain("o", 0.0, 20.0, gpus=3)], until_s=60.0, submit_s=1.0
    )
    assert shapes(world)[0].time_s == 20.0


def test_spare_nodes_go_where_they_add_most() -> None:
    """Rates grow with the square root and in proportion: the second job gets the spare nodes."""
    flat = task("flat", 1, 6)._replace(rates=tuple(math.sqrt(n) for n in range(7)))
    steep = task("steep", 1, 6)
    world = run_elastic([flat, steep], nodes=6, until_s=60.0)
    assert shapes(world, 0)[0].nodes + shapes(world, 1)[0].nodes == 6
    assert shapes(world, 1)[0].nodes > shapes(world, 0)[0].nodes


def test_whole_nodes_are_taken() -> None:
    """Nodes of two GPUs, of one of which another job has one."""
    world = run_elastic(
        [task()],
        gpus=2,
        others=[plain("o", 0.0, 20.0)],
        submit_s=1.0,
        until_s=60.0,
        settings={"join": "now"},
    )
    first = next(row for row in attempts(world) if row.job_id == "e")
    assert 0 not in first.node_ids
    assert shapes(world)[-1].nodes == 4


def test_the_power_cap_bounds_the_nodes_of_an_elastic_job() -> None:
    cluster = replace(spec(4, 1, IDLE_W), power_cap_w=4 * IDLE_W + 3 * (BUSY_W - IDLE_W))
    world = run_elastic([task()], cluster=cluster, until_s=30.0)
    assert [row.nodes for row in shapes(world)] == [3]


def test_losses_without_rules_of_checkpoints_need_no_write() -> None:
    """Rules of ordinary jobs do not touch elastic ones."""
    rules = LossRules(CheckpointRule(1.0, 5.0))
    world = run_elastic([task()], samples=40.0, rules=rules)
    assert spans(world) == [(0.0, 12.0, 4)]
