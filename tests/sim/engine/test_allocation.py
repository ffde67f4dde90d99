"""GPUs are allocated to gangs as a whole, and none twice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.world_views import any_world, slots_of, spans
from tests.support.worlds import (
    Setting,
    attempts,
    attempts_by_job,
    by_job,
    chosen,
    decided,
    run_world,
    spec,
    starts,
    steady,
    stub,
)
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.engine.world import World


def placements(world: World) -> dict[str, dict[int, int]]:
    """GPUs by node of every job, in a run without preemption."""
    return {
        job_id: {node: gpus for node, gpus, _ in slots_of(chose)}
        for _, job_id, chose in decided(world, "place")
    }


@any_world
def test_no_gpu_is_held_twice(setting: Setting) -> None:
    """Nor are more thousandths of a shared one than it has."""
    world, cluster = setting.run(), setting.cluster
    held = [span for span in spans(setting, world) if span.from_s < span.to_s]
    changes = [(span.from_s, 1, n) for n, span in enumerate(held)]
    changes += [(span.to_s, -1, n) for n, span in enumerate(held)]
    whole = [0] * cluster.nodes
    shared: list[dict[int, int]] = [{} for _ in whole]
    for _, sign, n in sorted(changes):
        for node, gpus, gpu in held[n].slots:
            if gpu == NEW:
                whole[node] += sign * gpus
                continue
            assert gpus == 1
            milli = shared[node].pop(gpu, 0) + sign * held[n].job.gpu_milli
            assert 0 <= milli <= 1000
            if milli:
                shared[node][gpu] = milli
        for node, _, _ in held[n].slots:
            assert whole[node] >= 0
            assert whole[node] + len(shared[node]) <= cluster.capacity[node]
    assert not any(whole)
    assert not any(shared)
    assert world.cluster.free_gpus == cluster.gpus
    assert world.cluster.free.tolist() == cluster.capacity.tolist()


@any_world
def test_a_gang_gets_all_its_gpus_or_none(setting: Setting) -> None:
    """All at once, on nodes of one type that it may run on, whenever it is placed."""
    world, cluster = setting.run(), setting.cluster
    held = spans(setting, world)
    for span in held:
        assert sum(gpus for _, gpus, _ in span.slots) == span.job.gpus
        assert all((gpu == NEW) == (span.job.gpu_milli == 1000) for _, _, gpu in span.slots)
        (kind,) = {int(cluster.node_type[node]) for node, _, _ in span.slots}
        assert kind in cluster.types_allowed(span.job.gpu_type)
    last = {span.job.job_id: span for span in sorted(held, key=lambda span: span.from_s)}
    kinds: dict[str, set[str]] = {}
    for span in held:
        kind = cluster.gpu_types[cluster.node_type[span.slots[0][0]]]
        kinds.setdefault(span.job.job_id, set()).add(kind)
    for job_id, rows in attempts_by_job(world).items():
        assert rows[-1].node_ids == sorted({node for node, _, _ in last[job_id].slots})
        for row in rows:
            asked = last[job_id].job
            assert (row.gpus, row.gpu_milli) == (asked.gpus, asked.gpu_milli)
            assert kinds[job_id] == {row.gpu_type}, "it goes on with another type"


def test_a_gang_larger_than_a_node_is_spread() -> None:
    known = by_job(steady(), steady(gpus=5))
    jobs = [job("small"), job("gang", gpus=5)]
    world = run_world(jobs, known, spec(nodes=3, gpus_per_node=2))
    assert starts(world) == {"small": 0.0, "gang": 0.0}
    assert placements(world) == {"small": {0: 1}, "gang": {0: 1, 1: 2, 2: 2}}


def test_a_job_that_holds_part_of_a_gpu_alone_may_be_preempted() -> None:
    part = job("part", duration_s=100.0).replace(workload=None, gpu_milli=500)
    whole = job("whole", 10.0, duration_s=5.0).replace(workload=None)
    world = run_world([part, whole], {}, None, chosen(select="srtf"))
    ended = {row.job_id: row.finish_time_s for row in attempts(world)}
    assert ended == {"part": 105.0, "whole": 15.0}


@pytest.mark.parametrize("select", ["dlas-gpu", "las", "srtf", "gittins"])
def test_a_job_that_others_left_no_place_waits(select: str) -> None:
    """Three are granted GPUs together; once two stand on different nodes, the third has no node."""

    def place(_: object, job: Job, cluster: ClusterView) -> Placement:
        node = int(np.argmax(cluster.free))
        return ((node, job.gpus, NEW),) if cluster.free[node] >= job.gpus else ()

    small = [job(name).replace(workload=None) for name in ("a", "b")]
    wide = job("wide", gpus=2, duration_s=20.0).replace(workload=None)
    policy_set = chosen(select=select, place=stub("place", place=place))
    world = run_world([*small, wide], {}, spec(nodes=2, gpus_per_node=2), policy_set)
    assert starts(world) == {"a": 0.0, "b": 0.0, "wide": 10.0}
