"""Oobleck's pipelines on their nodes: formed, kept after losses, formed anew, read from storage."""

from __future__ import annotations

import math
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.elastic import run_elastic, shapes
from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.reconfiguration import reconfigure
from wattkeeper.policies.elastic.stages import LayerCost
from wattkeeper.policies.elastic.templates import plan_templates, template_sizes
from wattkeeper.policies.points.replan import (
    ElasticTask,
    ElasticView,
    ReplanMoment,
    Reshape,
    Shape,
    check_reshape,
)
from wattkeeper.policies.replan.oobleck import Oobleck, OobleckConfig
from wattkeeper.sim.cluster.losses import NodeChange

LAYERS = [LayerCost(0.1 + 0.01 * (n % 3), (0.002,)) for n in range(12)]
BYTES = tuple(10**n % 97 + 1 for n in range(12))
RESTART_S, RECONFIGURE_S = 100.0, 2.0


def planned(nodes: int = 9, least: int = 2, losses: int = 1, gpus: int = 1) -> ElasticTask:
    """A task of 12 layers with pipelines, and steps of 48 micro-batches of 2 samples."""
    sizes = template_sizes(least, nodes, losses, most=24)
    plan = PipelinePlan(plan_templates(LAYERS, gpus, sizes), 48, BYTES)
    rates = plan.rates(range(least, nodes + 1), 96.0)
    by_nodes = tuple(rates.get(number, 0.0) for number in range(nodes + 1))
    restart_s = (RESTART_S,) * (nodes + 1)
    return ElasticTask("e", least, by_nodes, 96.0, 10.0, restart_s, RECONFIGURE_S, plan=plan)


def ask(
    task: ElasticTask,
    moment: ReplanMoment,
    held: tuple[int, ...],
    shape: Shape | None,
    policy: Oobleck | None = None,
    now_s: float = 0.0,
) -> Reshape:
    view = ElasticView("e", task, moment, held, 0, shape, 1e6)
    policy = policy or Oobleck(OobleckConfig())
    answer = policy.replan(cast(Any, SimpleNamespace(now_s=now_s)), view)
    assert answer is not None
    check_reshape(answer, view)
    return answer


def nodes_of(shape: Shape) -> list[list[int]]:
    return [
        list(dict.fromkeys(n for stage in line for n in stage.nodes)) for line in shape.pipelines
    ]


def holders(shape: Shape, held: tuple[int, ...]) -> dict[int, set[int]]:
    """The nodes that still hold each layer."""
    found: dict[int, set[int]] = {layer: set() for layer in range(len(LAYERS))}
    for line in shape.pipelines:
        for stage in line:
            for layer in range(stage.first, stage.end):
                found[layer] |= set(stage.nodes) & set(held)
    return found


def test_a_loss_leaves_what_reconfiguration_makes_of_the_pipelines() -> None:
    task = planned()
    assert task.plan is not None
    start = ask(task, "start", tuple(range(9)), None)
    assert sorted(chain(*nodes_of(start.shape))) == list(range(9))
    assert start.shape.rate == pytest.approx(task.rates[9])
    lost = ask(task, "lost", tuple(n for n in range(9) if n != 4), start.shape)
    expected = reconfigure(nodes_of(start.shape), [4], 2)
    assert nodes_of(lost.shape) == [list(line) for line in expected]
    assert lost.shape.rate == pytest.approx(96 / task.plan.step_s(expected))
    assert (lost.pause_s, lost.from_storage) == (RECONFIGURE_S, False)
    assert lost.copied_bytes > 0


def test_without_a_holder_of_a_layer_all_restart_from_storage() -> None:
    task = planned(nodes=4)
    start = ask(task, "start", (0, 1, 2, 3), None)
    assert nodes_of(start.shape) == [[0, 1], [2, 3]]
    lost = ask(task, "lost", (1, 3), start.shape)  # the first stages of both are gone
    assert (lost.pause_s, lost.from_storage) == (RESTART_S, True)
    kept = ask(task, "lost", (1, 2), start.shape)
    assert (kept.pause_s, kept.from_storage) == (RECONFIGURE_S, False)


