"""Free capacity of nodes in whole and fractional GPUs: helpers of `Place` policies."""

from collections.abc import Iterable

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement, Slot
from wattkeeper.policies.points.place import ClusterView

Parts = list[tuple[int, int]]
"""Nodes, and the number of GPUs that a job takes on each."""


def count_fitting(job: Job, cluster: ClusterView) -> Ints:
    """Number of GPUs of each node that can hold one GPU's part of a job, shape (nodes,).

    0 for nodes of types that the job may not run on.
    """
    fitting = _allowed(cluster.free, cluster, cluster.types_for(job))
    if job.gpu_milli < WHOLE:
        fitting = fitting + count_fitting_shared(job, cluster)
    return fitting


def count_fitting_shared(job: Job, cluster: ClusterView) -> Ints:
    """The share of `count_fitting` on GPUs that are already shared, shape (nodes,)."""
    milli = job.gpu_milli
    fitting = np.zeros_like(cluster.free)
    touched = _allowed(cluster.capacity - cluster.free, cluster, cluster.types_for(job))
    for node in np.flatnonzero(touched).tolist():
        shared = cluster.shared(node)
        if shared:
            fitting[node] = sum(left >= milli for left in shared.values())
    return fitting


def of_type(values: Ints, cluster: ClusterView, gpu_type: int) -> Ints:
    """Values by node, 0 for nodes of other types."""
    return _allowed(values, cluster, (gpu_type,))


def _allowed(values: Ints, cluster: ClusterView, types: tuple[int, ...]) -> Ints:
    known = len(cluster.gpu_types)
    if len(types) == known:
        return values
    factor = np.zeros(known, dtype=np.int64)
    factor[list(types)] = 1
    return values * factor[cluster.node_type]


def fill(nodes: Iterable[int], fitting: Ints, gpus: int) -> Parts:
    """Take all fitting GPUs of the nodes in this order until they suffice; empty if they do not."""
    parts = []
    for node in nodes:
        count = min(gpus, fitting.item(node))
        if count:
            parts.append((node, count))
            gpus -= count
            if not gpus:
                return parts
    return []


def emptiest_first(fitting: Ints) -> list[int]:
    """Nodes in descending order of fitting GPUs; ties by number."""
    order: list[int] = np.argsort(-fitting, kind="stable").tolist()
    return order


def fewest(fitting: Ints, gpus: int) -> Parts:
    """Allocate on as few nodes as possible: whole emptiest nodes, and best fit for the rest.

    Args:
        fitting: Fitting GPUs by node, all of one type.
        gpus: GPUs of the job.

    Returns:
        Parts on different nodes; empty if they do not suffice.
    """
    parts = fill(emptiest_first(fitting), fitting, gpus)
    if not parts:
        return []
    *whole, (_, rest) = parts
    left = fitting.copy()
    left[[node for node, _ in whole]] = 0
    enough = np.flatnonzero(left >= rest)
    return [*whole, (int(enough[np.argmin(left[enough])]), rest)]


def assign_slots(job: Job, cluster: ClusterView, parts: Parts) -> Placement:
    """The slots of a job on nodes with sufficient capacity.

    A fraction of a GPU goes to the fitting GPU of the node with the fewest free thousandths, ties
    by index, and to an unshared GPU only if there is none.
    """
    if job.gpu_milli == WHOLE:
        return tuple((node, count, NEW) for node, count in parts)
    placed: list[Slot] = []
    for node, count in parts:
        tight = sorted((left, gpu) for gpu, left in cluster.shared(node).items())
        fitting = [gpu for left, gpu in tight if left >= job.gpu_milli][:count]
        placed += [(node, 1, gpu) for gpu in fitting]
        placed += [(node, 1, NEW)] * (count - len(fitting))
    return tuple(placed)
