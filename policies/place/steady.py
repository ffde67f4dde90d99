"""Nodes that are neither slow nor about to go down first, and gangs within a rack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.points.job import WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.registry import PolicyConfig, build_policy, find_config


class Steady(Place):
    """See `SteadyConfig`."""

    def __init__(self, config: SteadyConfig) -> None:
        self._then: Place = build_policy(find_config("place", config.then))

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Where the other policy places the job on the first choice of nodes that holds it."""
        for nodes in _choices(cluster):
            placement = self._then.place(ctx, job, nodes)
            if placement:
                return self._keep_in_rack(ctx, job, nodes, placement)
        return ()

    def _keep_in_rack(
        self, ctx: Context, job: Job, cluster: ClusterView, placement: Placement
    ) -> Placement:
        """A placement within one rack, if the given one is not and there is one."""
        racks = cluster.racks
        used = {int(racks[slot[0]]) for slot in placement}
        if len(used) > 1:
            for rack in _tightest_racks(job, cluster):
                inside = self._then.place(ctx, job, SomeNodes(cluster, racks == rack))
                if inside:
                    return inside
        return placement

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Tell the other policy."""
        self._then.on_submit(ctx, job)

    def state_dict(self) -> dict[str, Any]:
        """The state of the other policy."""
        return self._then.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._then.load_state_dict(state)


class SteadyConfig(PolicyConfig):
    """Another policy, on nodes that are neither slow nor about to go down as long as these suffice.

    A job that these do not hold may also take slow nodes, then those that gave notice. A gang on
    nodes of several racks is placed within one, where the other policy finds a place there: the
    rack with the fewest free GPUs that suffice. Racks, notices and slow nodes are those of the
    losses of a cluster; nothing is known of how long a job will run.
    """

    kind: Literal["steady"] = "steady"
    policy = Steady
    then: Literal["best-fit", "consolidate", "first-fit", "fragmentation-aware", "spread"] = (
        "best-fit"
    )
    """The other policy."""


def _choices(cluster: ClusterView) -> Iterator[ClusterView]:
    """Steady nodes, those without a notice, and all: each only if it has more nodes than before."""
    stays = np.isinf(cluster.deadlines_s)
    steady = stays & (cluster.slowdowns == 1)
    if not steady.all():
        yield SomeNodes(cluster, steady)
        if not stays.all() and (stays != steady).any():
            yield SomeNodes(cluster, stays)
    yield cluster


def _tightest_racks(job: Job, cluster: ClusterView) -> list[int]:
    """Racks that may hold a job, those with the fewest free GPUs first, then by number."""
    known = cluster.racks >= 0
    free = np.bincount(cluster.racks[known], cluster.free[known]).tolist()
    least = job.gpus if job.gpu_milli == WHOLE else 0
    return sorted((rack for rack in range(len(free)) if free[rack] >= least), key=free.__getitem__)


class SomeNodes(ClusterView):
    """A view of a cluster in which nothing is free on the other nodes.

    Args:
        cluster: The cluster, which must not change while the view is used.
        usable: Whether a node takes jobs, shape (nodes,).
    """

    def __init__(self, cluster: ClusterView, usable: Bools) -> None:
        self.gpu_types = cluster.gpu_types
        self.node_type = cluster.node_type
        self.capacity = cluster.capacity
        self.racks = cluster.racks
        self.deadlines_s = cluster.deadlines_s
        self.slowdowns = cluster.slowdowns
        self._cluster = cluster
        self._usable = usable
        self._free: Ints = np.where(usable, cluster.free, 0)

    @property
    @override
    def free(self) -> Ints:
        return self._free

    @property
    @override
    def changes(self) -> Ints:
        return np.zeros_like(self._free)

    @override
    def shared(self, node: int) -> Mapping[int, int]:
        return self._cluster.shared(node) if self._usable[node] else {}

    @override
    def types_for(self, job: Job) -> tuple[int, ...]:
        return self._cluster.types_for(job)