def test_a_loss_while_all_read_from_storage_lets_them_read_anew() -> None:
    task, policy = planned(nodes=9), Oobleck(OobleckConfig())
    shape = ask(task, "start", tuple(range(4)), None, policy).shape
    shape = ask(task, "lost", (1, 3), shape, policy, 10.0).shape
    restored = Oobleck(OobleckConfig())
    restored.load_state_dict(policy.state_dict())
    for each in (policy, restored):
        again = ask(task, "lost", (1, 3, 5, 6), shape, each, 10.0 + RESTART_S / 2)
        assert (again.pause_s, again.from_storage) == (RESTART_S, True)
        later = ask(task, "lost", (1, 3, 5, 6), again.shape, each, 11.0 + 3 * RESTART_S / 2)
        assert (later.pause_s, later.from_storage) == (RECONFIGURE_S, False)


def test_nodes_that_no_set_of_pipelines_uses_idle() -> None:
    task = planned(nodes=5, least=2, losses=1)
    assert task.plan is not None
    plan = task.plan._replace(templates=task.plan.templates[:1])
    assert plan.form(range(5)) == ((0, 1), (2, 3))
    assert plan.form(range(1)) == ()
    rates = plan.rates(range(1, 6), 96.0)
    assert rates[1] == 0
    assert rates[4] == rates[5] > rates[2] == rates[3]
    shape = ask(task._replace(plan=plan), "start", tuple(range(5)), None).shape
    lost = ask(task._replace(plan=plan), "lost", (0, 1, 2, 4), shape)
    assert nodes_of(lost.shape) == [[0, 1], [2, 4]]


def test_nodes_that_came_lead_to_balanced_pipelines() -> None:
    task = planned()
    start = ask(task, "start", tuple(range(7)), None)
    more = ask(task, "lost", (0, 1, 2, 3, 4, 5, 7, 8), start.shape)
    assert more.shape.rate == pytest.approx(task.rates[8])
    assert not more.from_storage


@given(st.data(), st.integers(1, 2), st.integers(2, 3), st.integers(1, 2))
def test_each_shape_has_each_layer_in_each_pipeline(
    data: st.DataObject, gpus: int, least: int, losses: int
) -> None:
    task = planned(9, least, losses, gpus)
    assert task.plan is not None
    shape: Shape | None = None
    everybody = tuple(range(12))
    for _ in range(data.draw(st.integers(1, 5))):
        held = tuple(
            sorted(
                data.draw(st.lists(st.sampled_from(everybody), min_size=1, max_size=9, unique=True))
            )
        )
        moment: ReplanMoment = (
            "start" if shape is None else data.draw(st.sampled_from(("lost", "boundary", "pause")))
        )
        answer = ask(task, moment, held, shape)
        if not answer.shape.rate:
            assert len(held) < least
            assert not answer.shape.pipelines
        else:
            used = sorted(chain(*nodes_of(answer.shape)))
            assert set(used) <= set(held)
            assert len(used) == len(list(chain(*task.plan.form(held))))
            for line in answer.shape.pipelines:
                layers = [n for stage in line for n in range(stage.first, stage.end)]
                assert layers == list(range(len(LAYERS)))
        if shape is not None and shape.pipelines and answer.shape.rate:
            left = holders(shape, held)
            assert answer.from_storage == (not all(left.values()))
            after = holders(answer.shape, held)
            copied = sum(
                BYTES[layer] * len(nodes - left[layer])
                for layer, nodes in after.items()
                if left[layer]
            )
            assert answer.copied_bytes == copied
        assert answer.pause_s == (RESTART_S if answer.from_storage else RECONFIGURE_S)
        shape = answer.shape


def test_a_world_trains_at_the_pace_of_what_losses_leave() -> None:
    task = planned()
    changes = [
        NodeChange(100.0, "down", 0),
        NodeChange(200.0, "down", 5),
        NodeChange(300.0, "up", 0),
        NodeChange(400.0, "down", 1),
    ]
    rows = shapes(run_elastic([task], changes, nodes=9, until_s=500.0))
    assert [row.nodes for row in rows] == [9, 8, 7, 7]
    assert rows[0].samples_per_s == pytest.approx(task.rates[9])
    assert rows[3].samples_per_s == pytest.approx(task.rates[7])  # another node came
    assert math.isnan(rows[0].copied_bytes)
    assert all(row.copied_bytes > 0 and row.pause_s == RECONFIGURE_S for row in rows[1:])
