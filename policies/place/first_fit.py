"""The first node with room."""

from __future__ import annotations

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


class FirstFitConfig(PolicyConfig):
    """The first node with room; else the room of as few of the first nodes as it takes.

    A job that asks for parts of GPUs takes the first node where it fits on GPUs that are shared
    already, else the first node where it fits with untouched ones. A job that no node can hold as
    a whole is spread over nodes of the first GPU type that has enough.
    """

    point: ClassVar[Point] = "place"
    kind: Literal["first-fit"] = "first-fit"

    def build(self) -> FirstFit:
        """A new policy."""
        return FirstFit()


class FirstFit(Place):
    """See `FirstFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """First fit."""
        gpus = job.gpus
        if job.gpu_milli < WHOLE:
            found = count_fitting_shared(job, cluster)
            node = int(np.argmax(found >= gpus))
            if found[node] >= gpus:
                return assign_slots(job, cluster, [(node, gpus)])
        found = count_fitting(job, cluster)
        node = int(np.argmax(found >= gpus))
        if found[node] >= gpus:
            return assign_slots(job, cluster, [(node, gpus)])
        for gpu_type in cluster.types_for(job):
            here = of_type(found, cluster, gpu_type)
            parts = fill(np.flatnonzero(here).tolist(), here, gpus)
            if parts:
                return assign_slots(job, cluster, parts)
        return ()
