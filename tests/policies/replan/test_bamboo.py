"""Bamboo: guards that take stages over, new pipelines, and losses that are fatal."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.elastic.test_elastic_jobs import plain
from tests.support.elastic import run_elastic, shapes, task
from tests.support.messages import assert_states
from tests.support.worlds import attempts, decided
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.replan import ElasticView, Reshape, Shape, check_reshape
from wattkeeper.policies.replan.bamboo import form_ring
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.sim.engine.world import World

RARELY = 100
"""Steps from checkpoint to checkpoint: none is written."""


def down(time_s: float, node: int) -> NodeChange:
    return NodeChange(time_s, "down", node)


def up(time_s: float, node: int) -> NodeChange:
    return NodeChange(time_s, "up", node)


def train(
    changes: list[NodeChange],
    *,
    nodes: int = 4,
    depth: int = 4,
    steps: int | str = RARELY,
    samples: float = 30.0,
    share: float = 0.8029,
    **more: Any,
) -> World:
    """Pauses of 7 s from storage and 2 s for new pipelines; steps of 2.5 s on 4 nodes."""
    return run_elastic(
        [task(most=nodes)],
        changes,
        replan="bamboo",
        nodes=nodes,
        samples=samples,
        settings={"depth": depth, "every_steps": steps, "redundant_share": share},
        **more,
    )


def spans(world: World) -> list[tuple[str, float, float, int]]:
    return [(row.moment, row.time_s, row.until_s, row.nodes) for row in shapes(world)]


def test_a_guard_takes_a_stage_over_and_training_is_slower() -> None:
    """Half of the second step is done at 10.75 s; its rest and the third step take 1.5 times."""
    world = train([down(10.75, 1)])
    assert spans(world) == [("start", 0.0, 10.75, 4), ("lost", 10.75, 10.75 + 1.875 + 3.75, 3)]
    first, second = shapes(world)
    assert (first.pause_s, first.steps_s, first.lost_s, first.samples) == (7.0, 3.75, 0.0, 0.0)
    assert (second.pause_s, second.steps_s, second.lost_s) == (0.0, 5.625, 0.0)
    assert second.samples == 30.0
    assert second.samples_per_s == pytest.approx(4 / 1.5)


def test_new_pipelines_are_formed_at_the_end_of_the_step_with_nodes_that_wait() -> None:
    """Two pipelines of two nodes and one that waits: steps of 2 s, then 1.5 s, then of 2.5 s."""
    world = train([down(10.0, 0)], nodes=5, depth=2)
    assert spans(world) == [
        ("start", 0.0, 10.0, 5),
        ("lost", 10.0, 11.5, 4),
        ("boundary", 11.5, 16.0, 4),
    ]
    assert [row.pause_s for row in shapes(world)] == [7.0, 0.0, 2.0]
    assert [row.samples for row in shapes(world)] == [0.0, 0.0, 30.0]
    assert [chose for _, _, chose in decided(world, "replan")][-2].endswith("interim")


def test_a_loss_while_new_pipelines_are_formed_begins_that_anew() -> None:
    world = train([down(10.0, 0), down(12.5, 3)], nodes=5, depth=2)
    last = shapes(world)[-1]
    assert (last.moment, last.time_s, last.nodes, last.pause_s) == ("lost", 12.5, 3, 2.0)
    assert last.until_s == pytest.approx(14.5 + 10 / 3)
    assert (last.samples, sum(row.lost_s for row in shapes(world))) == (30.0, 0.0)


def test_a_node_that_waits_is_lost_without_effect() -> None:
    world = train([down(10.0, 4)], nodes=5, depth=4)
    assert spans(world) == [("start", 0.0, 10.0, 5), ("lost", 10.0, 13.0, 4)]
    assert shapes(world)[-1].samples_per_s == 5.0


def test_two_losses_that_are_no_neighbours_slow_training_once() -> None:
    world = train([down(10.75, 0), down(12.625, 2)])
    assert [row.samples_per_s for row in shapes(world)] == pytest.approx([4, 4 / 1.5, 4 / 1.5])
    assert shapes(world)[-1].until_s == pytest.approx(10.75 + 1.875 + 3.75)


@pytest.mark.parametrize("later_s", [0.0, 0.25])
def test_two_neighbours_cost_what_is_not_committed(later_s: float) -> None:
    """Both hold the third stage. All restart from storage, once nodes are back."""
    fatal_s = 10.75 + later_s
    world = train([down(10.75, 1), down(fatal_s, 2), up(11.5, 1), up(12.0, 2)])
    rows = shapes(world)
    lost = [row.lost_s for row in rows if row.lost_s]
    assert lost == ([3.75, 0.25] if later_s else [3.75])
    assert sum(row.lost_samples for row in rows) == 10.0
    last = rows[-1]
    assert (last.nodes, last.from_storage, last.samples) == (4, True, 30.0)
    assert last.until_s == pytest.approx(fatal_s + 7 + 3 * 2.5)
    lost_gpu_s = 4 * 3.75 + 3 * later_s
    assert sum(row.lost_gpu_s for row in world.recorder.node_changes) == pytest.approx(lost_gpu_s)
    held = dict(zip([row.attempt for row in rows], [row.nodes for row in rows], strict=True))
    columns = world.recorder.column("lost_time_s").tolist()
    by_attempt = zip([row.attempt for row in attempts(world)], columns, strict=True)
    assert sum(held[at] * lost_s for at, lost_s in by_attempt) == pytest.approx(lost_gpu_s)


def test_a_checkpoint_bounds_what_a_fatal_loss_costs() -> None:
    """Two steps and 3 s to write until 15 s; half of the third step is lost, and no more."""
    changes = [down(16.25, 1), down(16.5, 2), up(17.0, 1), up(17.0, 2)]
    world = train(changes, steps=2)
    rows = shapes(world)
    assert (rows[0].samples, rows[0].write_s) == (20.0, 3.0)
    assert [row.lost_s for row in rows if row.lost_s] == [1.25, 0.25]
    assert sum(row.samples for row in rows) == 30.0


def test_steps_that_are_carried_over_are_committed_with_later_ones() -> None:
    """One step before the loss and one after it make two, which are written at once."""
    world = train([down(10.75, 1)], steps=2, samples=100.0, until_s=17.0)
    first, second = shapes(world)
    assert (first.samples, first.steps_s) == (0.0, 3.75)
    assert second.write_s == 3.0
    assert (second.samples, second.steps_s) == (20.0, 3.25)


def test_pipelines_are_formed_once_a_node_returns() -> None:
    """The step under way ends at 12.625 s, the next one at 16.375 s; the node is back at 13 s."""
    world = train([down(10.75, 1), up(13.0, 1)], samples=40.0)
    rows = shapes(world)
    assert spans(world)[-1] == ("boundary", 16.375, 16.375 + 2 + 2.5, 4)
    assert sum(row.samples for row in rows) == 40.0


def test_others_get_nodes_after_a_checkpoint() -> None:
    world = train([], nodes=5, depth=2, until_s=40.0, others=[plain("o", 10.0, 50.0)])
    first, second = shapes(world)
    assert (first.samples, first.write_s, first.until_s) == (20.0, 3.0, 14.0)
    assert (second.nodes, second.pause_s, second.lost_s) == (4, 2.0, 0.0)


@pytest.mark.parametrize("steps", [1, 3, "daly"])
def test_without_losses_it_trains_as_checkpoints_in_storage_do(steps: int | str) -> None:
    ours = shapes(train([], steps=steps, until_s=500.0, samples=1e9))
    theirs = run_elastic(
        [task(most=4)], [], replan="varuna", settings={"every_steps": steps}, until_s=500.0
    )
    assert [row._replace(redundant_share=0.0) for row in ours] == shapes(theirs)
    if isinstance(steps, int):
        cycle_s = steps * 2.5 + 3
        assert ours[0].samples == (500 - 7) // cycle_s * steps * 10


def test_all_shapes_have_the_share_of_redundant_computation() -> None:
    changes = [down(10.75, 1), up(13.0, 1)]
    rows = shapes(train(changes, samples=40.0))
    assert [row.moment for row in rows] == ["start", "lost", "boundary"]
    assert [row.redundant_share for row in rows] == [0.8029] * 3
    assert shapes(train(changes, samples=40.0, share=0.5)) == [
        row._replace(redundant_share=0.5) for row in rows
    ]


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_share_of_redundant_computation_leaves_some_for_useful_work(share: float) -> None:
    view = ElasticView("e", task(), "start", (0, 1), 0, None, 1e6)
    with pytest.raises(PolicyError) as caught:
        check_reshape(Reshape(Shape(2, 2.0, redundant_share=share), 0.0), view)
    assert_states(str(caught.value), "job e", f"redundant_share = {share}", "less than 1")


@given(depth=st.integers(2, 7), lost=st.lists(st.integers(0, 6), unique=True))
def test_a_ring_survives_as_the_rule_of_bamboo_says(depth: int, lost: list[int]) -> None:
    """Node by node: lost with two stages, or beside a guard with two, means a fatal loss."""
    lost = [node for node in lost if node < depth]
    stages = {node: {node} for node in range(depth)}
    is_fatal = False
    for node in lost:
        guard = next(each for each, own in stages.items() if (node - 1) % depth in own)
        is_fatal |= len(stages[node]) == 2 or len(stages[guard]) == 2 or guard == node
        stages[guard] |= stages.pop(node) if guard != node else set()
    shape = Shape(depth, 1.0, pipelines=(form_ring(range(depth)),), is_redundant=True)
    assert shape.survives_on(set(range(depth)) - set(lost)) is not is_fatal
