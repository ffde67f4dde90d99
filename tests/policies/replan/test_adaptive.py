"""The policy that chooses between ways to be resilient."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.elastic import run_elastic, shapes, task
from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.policies.registry import find_config
from wattkeeper.policies.replan.adaptive import AdaptiveConfig
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.recording.row_types import ShapeRow


def offers(oobleck: float, varuna: float, restart_s: float = 300.0) -> ElasticTask:
    """A task whose nodes train so many samples a second each with one system or the other."""
    base = task(checkpoint_s=20.0, restart_s=restart_s)
    rates = {
        system: tuple(rate * nodes if nodes >= 2 else 0.0 for nodes in range(5))
        for system, rate in (("oobleck", oobleck), ("varuna", varuna))
    }
    return base._replace(rates=rates["oobleck"], rates_by_system=rates)


def blinks(times_s: Sequence[float]) -> list[NodeChange]:
    """Losses of a node that is back at once."""
    return [NodeChange(time_s, event, 1) for time_s in times_s for event in ("down", "up")]


def train(
    offered: ElasticTask, changes: Sequence[NodeChange], until_s: float, *mechanisms: str
) -> tuple[World, list[ShapeRow]]:
    settings = {"mechanisms": list(mechanisms)} if mechanisms else {}
    world = run_elastic([offered], changes, replan="adaptive", settings=settings, until_s=until_s)
    return world, shapes(world)


def test_it_begins_with_what_is_faster_unless_a_loss_would_cost_too_much() -> None:
    """The pause of in-memory checkpoints is 260 s or 1 s, that of Oobleck 2 s."""
    _, (slow,) = train(offers(1.0, 1.2), [], 1000.0)
    assert [slow.samples_per_s, slow.pause_s] == [4.0, 2.0]
    _, (fast,) = train(offers(1.0, 1.2, restart_s=41.0), [], 1000.0)
    assert [fast.samples_per_s, fast.pause_s] == pytest.approx([4.8, 1.0])


def test_it_changes_to_the_faster_one_once_losses_prove_to_be_rare() -> None:
    _, rows = train(offers(1.0, 1.2), blinks([20_000.0, 40_000.0]), 50_000.0)
    assert [row.samples_per_s for row in rows] == pytest.approx([4.0, 4.8, 4.8])
    assert [row.pause_s for row in rows] == [2.0, 300.0, 260.0]
    assert [row.from_storage for row in rows] == [False, True, False]


def test_it_changes_back_once_losses_come_often() -> None:
    often = [20_000.0 + 400.0 * n for n in range(1, 200)]
    _, rows = train(offers(1.0, 1.2), blinks([20_000.0, *often]), 105_000.0)
    assert rows[1].samples_per_s == pytest.approx(4.8)
    assert rows[-1].samples_per_s == 4.0
    changes = sum(a.samples_per_s != b.samples_per_s for a, b in pairwise(rows))
    assert changes == 2


def test_a_loss_during_a_change_lets_the_restart_begin_anew() -> None:
    _, rows = train(offers(1.0, 1.2), blinks([20_000.0, 20_100.0]), 30_000.0)
    assert [row.pause_s for row in rows] == [2.0, 100.0, 300.0]
    assert rows[2].from_storage


def test_only_mechanisms_that_are_available_are_used() -> None:
    _, rows = train(offers(1.0, 1.2), blinks([20_000.0, 40_000.0]), 50_000.0, "oobleck")
    assert {row.samples_per_s for row in rows} == {4.0}


@pytest.mark.parametrize("announces", [True, False])
def test_saving_on_notice_is_used_once_losses_are_announced(announces: bool) -> None:
    """Checkpoints in storage take a fifth of the time, those on notice none."""
    times_s = [1000.0 * n for n in range(1, 30)]
    changes = []
    for time_s in times_s:
        if announces:
            changes.append(NodeChange(time_s - 120.0, "notice", 1, "", time_s))
        changes += blinks([time_s])
    _, rows = train(offers(1.0, 1.0, restart_s=60.0), changes, 30_000.0, "varuna", "on-notice")
    assert rows[0].write_s > 0
    assert (rows[-1].write_s == 0) is announces


def comes(at_s: float) -> list[NodeChange]:
    """A fourth node that is there from a time on."""
    return [NodeChange(0.0, "absent", 3), NodeChange(at_s, "up", 3)]


def test_a_node_that_comes_is_taken_up_if_that_pays() -> None:
    """A restart of 1,000 s for a third more, while losses come each 3,000 s or never."""
    offered = offers(1.0, 1.0, restart_s=1040.0)
    _, rows = train(offered, comes(20_000.0), 30_000.0, "in-memory")
    assert [row.nodes for row in rows] == [3, 4]
    often = blinks([3000.0 * n for n in range(1, 7)])
    changes = sorted((*comes(19_500.0), *often), key=lambda change: change.time_s)
    _, rows = train(offered, changes, 20_900.0, "in-memory")
    assert {row.nodes for row in rows} == {3}


def test_nodes_that_come_in_a_pause_do_not_change_the_mechanism() -> None:
    changes = [*blinks([20_000.0]), *comes(20_100.0)]
    changes.sort(key=lambda change: change.time_s)
    _, rows = train(offers(1.0, 1.2), changes, 30_000.0)
    assert [row.nodes for row in rows] == [3, 3, 4]
    assert rows[-1].samples_per_s == pytest.approx(4.8)
    assert rows[-1].pause_s == 200.0


@pytest.mark.parametrize("named", [[], ["oobleck", "oobleck"], ["raid"]])
def test_mechanisms_are_named_once_and_known(named: list[str]) -> None:
    with pytest.raises(InputError, match="mechanisms"):
        find_config("replan", "adaptive", {"mechanisms": named})


def test_it_needs_the_rates_of_the_systems_of_its_mechanisms() -> None:
    assert AdaptiveConfig().systems == ("oobleck", "varuna")
    assert AdaptiveConfig(mechanisms=("in-memory", "varuna")).systems == ("varuna",)


def test_rates_that_are_missing_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"oobleck,gpt,{nodes},{nodes}\n" for nodes in range(2, 5))
    (tmp_path / "rates.csv").write_text("system,model,num_nodes,samples_per_s\n" + rows)
    job = {
        "name": "a",
        "model": "gpt",
        "batch": 10,
        "least_nodes": 2,
        "most_nodes": 4,
        "checkpoint_s": 3,
        "restart_s": 10,
        "reconfigure_s": 2,
    }
    chosen: dict[str, object] = {"kind": "adaptive"}
    scenario = {
        "name": "a",
        "cluster": {
            "gpu": "V100",
            "gpus": 4,
            "gpus_per_node": 1,
            "idle_power_w": 50,
            "busy_power_w": 250,
        },
        "workload": {"kind": "elastic", "rates": "rates.csv", "until_s": 100, "jobs": [job]},
        "variants": {"v": {"policies": {"replan": chosen}}},
        "baseline": "v",
    }
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps(scenario))
    with pytest.raises(PolicyError) as caught:
        scenarios.load(str(path)).run()
    assert_states(str(caught.value), "gpt", "varuna", "systems oobleck")
    chosen["mechanisms"] = ["oobleck"]
    path.write_text(json.dumps(scenario))
    metrics = scenarios.load(str(path)).run().metrics
    assert float(metrics[metrics.metric == "goodput"].value.iloc[0]) == 3.9
