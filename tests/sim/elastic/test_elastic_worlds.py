"""Random worlds of elastic and ordinary jobs, losses, notices, power caps and preemption."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.engine.test_node_losses import changes_of, loss_rules, valid
from tests.sim.engine.test_slow_nodes import changes_of as slow_changes_of
from tests.sim.engine.test_slow_nodes import slow_s
from tests.support.elastic import BUSY_W, IDLE_W, run_elastic
from tests.support.examples import examples
from tests.support.worlds import attempts, chosen, spec
from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.stages import LayerCost
from wattkeeper.policies.elastic.templates import plan_templates
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.losses import LossRules, NodeChange
from wattkeeper.sim.cluster_results.columns import recorded_columns
from wattkeeper.sim.cluster_results.node_use import ElasticScope, NodePrices
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect
from wattkeeper.sim.elastic.jobs import ElasticJob
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.signals import SignalSeries
from wattkeeper.sim.recording.row_types import ShapeRow

REPLANS: list[tuple[str, dict[str, Any]]] = [
    ("oobleck", {"join": "loss"}),
    ("oobleck", {"join": "now"}),
    ("oobleck", {"join": "pays"}),
    ("varuna", {"every_steps": 2, "join": "now"}),
    ("varuna", {"every_steps": "daly"}),
    ("in-memory", {}),
    ("on-notice", {"join": "now"}),
    ("adaptive", {}),
    ("bamboo", {"depth": 2, "every_steps": 2, "redundant_share": 0.25}),
    ("bamboo", {"depth": 3}),
]
SELECTS = ["fifo", "fjf", "las", "fair-share"]


class Drawn(NamedTuple):
    """A world to be built."""

    tasks: list[ElasticTask]
    samples: float
    until_s: float
    others: list[Job]
    changes: tuple[NodeChange, ...]
    rules: LossRules
    nodes: int
    gpus: int
    cap_w: float | None
    preemption_s: float
    replan: tuple[str, dict[str, Any]]
    select: str

    def run(self) -> World:
        cluster = spec(self.nodes, self.gpus, IDLE_W)
        cluster = replace(cluster, power_cap_w=self.cap_w, checkpoint_s=self.preemption_s)
        kind, chosen_settings = self.replan
        return run_elastic(
            self.tasks,
            self.changes,
            replan=kind,
            settings=chosen_settings,
            nodes=self.nodes,
            gpus=self.gpus,
            samples=self.samples,
            until_s=self.until_s,
            others=self.others,
            rules=self.rules,
            cluster=cluster,
            policy_set=chosen(select=self.select),
        )


@st.composite
def tasks_of(draw: st.DrawFn, name: str, nodes: int, gpus: int) -> ElasticTask:
    least = draw(st.integers(1, nodes))
    most = draw(st.integers(least, nodes + 1))
    power = draw(st.sampled_from([0.5, 1.0]))
    rates = [0.0] * least + [round(n**power, 3) for n in range(least, most + 1)]
    if nodes > least < most and draw(st.booleans()):
        rates[least] = 0.0
    checkpoint_s = draw(st.sampled_from([0.0, 1.5]))
    restart_s = tuple(2 * checkpoint_s + draw(st.sampled_from([0.0, 2.0])) for _ in rates)
    batch = draw(st.sampled_from([1.0, 10.0]))
    plan = draw(plans(gpus)) if draw(st.booleans()) else None
    if plan is not None:
        planned = plan.rates(range(least, most + 1), batch)
        if any(planned.get(number) for number in range(nodes + 1)):
            rates[least:] = planned.values()
        else:
            plan = None
    return ElasticTask(
        name,
        least,
        tuple(rates),
        batch,
        checkpoint_s,
        restart_s,
        draw(st.sampled_from([0.0, 1.0])),
        plan=plan,
    )


@st.composite
def plans(draw: st.DrawFn, gpus: int) -> PipelinePlan:
    layers = [LayerCost(0.05 * (1 + n % 2), (0.01,)) for n in range(4)]
    sizes = sorted(draw(st.sets(st.integers(1, 3), min_size=1)))
    return PipelinePlan(plan_templates(layers, gpus, sizes), 12, (3, 1, 4, 1))


@st.composite
def worlds(draw: st.DrawFn) -> Drawn:
    nodes, gpus = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    tasks = [draw(tasks_of(f"e{n}", nodes, gpus)) for n in range(draw(st.integers(1, 2)))]
    replan = draw(st.sampled_from(REPLANS))
    depth = replan[1].get("depth", 1)
    if any(not any(each.rates[depth : nodes + 1]) for each in tasks):
        replan, depth = ("oobleck", {}), 1
    if depth > 1:
        tasks = [
            each._replace(rates=(0.0,) * depth + each.rates[depth:], plan=None) for each in tasks
        ]
    others = [
        job(
            f"o{n}",
            draw(st.sampled_from([0.0, 5.0, 20.0]) | st.floats(0, 60)),
            duration_s=draw(st.floats(0.5, 20)),
            gpus=draw(st.integers(1, nodes * gpus)),
        ).replace(workload=None)
        for n in range(draw(st.integers(0, 4)))
    ]
    until_s = draw(st.sampled_from([math.inf, 50.0, 80.0]))
    samples = draw(st.sampled_from([20.0, 55.0]))
    cap_w = None
    if draw(st.booleans()):
        held = draw(st.integers(nodes, nodes * gpus))
        cap_w = nodes * gpus * IDLE_W + max(held, nodes * gpus) * (BUSY_W - IDLE_W)
        most = max([one.gpus for one in others] + [each.start_nodes * gpus for each in tasks])
        if most < nodes * gpus and draw(st.booleans()):
            cap_w = nodes * gpus * IDLE_W + most * (BUSY_W - IDLE_W)
    changes = (
        tuple(draw(slow_changes_of(nodes)))
        if draw(st.booleans())
        else tuple(valid(draw(changes_of(nodes))))
    )
    return Drawn(
        tasks,
        samples,
        until_s,
        others,
        changes,
        draw(loss_rules()),
        nodes,
        gpus,
        cap_w,
        draw(st.sampled_from([0.0, 1.0])),
        replan,
        draw(st.sampled_from(SELECTS)),
    )


def collected(
    drawn: Drawn, world: World, window: tuple[float | None, float | None] = (None, None)
) -> ClusterResult:
    jobs = {number: ElasticJob(each, drawn.samples) for number, each in enumerate(drawn.tasks)}
    price = SignalSeries("spot", np.array([0.0, 30.0]), np.array([3600.0, 1800.0]))
    prices = NodePrices(price, SignalSeries("fixed", np.array([-math.inf]), np.array([7200.0])))
    return collect(
        "x",
        1,
        world.recorder,
        world.source,
        world.cluster.spec,
        {},
        0,
        window=window,
        elastic=ElasticScope(jobs, drawn.until_s, not drawn.others, prices),
    )


@settings(deadline=None, max_examples=examples(300))
@given(drawn=worlds())
def test_conservation_laws_hold(drawn: Drawn) -> None:
    world = drawn.run()
    rows = attempts(world)
    shapes = list(world.recorder.shapes)
    held = {(row.number, row.attempt): row.nodes for row in shapes}
    _nodes_are_held_once(drawn, world, held)
    columns = recorded_columns(world.recorder, world.cluster.spec)
    lost_s = columns["lost_time_s"].to_pylist() if "lost_time_s" in columns else [0.0] * len(rows)
    added = list(zip(rows, slow_s(world), lost_s, strict=True))
    for number, task in enumerate(drawn.tasks):
        own = [row for row in shapes if row.number == number]
        mine = [each for each in added if each[0].job_id == task.name]
        _times_add_up(drawn, own, [slow for _, slow, _ in mine])
        _samples_add_up(drawn, number, own, world, [row.time_s - lost for row, _, lost in mine])
    if not world.recorder.unable:
        ended = {row.job_id for row in rows}
        assert {one.job_id for one in drawn.others} <= ended
    result = collected(drawn, world)
    line = result.tables["timeline"]
    assert line["gpus_busy"].to_numpy().max(initial=0) <= drawn.nodes * drawn.gpus
    times, power_w = (line[name].to_numpy() for name in ("time_s", "power_w"))
    if len(times) > 1:
        integral = math.fsum((power_w[:-1] * np.diff(times)).tolist())
        assert result.metrics["cluster_energy_j"] == pytest.approx(integral, rel=1e-9, abs=1e-6)
        cap_w = drawn.cap_w or math.inf
        assert power_w.max() <= cap_w + 1e-6
    for energy_j in result.tables["jobs"]["energy_j"].to_pylist():
        assert energy_j >= 0


def _nodes_are_held_once(drawn: Drawn, world: World, held: dict[tuple[int, int], int]) -> None:
    """No two elastic jobs hold one node, and nobody one that is down."""
    numbers = {each.name: number for number, each in enumerate(drawn.tasks)}
    spans: dict[int, list[tuple[float, float]]] = {}
    for row in attempts(world):
        number = numbers.get(row.job_id)
        if number is None:
            continue
        assert len(row.node_ids) == held[number, row.attempt]
        for node in row.node_ids:
            spans.setdefault(node, []).append((row.start_time_s, row.finish_time_s))
    for of_node in spans.values():
        for (_, to_s), (from_s, _) in pairwise(sorted(of_node)):
            assert to_s <= from_s
    since: dict[int, float] = {}
    for event in drawn.changes:
        if event.event == "down":
            since[event.node] = event.time_s
        elif event.event == "up":
            from_s = since.pop(event.node)
            for row in attempts(world):
                if event.node in row.node_ids and not row.preemptions:
                    assert row.finish_time_s <= from_s or row.start_time_s >= event.time_s


def _times_add_up(drawn: Drawn, rows: list[ShapeRow], added_s: list[float]) -> None:
    factor = max((one.factor for one in drawn.changes if one.event == "degraded"), default=1.0)
    for row, slow in zip(rows, added_s, strict=True):
        trained_s = row.steps_s + row.write_s
        assert 0 <= slow <= trained_s * (1 - 1 / factor) + 1e-6
        known_s = row.pause_s + row.steps_s + row.write_s
        assert known_s <= row.until_s - row.time_s + 1e-6
        assert 0 <= row.lost_s <= row.steps_s + 1e-9
        if row.samples_per_s > 0:
            assert known_s == pytest.approx(row.until_s - row.time_s, abs=1e-6)
    for one, other in pairwise(rows):
        assert one.until_s <= other.time_s
        assert one.attempt + 1 == other.attempt


def _samples_add_up(
    drawn: Drawn, number: int, rows: list[ShapeRow], world: World, kept_s: list[float]
) -> None:
    """What was trained is committed, lost, or was under way at the end; times at full pace."""
    task = drawn.tasks[number]
    if drawn.replan[0] == "bamboo":
        _carried_samples_add_up(drawn, rows)
    for row, trained_s in zip(rows, kept_s, strict=True):
        if drawn.replan[0] == "bamboo":
            break
        if not row.steps_s:
            assert row.samples == row.lost_samples == 0
            continue
        step_s = task.batch / row.samples_per_s
        useful_s = row.samples / task.batch * step_s
        left_s = trained_s - useful_s
        if row is rows[-1] and row.until_s == drawn.until_s:
            assert left_s >= -1e-6
        else:
            assert left_s == pytest.approx(0, abs=1e-6)
    trained = sum(row.samples for row in rows)
    if number in world.recorder.finished_elastic:
        steps = math.ceil(drawn.samples / task.batch)
        assert trained == steps * task.batch
    elif drawn.until_s == math.inf:
        assert number in world.recorder.unable


def _carried_samples_add_up(drawn: Drawn, rows: list[ShapeRow]) -> None:
    """Likewise over all shapes: steps may be committed in a later one than they are trained in."""
    if any(one.event == "degraded" for one in drawn.changes):
        return
    kept = math.fsum((row.steps_s - row.lost_s - row.open_s) * row.samples_per_s for row in rows)
    assert kept == pytest.approx(math.fsum(row.samples for row in rows), abs=1e-6)
    if not rows or rows[-1].until_s != drawn.until_s:
        assert not any(row.open_s for row in rows)


@settings(deadline=None, max_examples=30)
@given(drawn=worlds())
def test_the_same_world_gives_the_same_bytes(drawn: Drawn) -> None:
    assert collected(drawn, drawn.run()).digest == collected(drawn, drawn.run()).digest


PARTS = ("useful", "redundant", "lost", "open", "pause", "checkpoint", "waiting")


def parts_of(metrics: dict[str, float]) -> dict[str, float]:
    """Energy of the nodes of elastic jobs by part, J; some parts may lack."""
    return {part: metrics.get(f"elastic_{part}_j", 0.0) for part in PARTS}


def _redundant_energy_adds_up(drawn: Drawn, result: ClusterResult) -> None:
    """A stated share of steps that were committed, in the metrics and shape by shape."""
    kind, stated = drawn.replan
    table, found = result.tables["shapes"], result.metrics.get("elastic_redundant_j")
    if kind != "bamboo" or not len(table):
        assert found is None
        assert "redundant_s" not in table.column_names
        return
    share, useful_j = stated.get("redundant_share", 0.8029), result.metrics["elastic_useful_j"]
    assert found == pytest.approx(share / (1 - share) * useful_j)
    node_s = np.dot(table["nodes"].to_numpy(), table["redundant_s"].to_numpy())
    assert found == pytest.approx(node_s * BUSY_W * drawn.gpus)


@settings(deadline=None, max_examples=examples(200))
@given(drawn=worlds())
def test_parts_of_the_energy_of_nodes_add_up(drawn: Drawn) -> None:
    """To that of the attempts, and of the cluster where all of its nodes are one job's."""
    world = drawn.run()
    rows = list(world.recorder.shapes)
    finished = 0 in world.recorder.finished_elastic or math.isinf(drawn.until_s)
    end_s = rows[-1].until_s if finished and rows else drawn.until_s
    window = (rows[0].time_s, end_s) if rows else (0.0, 0.0)
    result = collected(drawn, world, window)
    metrics = result.metrics
    parts = parts_of(metrics).values()
    assert min(parts) >= -1e-6
    _redundant_energy_adds_up(drawn, result)
    assert metrics["elastic_energy_j"] == pytest.approx(math.fsum(parts))
    jobs = result.tables["jobs"].to_pylist()
    names = {each.name for each in drawn.tasks}
    held_j = math.fsum(row["energy_j"] for row in jobs if row["job_id"] in names)
    if drawn.others:
        assert metrics["elastic_energy_j"] == pytest.approx(held_j)
    else:
        assert metrics["elastic_energy_j"] >= held_j * (1 - 1e-9)
    if len(drawn.tasks) == 1 and not drawn.others and drawn.tasks[0].most_nodes >= drawn.nodes:
        assert metrics["elastic_energy_j"] == pytest.approx(metrics["cluster_energy_j"], abs=1e-6)


@settings(deadline=None, max_examples=examples(100))
@given(drawn=worlds())
def test_rent_is_between_that_at_the_lowest_and_at_the_highest_price(drawn: Drawn) -> None:
    """Of 0.5 and 1 a node and second, for nodes that draw power of which the least is known."""
    metrics = collected(drawn, drawn.run()).metrics
    parts, busy_w = parts_of(metrics), BUSY_W * drawn.gpus
    busy_s = (parts["useful"] + parts["redundant"] + parts["lost"] + parts["open"]) / busy_w
    idle_j = parts["pause"] + parts["checkpoint"] + parts["waiting"]
    node_s = busy_s + idle_j / (IDLE_W * drawn.gpus)
    assert 0.5 * node_s - 1e-6 <= metrics["elastic_rent"] <= node_s + 1e-6
    for part in ("lost", "redundant"):
        part_s = parts[part] / busy_w
        assert 0.5 * part_s - 1e-6 <= metrics.get(f"{part}_rent", 0.0) <= part_s + 1e-6
