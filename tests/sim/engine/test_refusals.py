"""Jobs and decisions that are not possible are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.world_views import bounded
from tests.support.worlds import attempts, by_job, chosen, run_world, spec, starts, steady, stub
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import NEW
from wattkeeper.policies.points.views import Configuration, Knobs, Start
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig
from wattkeeper.scenarios.contract.scripted import job, profile
from wattkeeper.sim.cluster.cluster import Cluster


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    jobs = [job("a"), job("big", 5.0, gpus=5)]
    with pytest.raises(InputError, match=r"job big asks for 5 GPUs, the cluster has 4"):
        run_world(jobs, by_job(steady(), steady(gpus=5)), spec(nodes=2, gpus_per_node=2))


def test_recorded_needs_a_cluster_that_is_large_enough() -> None:
    jobs = [job("a"), job("b", 5.0)]
    settings: dict[str, Any] = {"occupancy": "recorded", "start_on_submit": True}
    with pytest.raises(InputError, match=r"job b finds 0 of 1 GPUs free at 5 s and asks for 1"):
        run_world(jobs, by_job(steady()), spec(), **settings)
    world = run_world(jobs, by_job(steady()), spec(gpus_per_node=2), **settings)
    assert starts(world) == {"a": 0.0, "b": 5.0}


def configures(*answer: Any) -> Any:
    return stub("configure", configure=lambda ctx, start: Configuration(*answer))


def tunes(answer: Knobs) -> Any:
    return stub("tune", tune=lambda ctx, running: answer)


def places(*answer: tuple[int, int]) -> Any:
    slots = tuple((node, gpus, NEW) for node, gpus in answer)
    return stub("place", place=lambda ctx, job, cluster: slots)


@pytest.mark.parametrize(
    ("point", "config", "message"),
    [
        ("configure", configures(33), "batch size 33 for a .* there is 16, 32$"),
        ("configure", configures(32, 125.0), "limit 125 W .* batch size 32, .* 100, 150, 250 W$"),
        ("configure", configures(32, math.nan), "power limit nan W"),
        ("configure", FixedConfig(batch_size=64), "batch size 64 "),
        ("tune", FixedPowerConfig(power_limit_w=149.0), "power limit 149 W .* cnn"),
        ("tune", tunes(Knobs()), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(250.0, (250.0,))), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(profile_w=(250.0,))), "Tune answers either a power limit or"),
        ("tune", tunes(Knobs(profile_w=(250.0, 99.0))), "power limit 99 W"),
        ("place", places((0, 3)), "job a asks for 2 GPUs, placed on"),
        ("place", places((2, 1), (0, 1)), "job a: 1 GPUs on node 2 are not free"),
        ("place", places((-1, 1), (0, 1)), "job a: 1 GPUs on node -1 are not free"),
        ("place", places((0, 0), (1, 2)), "job a: 0 GPUs on node 0 are not free"),
        ("place", places((0, 2), (0, 1), (1, -1)), "job a is placed twice on one node"),
        ("place", places((0, 1)), "job a asks for 2 GPUs, placed on"),
        ("place", places((0, 2), (1, 1)), "job a asks for 2 GPUs, placed on"),
    ],
)
@pytest.mark.parametrize("profiling", ["measured", "foreknown"])
def test_a_choice_that_is_not_allowed(
    point: str, config: PolicyConfig, message: str, profiling: str
) -> None:
    known = by_job(profile(runs={16: (2.0,), 32: (2.0,)}, gpus=2))
    cluster = spec(nodes=2, gpus_per_node=2)
    with pytest.raises(PolicyError, match=message) as caught:
        run_world([job(gpus=2)], known, cluster, chosen(**{point: config}), profiling=profiling)
    assert caught.value.point == point
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("bound", [-1.0, -math.inf, math.nan])
def test_a_bound_below_nothing_is_not_allowed(bound: float) -> None:
    with pytest.raises(PolicyError) as caught:
        run_world([job()], by_job(steady()), None, chosen(configure=bounded(bound)))
    assert caught.value.point == "configure"


def test_foresight_must_be_declared() -> None:
    def peek(ctx: Any, start: Start) -> Configuration:
        return Configuration(ctx.foresight(start).default_batch_size)

    with pytest.raises(PolicyError, match="'stub' declares no foresight") as caught:
        run_world([job()], None, None, chosen(configure=stub("configure", configure=peek)))
    assert caught.value.point == "configure"
    declared = stub("configure", needs_foresight=True, configure=peek)
    assert attempts(run_world([job()], None, None, chosen(configure=declared)))


def test_the_view_of_the_cluster_cannot_be_written() -> None:
    view = Cluster(spec(nodes=2))
    for shown in (view.free, view.capacity, view.node_type):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 9
