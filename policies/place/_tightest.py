"""Best fit on nodes and on shared GPUs: `best-fit`, and helpers of other policies."""

from heapq import nsmallest

import numpy as np

from wattkeeper.policies.place._sharing import Parts, fewest, of_type
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context


class BestFit(Place):
    """See `wattkeeper.policies.place.best_fit.BestFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Best fit."""
        if job.gpu_milli < WHOLE:
            return tightest_gpus(job, cluster)
        node = tightest_node(job, cluster)
        if node is not None:
            return ((node, job.gpus, NEW),)
        if job.gpus == 1:
            return ()
        return tuple((node, gpus, NEW) for node, gpus in gang(job, cluster))


def tightest_node(job: Job, cluster: ClusterView) -> int | None:
    """The node with the fewest free GPUs that holds a job of whole GPUs; None if there is none."""
    types = cluster.types_for(job)
    if len(types) == 1:
        return cluster.tightest_node(job.gpus, types[0])
    best, fewest_free = None, 0
    for gpu_type in types:
        node = cluster.tightest_node(job.gpus, gpu_type)
        if node is not None and (best is None or cluster.free[node] < fewest_free):
            best, fewest_free = node, int(cluster.free[node])
    return best


def gang(job: Job, cluster: ClusterView) -> Parts:
    """Place a job of whole GPUs on as few nodes of one type as possible; empty: it does not fit."""
    best: Parts = []
    for gpu_type in cluster.types_for(job):
        parts = fewest(of_type(cluster.free, cluster, gpu_type), job.gpus)
        if parts and (not best or len(parts) < len(best)):
            best = parts
    return best


def tightest_gpus(job: Job, cluster: ClusterView) -> Placement:
    """The GPUs of one type with the fewest free thousandths that can hold the job's fraction.

    Of several types, the one whose chosen GPUs have the fewest free thousandths, compared in order.
    """
    best: tuple[list[int], Placement] | None = None
    for gpu_type in cluster.types_for(job):
        picked = _shared_gpus(job, cluster, gpu_type)
        missing = job.gpus - len(picked)
        placement = tuple((node, 1, gpu) for _, node, gpu in picked)
        if missing:
            opened = _untouched(missing, cluster, gpu_type)
            if len(opened) < missing:
                continue
            placement += tuple((node, 1, NEW) for node in opened)
        lefts = [left for left, _, _ in picked] + [WHOLE] * missing
        if best is None or lefts < best[0]:
            best = lefts, placement
    return best[1] if best else ()


def _shared_gpus(job: Job, cluster: ClusterView, gpu_type: int) -> list[tuple[int, int, int]]:
    """Free thousandths, node and index of the fullest shared GPUs that fit, at most `gpus`."""
    milli = job.gpu_milli
    touched = of_type(cluster.capacity - cluster.free, cluster, gpu_type)
    fitting = (
        (left, node, gpu)
        for node in np.flatnonzero(touched).tolist()
        for gpu, left in cluster.shared(node).items()
        if left >= milli
    )
    if job.gpus > 1:
        return nsmallest(job.gpus, fitting)
    fullest = min(fitting, default=None)
    return [] if fullest is None else [fullest]


def _untouched(gpus: int, cluster: ClusterView, gpu_type: int) -> list[int]:
    """Nodes of unshared free GPUs, one entry a GPU; fewer than `gpus` if there are not enough."""
    node = cluster.tightest_node(gpus, gpu_type)
    if node is not None:
        return [node] * gpus
    parts = fewest(of_type(cluster.free, cluster, gpu_type), gpus)
    return [node for node, count in parts for _ in range(count)]
