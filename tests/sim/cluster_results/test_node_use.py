"""Energy and rent of the nodes of elastic jobs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.elastic import BUSY_W, IDLE_W, run_elastic, task
from tests.support.worlds import spec
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower
from wattkeeper.sim.cluster.losses import LossRules, NodeChange
from wattkeeper.sim.cluster_results.elastic import elastic_metrics
from wattkeeper.sim.cluster_results.node_use import ElasticScope, NodePrices
from wattkeeper.sim.elastic.jobs import ElasticJob
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.signals import SignalSeries

LOSSES = [NodeChange(10.5, "down", 1), NodeChange(20.0, "up", 1)]


def constant(price: float) -> SignalSeries:
    return SignalSeries("constant", np.array([-math.inf]), np.array([price]))


def metrics_of(
    world: World, of: ElasticTask, prices: NodePrices | None = None, alone: bool = True
) -> dict[str, float]:
    scope = ElasticScope({0: ElasticJob(of, math.inf)}, 60.0, alone, prices)
    return elastic_metrics(world.recorder, world.cluster.spec, scope)


def test_each_second_of_a_node_is_in_one_part() -> None:
    """Four nodes pause 2 s and lose a second; three pause 2 s, and the fourth waits from 20 s.

    At the end three nodes are within their 15th step.
    """
    found = metrics_of(run_elastic([task()], LOSSES, until_s=60.0), task())
    assert found["elastic_pause_j"] == pytest.approx((4 * 2 + 3 * 2) * IDLE_W)
    assert found["elastic_lost_j"] == pytest.approx(4 * 1 * BUSY_W)
    steps_s = 14 * 10 / 3
    assert found["elastic_useful_j"] == pytest.approx((4 * 7.5 + 3 * steps_s) * BUSY_W)
    assert found["elastic_open_j"] == pytest.approx(3 * (47.5 - steps_s) * BUSY_W)
    assert found["elastic_checkpoint_j"] == 0
    assert found["elastic_waiting_j"] == pytest.approx(40 * IDLE_W)
    assert found["useful_sample_j"] * found["useful_samples"] == pytest.approx(
        found["elastic_energy_j"]
    )


def test_nodes_wait_for_no_job_that_has_as_many_as_it_takes_nor_beside_others() -> None:
    small = task(most=3)
    found = metrics_of(run_elastic([small], LOSSES, until_s=60.0), small)
    assert found["elastic_waiting_j"] == 0
    beside = metrics_of(run_elastic([task()], LOSSES, until_s=60.0), task(), alone=False)
    assert beside["elastic_waiting_j"] == 0


def test_a_node_that_boots_waits() -> None:
    world = run_elastic(
        [task()], LOSSES, settings={"join": "now"}, until_s=60.0, rules=LossRules(boot_s=5.0)
    )
    first_end_s = 12.5 + math.ceil((25 - 12.5) / (10 / 3)) * 10 / 3
    found = metrics_of(world, task())
    assert found["elastic_waiting_j"] == pytest.approx((first_end_s - 20) * IDLE_W)


def asleep_after(wait_s: float) -> ClusterSpec:
    cluster = replace(spec(4, 1, IDLE_W), sleep_after_s=wait_s)
    (name,) = cluster.power
    return replace(cluster, power={name: GpuPower(IDLE_W, BUSY_W, 3.0)})


def test_a_node_that_sleeps_draws_the_power_of_sleep() -> None:
    """It comes back at 20 s, sleeps from 30 s on, and no loss lets the job take it."""
    world = run_elastic([task()], LOSSES, until_s=60.0, cluster=asleep_after(10.0))
    found = metrics_of(world, task())
    assert found["elastic_waiting_j"] == pytest.approx(10 * IDLE_W + 30 * 3.0)


def test_rent_is_paid_for_nodes_that_are_up() -> None:
    """At 1 a node and second: all but one node, which is down from 10.5 s to 20 s."""
    prices = NodePrices(constant(3600.0), constant(7200.0))
    found = metrics_of(run_elastic([task()], LOSSES, until_s=60.0), task(), prices)
    assert found["elastic_rent"] == pytest.approx(4 * 60 - 9.5)
    assert found["lost_rent"] == pytest.approx(4 * 1)
    assert found["useful_sample_rent"] * found["useful_samples"] == pytest.approx(4 * 60 - 9.5)
    assert found["on_demand_rent"] == pytest.approx(found["useful_samples"] / 4 * 4 * 2)


def guarded(changes: list[NodeChange], share: float) -> dict[str, float]:
    """Metrics of three steps in a pipeline of four nodes, at 1 a node and second."""
    world = run_elastic(
        [task()],
        changes,
        replan="bamboo",
        samples=30.0,
        until_s=60.0,
        settings={"depth": 4, "every_steps": 100, "redundant_share": share},
    )
    return metrics_of(world, task(), NodePrices(constant(3600.0)))


def test_redundant_computation_is_a_share_of_steps_that_are_not_lost() -> None:
    """Four nodes train 3.75 s; then three do, of which one is a guard, for 5.625 s."""
    changes = [NodeChange(10.75, "down", 1)]
    found, plain = guarded(changes, 0.25), guarded(changes, 0.0)
    trained_s = 4 * 3.75 + 3 * 5.625
    assert found["elastic_redundant_j"] == pytest.approx(0.25 * trained_s * BUSY_W)
    assert found["elastic_useful_j"] == pytest.approx(0.75 * trained_s * BUSY_W)
    assert found["redundant_rent"] == pytest.approx(0.25 * trained_s)
    assert plain["elastic_useful_j"] == pytest.approx(trained_s * BUSY_W)
    assert plain.keys() == found.keys() - {"elastic_redundant_j", "redundant_rent"}
    for name in plain.keys() - {"elastic_useful_j"}:
        assert found[name] == pytest.approx(plain[name]), name


def test_steps_that_are_lost_are_lost_with_their_redundant_computation() -> None:
    """Two neighbours are: 3.75 s of four nodes, 0.25 s of three. Then four train 3 steps."""
    ups = [NodeChange(12.0, "up", 1), NodeChange(12.0, "up", 2)]
    found = guarded([NodeChange(10.75, "down", 1), NodeChange(11.0, "down", 2), *ups], 0.25)
    lost_s = 4 * 3.75 + 3 * 0.25
    assert found["elastic_lost_j"] == pytest.approx(lost_s * BUSY_W)
    assert found["elastic_redundant_j"] == pytest.approx(0.25 * 4 * 7.5 * BUSY_W)
    assert found["elastic_useful_j"] == pytest.approx(0.75 * 4 * 7.5 * BUSY_W)
    assert (found["lost_rent"], found["redundant_rent"]) == pytest.approx((lost_s, 7.5))


def test_rent_follows_its_signal() -> None:
    """The price doubles at 30 s; the shape before the loss pays the first price alone."""
    price = SignalSeries("spot", np.array([0.0, 30.0]), np.array([3600.0, 7200.0]))
    found = metrics_of(run_elastic([task()], LOSSES, until_s=60.0), task(), NodePrices(price))
    assert found["elastic_rent"] == pytest.approx((4 * 30 - 9.5) + 2 * 4 * 30)
    assert found["lost_rent"] == pytest.approx(4 * 1)
    assert "on_demand_rent" not in found


@given(
    lengths=st.lists(st.floats(0.5, 20), min_size=1, max_size=6),
    values=st.lists(st.floats(0, 9), min_size=6, max_size=6),
    repeats=st.booleans(),
    before_s=st.floats(0, 15),
    times=st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_an_integral_is_the_sum_of_the_slots(
    lengths: list[float], values: list[float], repeats: bool, before_s: float, times: list[float]
) -> None:
    ends = np.cumsum(lengths) - before_s
    total = float(sum(lengths))
    if ends[-1] <= 0:
        return
    starts = np.concatenate([[-before_s], ends[:-1]])
    series = SignalSeries(
        "s",
        starts,
        np.array(values[: len(lengths)]),
        float(ends[-1]),
        period_s=total if repeats else None,
    )
    most_s = 3 * total if repeats else float(ends[-1])
    at = np.array(times) * most_s
    for until_s, found in zip(at.tolist(), series.integral(at).tolist(), strict=True):
        grid = np.linspace(0.0, until_s, 401)
        middles = (grid[1:] + grid[:-1]) / 2
        wanted = sum(float(series.values(n, n + 1)[0]) for n in map(series.slot, middles.tolist()))
        assert found == pytest.approx(wanted * until_s / 400, abs=9 * 20 * until_s / 400 + 1e-9)


def test_an_integral_beyond_the_series_is_an_error() -> None:
    series = SignalSeries("s", np.array([0.0]), np.array([1.0]), 10.0)
    assert series.integral(np.array([10.0])).tolist() == [10.0]
    with pytest.raises(InputError, match="10 s"):
        series.integral(np.array([10.5]))
