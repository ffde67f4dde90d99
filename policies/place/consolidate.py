"""Strict consolidation: as few nodes as possible, or wait."""

from typing import Literal

import numpy as np

from wattkeeper.policies.place._sharing import (
    Parts,
    assign_slots,
    count_fitting,
    emptiest_first,
    fewest,
    fill,
    of_type,
)
from wattkeeper.policies.place._tightest import tightest_gpus, tightest_node
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.registry import PolicyConfig


class Consolidate(Place):
    """See `ConsolidateConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """The fewest nodes, or nothing."""
        if job.gpus == 1 and job.gpu_milli < WHOLE:
            return tightest_gpus(job, cluster)
        if job.gpu_milli == WHOLE:
            node = tightest_node(job, cluster)
            if node is not None:
                return ((node, job.gpus, NEW),)
        return assign_slots(job, cluster, _locate(job, cluster))


class ConsolidateConfig(PolicyConfig):
    """As few nodes as the job would take on the empty cluster; until they are free, it waits.

    A job that fits on one node waits for one, and takes the one with the fewest free GPUs. A larger
    job takes whole emptiest nodes and best fit for the rest, once that needs no more nodes than on
    the empty cluster; GPU types that need more nodes than others are not used.
    This is the strict locality of Philly (Jeon et al., ATC '19), whose scheduler relaxes it after
    some time while this policy does not, and of Tiresias for jobs that profit from it (Gu et al.,
    NSDI '19). A job that asks for a fraction of one GPU takes the fullest shared GPU that fits.
    """

    kind: Literal["consolidate"] = "consolidate"
    policy = Consolidate
    plain = "as few nodes as possible"


def _locate(job: Job, cluster: ClusterView) -> Parts:
    most = count_nodes(job, cluster)
    if not most or (most == 1 and job.gpu_milli == WHOLE):
        return []
    fitting = count_fitting(job, cluster)
    best: Parts = []
    for gpu_type in cluster.types_for(job):
        of_one_type = of_type(fitting, cluster, gpu_type)
        parts = fewest(of_one_type, job.gpus)
        if len(parts) != most:
            continue
        # The last part is on the tightest node it could be on.
        if not best or of_one_type[parts[-1][0]] < fitting[best[-1][0]]:
            best = parts
    return best


def count_nodes(job: Job, cluster: ClusterView) -> int:
    """Number of nodes of one type that the job takes on the empty cluster; 0 if it never fits."""
    counts = []
    for gpu_type in cluster.types_for(job):
        capacity = of_type(cluster.capacity, cluster, gpu_type)
        if int(np.max(capacity)) >= job.gpus:
            return 1
        parts = fill(emptiest_first(capacity), capacity, job.gpus)
        if parts:
            counts.append(len(parts))
    return min(counts, default=0)
