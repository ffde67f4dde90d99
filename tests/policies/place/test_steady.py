"""`steady`: which nodes it leaves alone, and gangs within a rack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.place.test_place import NOBODY, make_job
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.place import Place
from wattkeeper.policies.registry import policies
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

OTHERS = ["best-fit", "consolidate", "first-fit", "fragmentation-aware", "spread"]


def steady(then: str = "first-fit") -> Place:
    return cast("Place", policies("place")["steady"].model_validate({"then": then}).build())


def cluster_of(nodes: int, gpus: int = 2, racks: Sequence[int] = ()) -> Cluster:
    cluster = Cluster(ClusterSpec.uniform("A100", nodes, gpus, 50.0, None))
    if racks:
        cluster.set_racks(racks)
    return cluster


def place(cluster: Cluster, job: Job, then: str = "first-fit") -> Placement:
    placement = steady(then).place(NOBODY, job, cluster)
    return cluster.take(job, placement) if placement else ()


def test_nodes_that_are_slow_or_about_to_go_down_come_last() -> None:
    cluster = cluster_of(4, 1)
    cluster.announce(0, 100.0)
    cluster.slow_down(1, 1.2)
    taken = [place(cluster, make_job())[0][0] for _ in range(4)]
    assert taken == [2, 3, 1, 0]
    assert place(cluster, make_job()) == ()


def test_a_node_that_came_back_is_steady_again() -> None:
    cluster = cluster_of(2, 1)
    cluster.announce(0, 100.0)
    cluster.slow_down(0, 3.0)
    cluster.renew(0, -1)
    assert place(cluster, make_job()) == ((0, 1, NEW),)


def test_a_gang_takes_slow_nodes_only_if_it_must() -> None:
    cluster = cluster_of(4)
    cluster.slow_down(0, 2.0)
    assert place(cluster, make_job(4)) == ((1, 2, NEW), (2, 2, NEW))
    assert place(cluster, make_job(4)) == ((0, 2, NEW), (3, 2, NEW))


def test_a_gang_is_placed_within_the_tightest_rack_that_holds_it() -> None:
    """Racks of three, two and two nodes; first fit alone would take the first two nodes."""
    cluster = cluster_of(7, racks=[0, 1, 0, 1, 0, 2, 2])
    cluster.take(make_job(), ((5, 1, NEW),))
    assert place(cluster, make_job(4)) == ((1, 2, NEW), (3, 2, NEW))
    assert place(cluster, make_job(4)) == ((0, 2, NEW), (2, 2, NEW))
    assert place(cluster, make_job(4)) == ((4, 2, NEW), (5, 1, NEW), (6, 1, NEW))


def test_racks_are_kept_among_steady_nodes() -> None:
    cluster = cluster_of(4, racks=[0, 0, 1, 1])
    cluster.announce(1, 60.0)
    assert place(cluster, make_job(4)) == ((2, 2, NEW), (3, 2, NEW))


jobs = st.builds(make_job, st.integers(1, 7))
parts = st.builds(make_job, st.integers(1, 2), st.sampled_from([250, 500]))


@given(
    data=st.data(),
    then=st.sampled_from(OTHERS),
    nodes=st.integers(1, 5),
    asked=st.lists(jobs | parts, min_size=1, max_size=8),
)
def test_it_fits_where_the_other_policy_fits_and_on_steady_nodes_if_these_hold_it(
    data: st.DataObject, then: str, nodes: int, asked: list[Job]
) -> None:
    racks = data.draw(st.lists(st.integers(-1, 1), min_size=nodes, max_size=nodes))
    cluster = cluster_of(nodes, racks=racks)
    for node in range(nodes):
        cluster.slow_down(node, data.draw(st.sampled_from([1.0, 1.0, 1.5])))
        cluster.announce(node, data.draw(st.sampled_from([np.inf, np.inf, 30.0])))
    is_steady = np.isinf(cluster.deadlines_s) & (cluster.slowdowns == 1)
    policy, other = steady(then), policies("place")[then].model_validate({}).build()
    for job in asked:
        policy.on_submit(NOBODY, job)
        other.on_submit(NOBODY, job)
        placement = policy.place(NOBODY, job, cluster)
        assert bool(placement) == bool(other.place(NOBODY, job, cluster))
        if job.gpu_milli == 1000 and cluster.free[is_steady].max(initial=0) >= job.gpus:
            assert all(is_steady[slot[0]] for slot in placement)
        if placement:
            cluster.take(job, placement)


def test_the_other_policy_is_one_without_options() -> None:
    with pytest.raises(ValueError, match="best-fit"):
        policies("place")["steady"].model_validate({"then": "steady"})


def test_views_of_a_cluster_cannot_be_written() -> None:
    cluster = cluster_of(2)
    for values in (cluster.racks, cluster.deadlines_s, cluster.slowdowns):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
