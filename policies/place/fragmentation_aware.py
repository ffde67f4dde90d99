"""Fragmentation gradient descent."""

from bisect import insort
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.place._sharing import assign_slots
from wattkeeper.policies.place._tightest import gang, tightest_gpus
from wattkeeper.policies.points.job import NEW, WHOLE, Demand, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.registry import PolicyConfig

State = tuple[int, int, tuple[int, ...]]
"""State of a node: GPU type, unshared free GPUs, ascending free thousandths of shared GPUs."""

Ways = list[tuple[int, int]]
"""Ways to place a job on a node: fragmentation growth, and free thousandths of the GPU that the job
shares (of the fullest one if several); ascending."""

GROWTH = 0.05
"""Relative growth of the number of submitted jobs after which popularities are recounted."""


class FragmentationAware(Place):
    """See `FragmentationAwareConfig`."""

    def __init__(self) -> None:
        self._counts: dict[Demand, int] = {}
        self._jobs = 0
        self._workload = Workload({})
        self._census: Census | None = None

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Count the job's demand."""
        self._counts[job.demand] = self._counts.get(job.demand, 0) + 1
        self._jobs += 1
        if self._jobs >= self._workload.jobs * (1 + GROWTH):
            self._workload.count(dict(self._counts))

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """The steepest descent."""
        if self._census is None or self._census.cluster is not cluster:
            self._census = Census(cluster)
        self._workload.settle(cluster)
        best = min(self._workload.candidates(job, self._census), default=None)
        if best is not None:
            least, node, ways = best
            if job.gpus > 1 or job.gpu_milli == WHOLE:
                return assign_slots(job, cluster, [(node, job.gpus)])
            lefts = [left for growth, left in ways if growth == least]
            shared = cluster.shared(node)
            return ((node, 1, min((gpu for gpu in shared if shared[gpu] in lefts), default=NEW)),)
        if job.gpus == 1:
            return ()
        if job.gpu_milli < WHOLE:
            return tightest_gpus(job, cluster)
        return assign_slots(job, cluster, gang(job, cluster))

    def state_dict(self) -> dict[str, Any]:
        """Demands: GPUs, thousandths, types, submissions, and submissions at the last recount."""
        known = self._workload.counts
        rows = [[*demand, count, known.get(demand, 0)] for demand, count in self._counts.items()]
        return {"demands": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        rows = [((gpus, milli, of), *both) for gpus, milli, of, *both in state["demands"]]
        self._counts = {demand: count for demand, count, _ in rows}
        self._jobs = sum(self._counts.values())
        self._workload.count({demand: known for demand, _, known in rows if known})


class FragmentationAwareConfig(PolicyConfig):
    """The node and GPU where the expected fragmentation grows least.

    Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC '23). The
    fragmentation of a node is the sum, over all demands, of a demand's popularity times the free
    GPU thousandths of the node that it cannot use: all of them if the node cannot serve the
    demand, because it is too large, of another GPU type, or too few GPUs have enough thousandths;
    else those on GPUs with fewer free thousandths than the demand asks of each. CPU, which the
    authors' simulator counts too, is not modelled.

    A demand's popularity is its share of the jobs submitted so far, waiting and completed ones
    included; it is recounted whenever the number of jobs has grown by 5 percent. (The paper
    knows the workload beforehand.) Ties go to the first node, then the first shared GPU, then an
    unshared one. Beyond the paper: a job that asks for fractions of several GPUs takes the
    fullest ones of the node, and a job that no single node can hold is placed as by `best-fit`.
    """

    kind: Literal["fragmentation-aware"] = "fragmentation-aware"
    policy = FragmentationAware
    plain = "where least is fragmented"


class Census:
    """The nodes of a cluster grouped by state; updates only nodes that changed."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster
        self._seen = cluster.changes - 1
        self._states: dict[int, State] = {}
        self._nodes: dict[State, list[int]] = {}

    def nodes(self) -> dict[State, list[int]]:
        """The nodes of each occurring state, ascending."""
        cluster = self.cluster
        changed = np.flatnonzero(cluster.changes != self._seen)
        self._seen[changed] = cluster.changes[changed]
        for node in changed.tolist():
            before = self._states.get(node)
            if before is not None:
                self._nodes[before].remove(node)
                if not self._nodes[before]:
                    del self._nodes[before]
            shared = tuple(sorted(cluster.shared(node).values()))
            state = int(cluster.node_type[node]), int(cluster.free[node]), shared
            self._states[node] = state
            insort(self._nodes.setdefault(state, []), node)
        return self._nodes


class Workload:
    """Demands with their popularity; caches what it computes.

    All arithmetic is in whole numbers, counts times thousandths, so that ties are exact.

    Attributes:
        counts: Number of submissions by demand.
        jobs: Their sum.
    """

    def __init__(self, counts: dict[Demand, int]) -> None:
        self._settled: tuple[tuple[str, ...], tuple[Demand, ...]] | None = None
        self._allowed: Ints
        self._useless: dict[State, Ints] = {}
        self.count(counts)

    def count(self, counts: dict[Demand, int]) -> None:
        """Set the submissions of each demand; results that do not depend on them stay cached."""
        self.counts = counts
        self.jobs = sum(counts.values())
        self._demands = tuple(counts)
        self._gpus = np.array([gpus for gpus, _, _ in counts], dtype=np.int64)
        self._milli = np.array([milli for _, milli, _ in counts], dtype=np.int64)
        self._times = np.array(list(counts.values()), dtype=np.int64)
        self._ways: dict[tuple[int, int], dict[State, Ways]] = {}

    def settle(self, cluster: ClusterView) -> None:
        """Determine which demands may run on which GPU types; drops the cache if these changed."""
        if self._settled == (cluster.gpu_types, self._demands):
            return
        self._settled = cluster.gpu_types, self._demands
        self._allowed = np.zeros((len(cluster.gpu_types), len(self._demands)), dtype=np.int64)
        for index, (gpus, milli, gpu_type) in enumerate(self._demands):
            job = Job("", "", 1, None, gpus, 0.0, gpu_milli=milli, gpu_type=gpu_type)
            self._allowed[list(cluster.types_for(job)), index] = 1
        self._useless.clear()
        self._ways.clear()

    def candidates(self, job: Job, census: Census) -> Iterator[tuple[int, int, Ways]]:
        """Yield for each state that can hold a job: the least growth, the first node, all ways."""
        known = self._ways.setdefault((job.gpus, job.gpu_milli), {})
        allowed = census.cluster.types_for(job)
        for state, nodes in census.nodes().items():
            if state[0] in allowed:
                ways = known.get(state)
                if ways is None:
                    ways = known[state] = self._compute_ways(state, job)
                if ways:
                    yield ways[0][0], nodes[0], ways

    def _compute_ways(self, state: State, job: Job) -> Ways:
        """For one GPU: a way for each distinct amount of free thousandths; else at most one way."""
        _, free, shared = state
        milli = job.gpu_milli
        lefts = [left for left in shared if left >= milli] + [WHOLE] * min(free, job.gpus)
        if len(lefts) < job.gpus:
            return []
        takes = [[left] for left in dict.fromkeys(lefts)] if job.gpus == 1 else [lefts[: job.gpus]]
        before = self.fragments(state)
        return sorted(
            (self.fragments(_after(state, take, milli)) - before, take[0]) for take in takes
        )

    def fragments(self, state: State) -> int:
        """The fragmentation of a node, in GPU thousandths times the number of jobs."""
        useless = self._useless.get(state)
        if useless is None:
            gpu_type, free, shared = state
            left = np.array(shared, dtype=np.int64)
            # From the first shared GPU on that has enough, all have.
            first = np.searchsorted(left, self._milli)
            served = self._allowed[gpu_type] * (free + len(shared) - first >= self._gpus)
            too_small = np.concatenate([[0], np.cumsum(left)])[first]
            useless = np.where(served, too_small, free * WHOLE + sum(shared))
            self._useless[state] = useless
        return int(self._times @ useless)


def _after(state: State, taken: list[int], milli: int) -> State:
    """State of a node after a job was placed on GPUs with these free thousandths."""
    gpu_type, free, shared = state
    left = list(shared)
    for amount in taken:
        if amount == WHOLE:
            free -= 1
        else:
            left.remove(amount)
        if milli < WHOLE:
            left.append(amount - milli)
    return gpu_type, free, tuple(sorted(left))
