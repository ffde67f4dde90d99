"""A cluster as it would be without some of its jobs."""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.place._sharing import find_tightest
from wattkeeper.policies.protocols import WHOLE, ClusterView, Job, Placement
from wattkeeper.sim.cluster.cluster import Cluster


class ClusterWithout(ClusterView):
    """A cluster without some of its jobs; see `wattkeeper.policies.protocols.ClusterView`.

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
        count = array("q", cluster.free.tobytes())
        for job, placement in gone:
            if job.gpu_milli == WHOLE:
                for node, gpus, _ in placement:
                    if node not in cluster.closed:
                        count[node] += gpus
                continue
            for node, _, gpu in placement:
                if node in cluster.closed:
                    continue
                shared = self._shared.setdefault(node, dict(self.shared(node)))
                shared[gpu] += job.gpu_milli
                if shared[gpu] == WHOLE:
                    del shared[gpu]
                    count[node] += 1
        self._free: Ints = np.frombuffer(count, dtype=np.int64)

    @property
    def free(self) -> Ints:
        """See `ClusterView`."""
        return self._free

    @property
    def changes(self) -> Ints:
        """See `ClusterView`."""
        return np.zeros_like(self._free)

    def types_for(self, job: Job) -> tuple[int, ...]:
        """See `ClusterView`."""
        return self._cluster.types_for(job)

    def shared(self, node: int) -> Mapping[int, int]:
        """See `ClusterView`."""
        shared = self._shared.get(node)
        return self._cluster.shared(node) if shared is None else shared

    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        """See `ClusterView`."""
        return find_tightest(self, gpus, gpu_type)
