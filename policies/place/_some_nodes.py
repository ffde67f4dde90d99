"""A cluster of which only some nodes take jobs."""

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.place import ClusterView


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
