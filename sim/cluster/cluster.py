"""The free GPUs of a cluster, by node."""

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from mypy_extensions import i64
from typing_extensions import override

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

_ONE: Final[i64] = 1
"""Shifted as a machine integer; a plain 1 would be shifted as an object."""


class _Nodes:
    """A set of nodes with fast access to the smallest one.

    A bit per node in words of 32, and in `_words` a bit for each word that is not empty.

    Args:
        nodes: Number of all nodes.
        free: Free GPUs of each node in the set.
        gpu_type: The index of their type.

    Attributes:
        listed: Whether `free` is among the owner's levels.
    """

    listed = False

    def __init__(self, nodes: int, free: i64, gpu_type: i64) -> None:
        self.free = free
        self.gpu_type = gpu_type
        self._bits: list[i64] = [0] * ((nodes >> 5) + 1)
        self._words = 0

    def add(self, node: i64) -> None:
        """Add a node that is not in the set."""
        bits, word = self._bits, node >> 5
        present = bits[word]
        if not present:
            self._words |= 1 << int(word)
        bits[word] = present | (_ONE << (node & 31))

    def remove(self, node: i64) -> None:
        """Remove a node that is in the set."""
        bits, word = self._bits, node >> 5
        left = bits[word] ^ (_ONE << (node & 31))
        bits[word] = left
        if not left:
            self._words ^= 1 << int(word)

    def first(self) -> int | None:
        """The smallest node; None if the set is empty."""
        words = self._words
        if not words:
            return None
        word = (words & -words).bit_length() - 1
        bits = int(self._bits[word])
        return (word << 5) + (bits & -bits).bit_length() - 1


