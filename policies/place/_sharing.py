"""Room on nodes, by whole GPUs and by parts of one: what `Place` policies share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from wattkeeper.policies.protocols import NEW, WHOLE, ClusterView, Job, Placement, Slot

if TYPE_CHECKING:
    from wattkeeper.policies.arrays import Ints


Parts = list[tuple[int, int]]
"""Nodes, and how many GPUs of a job are to be on each."""


def count_fitting(job: Job, cluster: ClusterView) -> Ints:
    """On how many GPUs of each node one GPU's part of a job would fit, shape (nodes,).

    Nodes of types that the job may not run on have none.
    """
    found = _allowed(cluster.free, cluster, cluster.types_for(job))
    if job.gpu_milli < WHOLE:
        found = found + count_fitting_shared(job, cluster)
    return found


def count_fitting_shared(job: Job, cluster: ClusterView) -> Ints:
    """The part of `room` that is on GPUs which somebody holds a part of already."""
    milli = job.gpu_milli
    found = np.zeros_like(cluster.free)
    touched = _allowed(cluster.capacity - cluster.free, cluster, cluster.types_for(job))
    for node in np.flatnonzero(touched).tolist():
        shared = cluster.shared(node)
        if shared:
            found[node] = sum(left >= milli for left in shared.values())
    return found


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


def fill(nodes: Iterable[int], found: Ints, gpus: int) -> Parts:
    """Take all room of the nodes in this order until there is enough; empty if there is not."""
    parts = []
    for node in nodes:
        count = min(gpus, int(found[node]))
        if count:
            parts.append((node, count))
            gpus -= count
            if not gpus:
                return parts
    return []


def emptiest_first(found: Ints) -> list[int]:
    """Nodes by descending room; ties by number."""
    order: list[int] = np.argsort(-found, kind="stable").tolist()
    return order


def fewest(found: Ints, gpus: int) -> Parts:
    """As few nodes as possible: emptiest ones in whole, and the tightest for the rest.

    Args:
        found: Room by node, all of one type.
        gpus: GPUs of the job.

    Returns:
        Parts on different nodes; empty if there is not enough room.
    """
    parts = fill(emptiest_first(found), found, gpus)
    if not parts:
        return []
    *whole, (_, rest) = parts
    left = found.copy()
    left[[node for node, _ in whole]] = 0
    enough = np.flatnonzero(left >= rest)
    return [*whole, (int(enough[np.argmin(left[enough])]), rest)]


def assign_slots(job: Job, cluster: ClusterView, parts: Parts) -> Placement:
    """The slots of a job on nodes that have room.

    A part of a GPU goes to the GPUs of the node with the fewest free thousandths that it fits in,
    ties by index, and to untouched ones only after all of those.
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
