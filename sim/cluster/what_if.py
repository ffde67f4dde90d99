"""A cluster as it would be without some of its jobs."""

from collections.abc import Iterable, Mapping

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.sim.cluster.cluster import Cluster


class ClusterWithout(ClusterView):
    """A cluster without some of its jobs; see `wattkeeper.policies.points.place.ClusterView`.

    Args:
        cluster: The cluster, which must not change while the view is used.
        gone: The jobs, and where they run.
    """

    def __init__(self, cluster: Cluster, gone: Iterable[tuple[Job, Placement]]) -> None:
        self.gpu_types = cluster.gpu_types
        self.node_type = cluster.node_type
        self.capacity = cluster.capacity
        self.racks = cluster.racks
        self.deadlines_s = cluster.deadlines_s
        self.slowdowns = cluster.slowdowns
        self._cluster = cluster
        self._shared: dict[int, dict[int, int]] = {}
        self._more: dict[int, int] = {}
        self._free: Ints | None = None
        for job, placement in gone:
            for node, gpus, gpu in placement:
                if node in cluster.closed:
                    continue
                if job.gpu_milli == WHOLE:
                    self._more[node] = self._more.get(node, 0) + gpus
                    continue
                shared = self._shared.setdefault(node, dict(self.shared(node)))
                shared[gpu] += job.gpu_milli
                if shared[gpu] == WHOLE:
                    del shared[gpu]
                    self._more[node] = self._more.get(node, 0) + 1

    @property
    @override
    def free(self) -> Ints:
        free = self._free
        if free is None:
            free = self._free = self._cluster.free.copy()
            for node, more in self._more.items():
                free[node] += more
        return free

    @property
    @override
    def changes(self) -> Ints:
        return np.zeros_like(self.free)

    @override
    def types_for(self, job: Job) -> tuple[int, ...]:
        return self._cluster.types_for(job)

    @override
    def shared(self, node: int) -> Mapping[int, int]:
        shared = self._shared.get(node)
        return self._cluster.shared(node) if shared is None else shared

    @override
    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        best = self._cluster.tightest_node(gpus, gpu_type)
        if best in self._more:
            return super().tightest_node(gpus, gpu_type)
        least = 0 if best is None else self._cluster.free_on(best)
        for node, more in self._more.items():
            free = self._cluster.free_on(node) + more
            if (
                free >= gpus
                and (best is None or (free, node) < (least, best))
                and self.node_type.item(node) == gpu_type
            ):
                best, least = node, free
        return best