class Cluster(ClusterView):
    """The free GPUs of a cluster: the view of `Place`.

    Attributes:
        spec: The nodes of the cluster.
        free_gpus: Number of unallocated GPUs, shared ones not included.
        closed: Unused GPUs of closed nodes, by node; `free` and `free_gpus` lack them.
        free_by_type: `free_gpus` by index of the GPU type; empty where there is one queue.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.free_gpus = spec.gpus
        self.closed: dict[int, int] = {}
        self.free_by_type: list[int] = []
        self.gpu_types = spec.gpu_types
        self.node_type, self.capacity = _read_only(spec.node_type), _read_only(spec.capacity)
        self._racks = np.full(spec.nodes, -1, dtype=np.int64)
        self._deadlines_s = np.full(spec.nodes, np.inf)
        self._slowdowns = np.ones(spec.nodes)
        self.racks = _read_only(self._racks)
        self.deadlines_s, self.slowdowns = self._deadlines_s.view(), self._slowdowns.view()
        self.deadlines_s.flags.writeable = self.slowdowns.flags.writeable = False
        # Access to single elements of arrays is slow: they are updated when they are read.
        self._is_stale: list[bool] = [False] * spec.nodes
        self._stale: list[int] = []
        self._free, self._changes = spec.capacity.copy(), np.zeros(spec.nodes, dtype=np.int64)
        self._free_view, self._changes_view = _read_only(self._free), _read_only(self._changes)
        self._shared: dict[int, dict[int, int]] = {}
        self._all_types = spec.types_allowed(None)
        self._allowed: dict[str, tuple[int, ...]] = {}
        # Nodes by type and number of free GPUs, the numbers that occur (those of empty sets are
        # removed when they are met, the sets stay), and each node's set.
        self._by_free: list[dict[int, _Nodes]] = [{} for _ in self.gpu_types]
        self._levels: list[list[int]] = [[] for _ in self.gpu_types]
        self._set_of: list[_Nodes] = []
        kinds: list[int] = spec.node_type.tolist()
        counts: list[int] = spec.capacity.tolist()
        for node, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
            nodes = self._nodes_with(count, kind)
            nodes.add(node)
            self._set_of.append(nodes)
        if len(spec.queues) > 1:
            self.free_by_type = [spec.most_gpus(name) for name in self.gpu_types]

    @property
    @override
    def free(self) -> Ints:
        if self._stale:
            self._update_views()
        return self._free_view

    @property
    @override
    def changes(self) -> Ints:
        if self._stale:
            self._update_views()
        return self._changes_view

    def _update_views(self) -> None:
        stale = self._stale
        self._free[stale] = [self._set_of[node].free for node in stale]
        self._changes[stale] += 1
        for node in stale:
            self._is_stale[node] = False
        stale.clear()

    def _touch(self, node: i64) -> None:
        if not self._is_stale[node]:
            self._is_stale[node] = True
            self._stale.append(node)

    @override
    def shared(self, node: int) -> Mapping[int, int]:
        return {} if node in self.closed else self._shared.get(node, {})

    @override
    def types_for(self, job: Job) -> tuple[int, ...]:
        if job.gpu_type is None:
            return self._all_types
        if job.gpu_type not in self._allowed:
            self._allowed[job.gpu_type] = self.spec.types_allowed(job.gpu_type)
        return self._allowed[job.gpu_type]

    @override
    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        return self._search(gpus, gpu_type, tightest=True)

    @override
    def first_node(self, gpus: int, gpu_type: int) -> int | None:
        return self._search(gpus, gpu_type, tightest=False)

    def _search(self, gpus: int, gpu_type: int, *, tightest: bool) -> int | None:
        """The first node with enough free GPUs: of all, or of the lowest level that has any."""
        by_free, levels = self._by_free[gpu_type], self._levels[gpu_type]
        first: int | None = None
        index = 0
        while index < len(levels):
            free = levels[index]
            if free < gpus:
                index += 1
                continue
            nodes = by_free[free]
            node = nodes.first()
            if node is None:
                nodes.listed = False
                del levels[index]
                continue
            if tightest:
                return node
            if first is None or node < first:
                first = node
            index += 1
        return first

    def _nodes_with(self, free: int, gpu_type: int) -> _Nodes:
        nodes = self._by_free[gpu_type].get(free)
        if nodes is None:
            nodes = self._by_free[gpu_type][free] = _Nodes(self.spec.nodes, free, gpu_type)
        if not nodes.listed:
            nodes.listed = True
            insort(self._levels[gpu_type], free)
        return nodes

    def gpu_type(self, placement: Placement) -> str:
        """The GPU type that a placement is on."""
        return self.gpu_types[self._set_of[placement[0][0]].gpu_type]

    def take(self, job: Job, placement: Placement) -> Placement:
        """Allocate GPUs to a job.

        Returns:
            The placement, with the index of each shared GPU in place of `NEW`.

        Raises:
            PolicyError: If the placement is not what the job asked for, or not free.
        """
        if len(placement) == 1 and job.gpu_milli == WHOLE and job.gpu_type is None:
            ((node, gpus, gpu),) = placement
            if (
                gpus == job.gpus
                and gpu == NEW
                and 0 <= node < len(self._set_of)
                and gpus <= self._set_of[node].free
            ):
                self._count_free(node, -gpus)
                return placement
        self._check(job, placement)
        settled = self._settle(job, placement)
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
            self._touch(node)
        return settled

    def _settle(self, job: Job, placement: Placement) -> Placement:
        if job.gpu_milli == WHOLE:
            return placement
        opened: dict[int, set[int]] = {}
        slots = []
        for node, gpus, gpu in placement:
            shared = opened.setdefault(node, set(self._shared.get(node, ())))
            if gpu == NEW:
                gpu = next(index for index in range(len(shared) + 1) if index not in shared)
                shared.add(gpu)
            slots.append((node, gpus, gpu))
        return tuple(slots)

    def release(self, job: Job, placement: Placement) -> None:
        """Release a job's GPUs; shared ones by the index that `take` returned."""
        if job.gpu_milli == WHOLE:
            for node, gpus, _ in placement:
                self._count_free(node, gpus)
            return
        for node, _, gpu in placement:
            shared = self._shared[node]
            shared[gpu] += job.gpu_milli
            self._touch(node)
            if shared[gpu] == WHOLE:
                del shared[gpu]
                self._count_free(node, 1)

    def close(self, node: int) -> int:
        """Stop allocating a node's GPUs; returns how many were free."""
        gpus = int(self._set_of[node].free)
        self._count_free(node, -gpus)
        self.closed[node] = gpus
        return gpus

    def reopen(self, node: int) -> int:
        """Allocate a closed node's GPUs again; returns how many are free."""
        gpus = self.closed.pop(node)
        self._count_free(node, gpus)
        return gpus

    def set_racks(self, racks: Sequence[int]) -> None:
        """Set the rack of each node."""
        self._racks[:] = racks

    def announce(self, node: int, deadline_s: float) -> None:
        """Note when a node is expected to go down, s."""
        self._deadlines_s[node] = deadline_s

    def slow_down(self, node: int, factor: float) -> None:
        """Note how many times as long an iteration takes on a node as at full pace."""
        self._slowdowns[node] = factor

    def renew(self, node: int, rack: int) -> None:
        """Note that a node came up: at full pace, not announced to go down, in a rack."""
        self._racks[node] = rack
        self._deadlines_s[node], self._slowdowns[node] = np.inf, 1.0

    def slowdown(self, placement: Placement) -> float:
        """The largest of `slowdowns` of the nodes of a placement."""
        return float(max([self._slowdowns.item(slot[0]) for slot in placement]))

    def free_on(self, node: int) -> int:
        """Unallocated GPUs of a node, shared ones not included."""
        return int(self._set_of[node].free)

    def is_empty(self, node: int) -> bool:
        """Whether nothing of a node is allocated."""
        return bool(self._set_of[node].free == self.capacity[node])

    def _count_free(self, node: i64, change: i64) -> None:
        if self.closed and node in self.closed:
            self.closed[node] += change
            return
        self._touch(node)
        self.free_gpus += change
        nodes = self._set_of[node]
        if self.free_by_type:
            self.free_by_type[nodes.gpu_type] += change
        nodes.remove(node)
        nodes = self._nodes_with(nodes.free + change, nodes.gpu_type)
        nodes.add(node)
        self._set_of[node] = nodes

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
            for node, gpus, gpu in placement:
                if not 0 <= node < len(self._set_of) or not 0 < gpus <= self._set_of[node].free:
                    raise _not_free(job, node, gpus)
                if gpu != NEW:
                    raise PolicyError(
                        f"job {job.job_id} takes whole GPUs, which have no index but {NEW}, and is "
                        f"placed on {placement}",
                        "place",
                    )
        else:
            self._check_shares(job, placement)
        if (
            len(placement) > 1
            and len({self._set_of[node].gpu_type for node, _, _ in placement}) > 1
        ):
            raise PolicyError(
                f"job {job.job_id} is placed on GPUs of several types: {placement}", "place"
            )
        if job.gpu_type is not None and self._set_of[
            placement[0][0]
        ].gpu_type not in self.types_for(job):
            raise PolicyError(
                f"job {job.job_id} may run on {job.gpu_type}, placed on {placement}", "place"
            )

    def _check_shares(self, job: Job, placement: Placement) -> None:
        new: dict[int, int] = {}
        named = [(node, gpu) for node, _, gpu in placement if gpu != NEW]
        if len(set(named)) < len(named):
            raise PolicyError(f"job {job.job_id} is placed twice on one GPU: {placement}", "place")
        for node, gpus, gpu in placement:
            if gpus != 1 or not 0 <= node < len(self._set_of):
                raise _not_free(job, node, gpus)
            if gpu == NEW:
                new[node] = new.get(node, 0) + 1
                if new[node] > self._set_of[node].free:
                    raise _not_free(job, node, new[node])
            elif self._shared.get(node, {}).get(gpu, 0) < job.gpu_milli:
                raise _not_free(job, node, gpus)


def _not_free(job: Job, node: int, gpus: int) -> PolicyError:
    return PolicyError(f"job {job.job_id}: {gpus} GPUs on node {node} are not free", "place")


def _read_only(values: Ints) -> Ints:
    view = values.view()
    view.flags.writeable = False
    return view
