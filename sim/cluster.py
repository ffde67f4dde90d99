"""Nodes and their GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import ClusterView, Job

Placement = tuple[tuple[int, int], ...]
"""Nodes and the number of GPUs on each."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster of equal nodes.

    Attributes:
        gpu_type: Name of the GPU type.
        nodes: Number of nodes.
        gpus_per_node: GPUs on each.
        idle_power_w: What a GPU draws while no job holds it, W.
    """

    gpu_type: str
    nodes: int
    gpus_per_node: int
    idle_power_w: float

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node


class Cluster:
    """Which GPUs are free.

    Attributes:
        spec: What the cluster consists of.
        free_gpus: Number of free GPUs.
        view: What `Place` is shown.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.free_gpus = spec.gpus
        self._free = np.full(spec.nodes, spec.gpus_per_node, dtype=np.int64)
        shown = self._free.view()
        shown.flags.writeable = False
        self.view = ClusterView(shown)

    def take(self, job: Job, placement: Placement) -> None:
        """Give GPUs to a job.

        Raises:
            PolicyError: If the placement is not what the job asked for, or not free.
        """
        if len({node for node, _ in placement}) < len(placement):
            raise PolicyError(f"job {job.job_id} is placed twice on one node: {placement}", "place")
        for node, gpus in placement:
            if not 0 <= node < self.spec.nodes or not 0 < gpus <= self._free[node]:
                raise PolicyError(
                    f"job {job.job_id}: {gpus} GPUs on node {node} are not free", "place"
                )
            self._free[node] -= gpus
        if sum(gpus for _, gpus in placement) != job.gpus:
            raise PolicyError(
                f"job {job.job_id} asks for {job.gpus} GPUs, placed on {placement}", "place"
            )
        self.free_gpus -= job.gpus

    def release(self, job: Job, placement: Placement) -> None:
        """Take a job's GPUs back."""
        for node, gpus in placement:
            self._free[node] += gpus
        self.free_gpus += job.gpus
