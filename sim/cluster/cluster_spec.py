"""What a cluster consists of, and what it costs to use it otherwise than by training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.protocols import Job


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes.

    Attributes:
        gpu_type: Name of their GPU type.
        nodes: Number of nodes.
        gpus_per_node: GPUs on each.
    """

    gpu_type: str
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Modelled power of a GPU where none was measured, W.

    Attributes:
        idle_w: While no job holds it.
        busy_w: While a job without a profile holds it; None if the scenario does not say.
        sleep_w: While its node sleeps.
    """

    idle_w: float
    busy_w: float | None = None
    sleep_w: float = 0.0


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster, and what it costs to use it otherwise than by training.

    Attributes:
        groups: Its nodes; they are numbered in this order, from 0.
        power: By GPU type.
        pue: Power usage effectiveness: power of the whole facility over that of its GPUs.
        power_cap_w: A job starts only if the GPUs draw no more than this with it; None: no cap.
        sleep_after_s: A node whose GPUs are all free sleeps after so long; None: never.
        wake_s: How long it takes to wake.
        checkpoint_s: A preempted job's node is busy saving its state for so long.
        restore_s: How long a preempted job takes to go on.
    """

    groups: tuple[NodeGroup, ...]
    power: Mapping[str, GpuPower]
    pue: float = 1.0
    power_cap_w: float | None = None
    sleep_after_s: float | None = None
    wake_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0

    @classmethod
    def uniform(
        cls, gpu_type: str, nodes: int, gpus_per_node: int, idle_w: float, busy_w: float | None
    ) -> ClusterSpec:
        """A cluster of equal nodes."""
        group = NodeGroup(gpu_type, nodes, gpus_per_node)
        return cls((group,), {gpu_type: GpuPower(idle_w, busy_w)})

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """Names of the GPU types, in order of appearance."""
        return tuple(dict.fromkeys(group.gpu_type for group in self.groups))

    @cached_property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(group.nodes for group in self.groups)

    @cached_property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.capacity.sum())

    @cached_property
    def capacity(self) -> Ints:
        """GPUs by node, shape (nodes,)."""
        return np.repeat(
            np.array([group.gpus_per_node for group in self.groups], dtype=np.int64),
            [group.nodes for group in self.groups],
        )

    @cached_property
    def node_type(self) -> Ints:
        """Index into `gpu_types` by node, shape (nodes,)."""
        kinds = [self.gpu_types.index(group.gpu_type) for group in self.groups]
        return np.repeat(np.array(kinds, dtype=np.int64), [group.nodes for group in self.groups])

    @cached_property
    def idle_power_w(self) -> float:
        """What all GPUs draw together while none is held, awake, W."""
        by_type = (self.power[group.gpu_type].idle_w * group.nodes * group.gpus_per_node
                   for group in self.groups)  # fmt: skip
        return sum(by_type)

    @cached_property
    def busy_w(self) -> Mapping[str, float | None]:
        """What a GPU draws while a job without a profile holds it, by type, W."""
        return {name: power.busy_w for name, power in self.power.items()}

    def idle_w(self, job: Job, gpu_type: str) -> float:
        """What the GPUs of a job draw while no job holds them, W."""
        return self.power[gpu_type].idle_w * job.gpus_held

    def types_allowed(self, gpu_type: str | None) -> tuple[int, ...]:
        """Indices of the types that are named, with `|` between; all if none is."""
        if gpu_type is None:
            return tuple(range(len(self.gpu_types)))
        named = gpu_type.split("|")
        return tuple(at for at, known in enumerate(self.gpu_types) if known in named)

    def most_gpus(self, gpu_type: str | None) -> int:
        """The largest gang of one type that the empty cluster holds."""
        allowed = self.types_allowed(gpu_type)
        return max((int(self.capacity[self.node_type == at].sum()) for at in allowed), default=0)
