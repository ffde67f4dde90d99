"""The first node with room."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from wattkeeper.policies.protocols import ClusterView, Context, Job
from wattkeeper.policies.registry import Point, Policy, PolicyConfig


class FirstFitConfig(PolicyConfig):
    """The first node with enough free GPUs; else free GPUs of the first nodes that have some.

    A job that no node can hold as a whole is spread over as few of the first nodes as it takes.
    """

    point: ClassVar[Point] = "place"
    kind: Literal["first-fit"] = "first-fit"

    def build(self) -> FirstFit:
        """A new policy."""
        return FirstFit()


class FirstFit(Policy):
    """See `FirstFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> tuple[tuple[int, int], ...]:
        """First fit."""
        node = int(np.argmax(cluster.free >= job.gpus))
        if cluster.free[node] >= job.gpus:
            return ((node, job.gpus),)
        if cluster.free.sum() < job.gpus:
            return ()
        taken, missing = [], job.gpus
        for candidate in np.flatnonzero(cluster.free).tolist():
            gpus = min(missing, int(cluster.free[candidate]))
            taken.append((candidate, gpus))
            missing -= gpus
            if not missing:
                break
        return tuple(taken)
