"""Worst fit: the emptiest nodes first."""

from typing import Literal

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.place._sharing import Parts, count_fitting, emptiest_first, fill, of_type
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement, Slot
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.registry import PolicyConfig


class Spread(Place):
    """See `SpreadConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Worst fit."""
        fitting = count_fitting(job, cluster)
        free = free_milli(cluster)
        held = np.where(fitting >= job.gpus, free, -1)
        node = int(np.argmax(held))
        parts = [(node, job.gpus)] if held[node] >= 0 else _over_nodes(job, cluster, fitting)
        return _slots(job, cluster, parts)


class SpreadConfig(PolicyConfig):
    """Worst fit: the emptiest node, which balances load and heat over the nodes.

    The node with the most free GPU thousandths among those that can hold the whole job, ties by
    number. If there is none: the emptiest nodes one after the other, of the GPU type with the most
    fitting GPUs. A fraction of a GPU takes an unshared GPU of its node, else the shared one with
    the most free thousandths.
    """

    kind: Literal["spread"] = "spread"
    policy = Spread
    plain = "the emptiest node"


def free_milli(cluster: ClusterView) -> Ints:
    """Free GPU thousandths by node, shared GPUs included, shape (nodes,)."""
    free = cluster.free * WHOLE
    for node in np.flatnonzero(cluster.free < cluster.capacity).tolist():
        shared = cluster.shared(node)
        if shared:
            free[node] += sum(shared.values())
    return free


def _over_nodes(job: Job, cluster: ClusterView, fitting: Ints) -> Parts:
    by_type = [of_type(fitting, cluster, gpu_type) for gpu_type in cluster.types_for(job)]
    if not by_type:
        return []
    most = max(by_type, key=lambda of_one_type: int(of_one_type.sum()))
    return fill(emptiest_first(most), most, job.gpus)


def _slots(job: Job, cluster: ClusterView, parts: Parts) -> Placement:
    if job.gpu_milli == WHOLE:
        return tuple((node, count, NEW) for node, count in parts)
    placed: list[Slot] = []
    for node, count in parts:
        opened = min(count, int(cluster.free[node]))
        placed += [(node, 1, NEW)] * opened
        loose = sorted((-left, gpu) for gpu, left in cluster.shared(node).items())
        fitting = [gpu for left, gpu in loose if -left >= job.gpu_milli]
        placed += [(node, 1, gpu) for gpu in fitting[: count - opened]]
    return tuple(placed)
