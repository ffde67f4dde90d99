"""Specification of a cluster: its nodes, their power, and overheads of preemption and sleep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.planning.sharing import Sharing
from wattkeeper.policies.points.job import Job
from wattkeeper.sim.cluster.losses import ClusterLosses


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
        idle_w: While it is not allocated.
        busy_w: While it is allocated to a job without a profile; None if unknown.
        sleep_w: While its node sleeps.
    """

    idle_w: float
    busy_w: float | None = None
    sleep_w: float = 0.0


@dataclass(frozen=True)
class CapSignal:
    """A power cap that follows a signal.

    Attributes:
        name: The signal, W.
        obey: Whether jobs are preempted when it falls, or limited as far as that suffices.
        share: How the cap is shared out among running jobs.
    """

    name: str
    obey: Literal["preempt", "limits"] = "preempt"
    share: Sharing = "marginal"


@dataclass(frozen=True)
class NodeRent:
    """What nodes cost by the hour: each a number, or the name of a signal.

    Attributes:
        node_hour: Price of an hour of a node that is up.
        on_demand: Price of an hour of one that is never lost; None: not known.
        currency: Of both.
    """

    node_hour: float | str
    on_demand: float | str | None
    currency: str

    @property
    def signals(self) -> dict[str, str]:
        """The price that follows each signal, by name of the signal."""
        prices = {"on_demand": self.on_demand, "node_hour": self.node_hour}
        return {name: key for key, name in prices.items() if isinstance(name, str)}


@dataclass(frozen=True)
class ClusterSpec:
    """The nodes of a cluster, their power, and overheads of preemption and sleep.

    Attributes:
        groups: Groups of nodes; nodes are numbered in this order, from 0.
        power: By GPU type.
        pue: Power usage effectiveness: power of the whole facility over that of its GPUs.
        power_cap_w: Largest power of all GPUs; jobs above it do not start; None: no cap.
            Infinite if it follows a signal.
        cap: The signal that the cap follows; None: it does not change.
        sleep_after_s: Time after which a node whose GPUs are all free sleeps; None: never.
        wake_s: Time that a node takes to wake.
        checkpoint_s: Time that a node takes to save the state of a preempted job.
        restore_s: Time that a preempted job takes to resume.
        losses: Nodes that are lost; None: none are.
        rent: What nodes of elastic jobs cost; None: not known.
        partitions: GPU types of the nodes of each partition, by name; empty: there are none.
    """

    groups: tuple[NodeGroup, ...]
    power: Mapping[str, GpuPower]
    pue: float = 1.0
    power_cap_w: float | None = None
    cap: CapSignal | None = None
    sleep_after_s: float | None = None
    wake_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    losses: ClusterLosses | None = None
    rent: NodeRent | None = None
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
    def queues(self) -> tuple[tuple[str, ...], ...]:
        """GPU types by queue, each type in one: partitions that share a type share a queue.

        One queue of all types where there are no partitions.
        """
        if not self.partitions:
            return (self.gpu_types,)
        return join_types(self.gpu_types, self.partitions.values())

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
        """Power of all GPUs together while none is allocated and no node sleeps, W."""
        by_type = (
            self.power[group.gpu_type].idle_w * group.nodes * group.gpus_per_node
            for group in self.groups
        )
        return sum(by_type)

    @cached_property
    def busy_w(self) -> Mapping[str, float | None]:
        """Power of a GPU that is allocated to a job without a profile, by type, W."""
        return {name: power.busy_w for name, power in self.power.items()}

    def idle_w(self, job: Job, gpu_type: str) -> float:
        """Idle power of the GPUs of a job, W."""
        return self.power[gpu_type].idle_w * job.gpus_held

    def types_allowed(self, gpu_type: str | None) -> tuple[int, ...]:
        """Indices of the named types, separated by `|`; all for None."""
        if gpu_type is None:
            return tuple(range(len(self.gpu_types)))
        named = gpu_type.split("|")
        return tuple(index for index, known in enumerate(self.gpu_types) if known in named)

    def most_gpus(self, gpu_type: str | None) -> int:
        """GPUs of the type that has most of them: the largest gang that the empty cluster holds."""
        allowed = self.types_allowed(gpu_type)
        gpus = (int(self.capacity[self.node_type == index].sum()) for index in allowed)
        return max(gpus, default=0)


def join_types(
    gpu_types: Sequence[str], together: Iterable[Collection[str]]
) -> tuple[tuple[str, ...], ...]:
    """The sets of GPU types that are connected, each in order; those of each of `together` are."""
    joined: list[set[str]] = []
    for types in (*together, *((name,) for name in gpu_types)):
        whole = set(types)
        for other in [other for other in joined if other & whole]:
            joined.remove(other)
            whole |= other
        joined.append(whole)
    ordered = (tuple(name for name in gpu_types if name in whole) for whole in joined if whole)
    return tuple(sorted(ordered, key=lambda names: gpu_types.index(names[0])))
