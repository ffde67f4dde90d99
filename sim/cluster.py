"""Nodes and their GPUs."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import NEW, WHOLE, Job, Placement

Ints = npt.NDArray[np.int64]


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
    """What a GPU draws where nobody measured it: a model, W.

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

    def idle_w(self, job: Job, gpu_type: str) -> float:
        """What the GPUs of a job would draw if nobody held them, W."""
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


class Cluster:
    """Which GPUs are free; the view that `Place` is shown.

    Attributes:
        spec: What the cluster consists of.
        free_gpus: Number of GPUs that nobody holds a part of.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.free_gpus = spec.gpus
        self.gpu_types = spec.gpu_types
        self.node_type, self.capacity = _frozen(spec.node_type), _frozen(spec.capacity)
        self._types: list[int] = spec.node_type.tolist()
        self._count = array("q", spec.capacity.tolist())
        self.free = _frozen(np.frombuffer(self._count, dtype=np.int64))
        self._changes = array("q", bytes(8 * spec.nodes))
        self.changes = _frozen(np.frombuffer(self._changes, dtype=np.int64))
        self._shared: dict[int, dict[int, int]] = {}
        self._allowed: dict[str | None, tuple[int, ...]] = {}
        self._most_entries = 4 * spec.nodes + 64
        # Nodes by type and number of free GPUs: heaps, and which there are; cleaned when looked at.
        self._by_free: list[dict[int, list[int]]] = [{} for _ in self.gpu_types]
        for node, (kind, count) in enumerate(zip(self._types, self._count, strict=True)):
            self._by_free[kind].setdefault(count, []).append(node)
        self._levels = [sorted(heaps) for heaps in self._by_free]

    def shared(self, node: int) -> Mapping[int, int]:
        """See `wattkeeper.policies.protocols.ClusterView`."""
        return self._shared.get(node, {})

    def types_for(self, job: Job) -> tuple[int, ...]:
        """See `wattkeeper.policies.protocols.ClusterView`."""
        if job.gpu_type not in self._allowed:
            self._allowed[job.gpu_type] = self.spec.types_allowed(job.gpu_type)
        return self._allowed[job.gpu_type]

    def tightest(self, gpus: int, gpu_type: int) -> int | None:
        """See `wattkeeper.policies.protocols.ClusterView`."""
        heaps, levels, count = self._by_free[gpu_type], self._levels[gpu_type], self._count
        at = bisect_left(levels, gpus)
        while at < len(levels):
            free = levels[at]
            heap = heaps[free]
            while heap:
                node = heap[0]
                if count[node] == free:
                    return node
                heappop(heap)
            del heaps[free], levels[at]
        return None

    def gpu_type(self, placement: Placement) -> str:
        """The GPU type that a placement is on."""
        return self.gpu_types[self._types[placement[0][0]]]

    def take(self, job: Job, placement: Placement) -> Placement:
        """Give GPUs to a job.

        Returns:
            The placement, with the index of each shared GPU in place of `NEW`.

        Raises:
            PolicyError: If the placement is not what the job asked for, or not free.
        """
        if len(placement) == 1 and job.gpu_milli == WHOLE and job.gpu_type is None:
            ((node, gpus, _),) = placement
            if gpus == job.gpus and 0 <= node < len(self._types) and gpus <= self._count[node]:
                self._count_free(node, -gpus)
                return placement
        self._check(job, placement)
        settled = self._settled(job, placement)
        if job.gpu_milli == WHOLE:
            for node, gpus, _ in settled:
                self._count_free(node, -gpus)
            return settled
        for node, _, gpu in settled:
            shared = self._shared.setdefault(node, {})
            if gpu not in shared:
                shared[gpu] = WHOLE
                self._count_free(node, -1)
            shared[gpu] -= job.gpu_milli
            self._changes[node] += 1
        return settled

    def _settled(self, job: Job, placement: Placement) -> Placement:
        if job.gpu_milli == WHOLE:
            return placement
        opened: dict[int, set[int]] = {}
        slots = []
        for node, gpus, gpu in placement:
            taken = opened.setdefault(node, set(self._shared.get(node, ())))
            if gpu == NEW:
                gpu = next(at for at in range(len(taken) + 1) if at not in taken)
                taken.add(gpu)
            slots.append((node, gpus, gpu))
        return tuple(slots)

    def release(self, job: Job, placement: Placement) -> None:
        """Take a job's GPUs back; shared ones by the index that `take` gave."""
        if job.gpu_milli == WHOLE:
            for node, gpus, _ in placement:
                self._count_free(node, gpus)
            return
        for node, _, gpu in placement:
            shared = self._shared[node]
            shared[gpu] += job.gpu_milli
            self._changes[node] += 1
            if shared[gpu] == WHOLE:
                del shared[gpu]
                self._count_free(node, 1)

    def is_empty(self, node: int) -> bool:
        """Whether no job holds anything of a node."""
        return bool(self._count[node] == self.capacity[node])

    def _count_free(self, node: int, change: int) -> None:
        count = self._count[node] + change
        self._count[node] = count
        self._changes[node] += 1
        self.free_gpus += change
        kind = self._types[node]
        heap = self._by_free[kind].get(count)
        if heap is None:
            self._by_free[kind][count] = [node]
            insort(self._levels[kind], count)
            return
        heappush(heap, node)
        if len(heap) > self._most_entries:
            heap[:] = {at for at in heap if self._count[at] == count}
            heapify(heap)

    def _check(self, job: Job, placement: Placement) -> None:
        gpus = sum(slot[1] for slot in placement)
        if gpus != job.gpus:
            raise PolicyError(
                f"job {job.job_id} asks for {job.gpus} GPUs, placed on {placement}", "place"
            )
        if job.gpu_milli == WHOLE:
            if len(placement) > 1 and len({node for node, _, _ in placement}) < len(placement):
                raise PolicyError(
                    f"job {job.job_id} is placed twice on one node: {placement}", "place"
                )
            for node, gpus, _ in placement:
                if not 0 <= node < len(self._count) or not 0 < gpus <= self._count[node]:
                    raise _not_free(job, node, gpus)
        else:
            self._check_shares(job, placement)
        if len(placement) > 1 and len({self._types[node] for node, _, _ in placement}) > 1:
            raise PolicyError(
                f"job {job.job_id} is placed on GPUs of several types: {placement}", "place"
            )
        if job.gpu_type is not None and self._types[placement[0][0]] not in self.types_for(job):
            raise PolicyError(
                f"job {job.job_id} may run on {job.gpu_type}, placed on {placement}", "place"
            )

    def _check_shares(self, job: Job, placement: Placement) -> None:
        new: dict[int, int] = {}
        named = [(node, gpu) for node, _, gpu in placement if gpu != NEW]
        if len(set(named)) < len(named):
            raise PolicyError(f"job {job.job_id} is placed twice on one GPU: {placement}", "place")
        for node, gpus, gpu in placement:
            if gpus != 1 or not 0 <= node < len(self._count):
                raise _not_free(job, node, gpus)
            if gpu == NEW:
                new[node] = new.get(node, 0) + 1
                if new[node] > self._count[node]:
                    raise _not_free(job, node, new[node])
            elif self._shared.get(node, {}).get(gpu, 0) < job.gpu_milli:
                raise _not_free(job, node, gpus)


def _not_free(job: Job, node: int, gpus: int) -> PolicyError:
    return PolicyError(f"job {job.job_id}: {gpus} GPUs on node {node} are not free", "place")


def _frozen(values: Ints) -> Ints:
    shown = values.view()
    shown.flags.writeable = False
    return shown
