"""First fit."""

from typing import ClassVar, Literal

import numpy as np

from wattkeeper.policies.place._sharing import (
    assign_slots,
    count_fitting,
    count_fitting_shared,
    fill,
    of_type,
)
from wattkeeper.policies.protocols import WHOLE, ClusterView, Context, Job, Place, Placement
from wattkeeper.policies.registry import Point, PolicyConfig


class FirstFit(Place):
    """See `FirstFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """First fit."""
        gpus = job.gpus
        if job.gpu_milli < WHOLE:
            fitting = count_fitting_shared(job, cluster)
            node = int(np.argmax(fitting >= gpus))
            if fitting[node] >= gpus:
                return assign_slots(job, cluster, [(node, gpus)])
        fitting = count_fitting(job, cluster)
        node = int(np.argmax(fitting >= gpus))
        if fitting[node] >= gpus:
            return assign_slots(job, cluster, [(node, gpus)])
        for gpu_type in cluster.types_for(job):
            of_one_type = of_type(fitting, cluster, gpu_type)
            parts = fill(np.flatnonzero(of_one_type).tolist(), of_one_type, gpus)
            if parts:
                return assign_slots(job, cluster, parts)
        return ()


class FirstFitConfig(PolicyConfig):
    """First fit: the first node that holds the job, else the first nodes that together hold it.

    A job that asks for fractions of GPUs takes the first node where it fits on GPUs that are
    already shared, else the first node where it fits on unshared ones. A job that no single node
    can hold is distributed over nodes of the first GPU type with enough GPUs.
    """

    point: ClassVar[Point] = "place"
    kind: Literal["first-fit"] = "first-fit"
    policy = FirstFit
