"""Fragmentation gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from wattkeeper.policies.place.best_fit import gang, tightest_gpus
from wattkeeper.policies.protocols import NEW, WHOLE, ClusterView, Context, Demand, Job, Placement
from wattkeeper.policies.registry import Point, Policy, PolicyConfig
from wattkeeper.policies.sharing import room, slots

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

State = tuple[int, int, tuple[int, ...]]
"""What of a node matters: GPU type, untouched GPUs, ascending free thousandths of shared ones."""

GROWTH = 0.05
"""Popularities are counted anew when so many more jobs were submitted."""


class FragmentationAwareConfig(PolicyConfig):
    """The node and GPU where the expected fragmentation grows least.

    Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC '23). The
    fragmentation of a node is the sum, over all demands, of a demand's popularity times the free
    GPU thousandths of the node that it cannot use: all of them if the node cannot serve the
    demand, be it too large, of another GPU type, or in want of GPUs with enough thousandths; else
    those on GPUs with fewer free thousandths than the demand asks of each. CPU, which the authors'
    simulator counts too, is not modelled.

    A demand's popularity is its share of the jobs submitted so far, those that wait or are over
    included; it is counted anew whenever the number of jobs has grown by 5 percent. (The paper
    knows the workload beforehand.) Ties go to the first node, then the first shared GPU, then an
    untouched one. What the paper lacks: a job that asks for parts of several GPUs takes the
    fullest ones of the node, and a job that no node can hold is placed as by `best-fit`.
    """

    point: ClassVar[Point] = "place"
    kind: Literal["fragmentation-aware"] = "fragmentation-aware"

    def build(self) -> FragmentationAware:
        """A new policy."""
        return FragmentationAware()


class FragmentationAware(Policy):
    """See `FragmentationAwareConfig`."""

    def __init__(self) -> None:
        self._counts: dict[Demand, int] = {}
        self._jobs = 0
        self._workload = Workload({})

    def submitted(self, ctx: Context, job: Job) -> None:
        """Count its demand."""
        self._counts[job.demand] = self._counts.get(job.demand, 0) + 1
        self._jobs += 1
        if self._jobs >= self._workload.jobs * (1 + GROWTH):
            self._workload = Workload(dict(self._counts))

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """The steepest descent."""
        self._workload.settle(cluster)
        found = room(job, cluster)
        if job.gpus == 1 and job.gpu_milli < WHOLE:
            return self._place_part(job, cluster, found)
        best: tuple[int, int] | None = None
        for node, state in _states(cluster, np.flatnonzero(found >= job.gpus)):
            increase = self._workload.increases(state, job)[0][0]
            if best is None or increase < best[0]:
                best = increase, node
        if best is not None:
            return slots(job, cluster, [(best[1], job.gpus)])
        if job.gpu_milli < WHOLE:
            return tightest_gpus(job, cluster)
        return slots(job, cluster, gang(job, cluster))

    def _place_part(self, job: Job, cluster: ClusterView, found: Ints) -> Placement:
        best: tuple[int, int, list[int]] | None = None
        for node, state in _states(cluster, np.flatnonzero(found)):
            ways = self._workload.increases(state, job)
            least = ways[0][0]
            if best is None or least < best[0]:
                best = least, node, [left for increase, left in ways if increase == least]
        if best is None:
            return ()
        _, node, lefts = best
        shared = cluster.shared(node)
        return ((node, 1, min((gpu for gpu in shared if shared[gpu] in lefts), default=NEW)),)

    def state_dict(self) -> dict[str, Any]:
        """Demands: GPUs, thousandths, types, how often submitted, and how often as counted last."""
        known = self._workload.counts
        rows = [[*demand, count, known.get(demand, 0)] for demand, count in self._counts.items()]
        return {"demands": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the demands."""
        rows = [((gpus, milli, of), *both) for gpus, milli, of, *both in state["demands"]]
        self._counts = {demand: count for demand, count, _ in rows}
        self._jobs = sum(self._counts.values())
        self._workload = Workload({demand: known for demand, _, known in rows if known})


def _states(cluster: ClusterView, nodes: Ints) -> list[tuple[int, State]]:
    """Nodes with their states, ascending; of untouched equal nodes the first only."""
    kinds = np.stack([cluster.node_type[nodes], cluster.free[nodes]], axis=1).tolist()
    seen: set[State] = set()
    found = []
    for node, (gpu_type, free) in zip(nodes.tolist(), kinds, strict=True):
        shared = cluster.shared(node)
        state = (gpu_type, free, tuple(sorted(shared.values())) if shared else ())
        if state not in seen:
            seen.add(state)
            found.append((node, state))
    return found


class Workload:
    """Demands and how often each was submitted; remembers what it computed.

    All is in whole numbers, counts times thousandths, so that ties are exact.

    Attributes:
        counts: By demand.
        jobs: Their sum.
    """

    def __init__(self, counts: dict[Demand, int]) -> None:
        self.counts = counts
        self.jobs = sum(counts.values())
        self._gpus = np.array([gpus for gpus, _, _ in counts], dtype=np.int64)
        self._milli = np.array([milli for _, milli, _ in counts], dtype=np.int64)
        self._times = np.array(list(counts.values()), dtype=np.int64)
        self._gpu_types: tuple[str, ...] | None = None
        self._may: Ints
        self._fragments: dict[State, int] = {}
        self._increases: dict[tuple[State, int, int], list[tuple[int, int]]] = {}

    def settle(self, cluster: ClusterView) -> None:
        """Learn which demands may run on which GPU types; what was computed for others goes."""
        if self._gpu_types == cluster.gpu_types:
            return
        self._gpu_types = cluster.gpu_types
        self._may = np.zeros((len(cluster.gpu_types), len(self.counts)), dtype=np.int64)
        for at, (gpus, milli, of) in enumerate(self.counts):
            asks = Job("", "", 1, None, gpus, 0.0, gpu_milli=milli, gpu_type=of)
            self._may[list(cluster.types_for(asks)), at] = 1
        self._fragments.clear()
        self._increases.clear()

    def fragments(self, state: State) -> int:
        """The fragmentation of a node, in GPU thousandths times the number of jobs."""
        known = self._fragments.get(state)
        if known is not None:
            return known
        gpu_type, free, shared = state
        left = np.array(shared, dtype=np.int64)
        # From the first shared GPU on that has enough, all have.
        first = np.searchsorted(left, self._milli)
        served = self._may[gpu_type] * (free + len(shared) - first >= self._gpus)
        too_small = np.concatenate([[0], np.cumsum(left)])[first]
        total = free * WHOLE + sum(shared)
        amount = int(self._times @ np.where(served, too_small, total))
        self._fragments[state] = amount
        return amount

    def increases(self, state: State, job: Job) -> list[tuple[int, int]]:
        """By how much the fragmentation grows with a job, for each way to place it on a node.

        Returns:
            Growth, and the free thousandths of the GPU that the job takes a part of (of the
            fullest one if several), ascending. A job of one GPU has a way for each amount that is
            left on a GPU, another job has one.
        """
        key = (state, job.gpus, job.gpu_milli)
        known = self._increases.get(key)
        if known is not None:
            return known
        before, milli = self.fragments(state), job.gpu_milli
        _, free, shared = state
        lefts = [left for left in shared if left >= milli] + [WHOLE] * min(free, job.gpus)
        if milli == WHOLE:
            takes = [[WHOLE] * job.gpus]
        elif job.gpus > 1:
            takes = [lefts[: job.gpus]]
        else:
            takes = [[left] for left in dict.fromkeys(lefts)]
        found = sorted((self.fragments(_after(state, take, milli)) - before, take[0])
                       for take in takes)  # fmt: skip
        self._increases[key] = found
        return found


def _after(state: State, taken: list[int], milli: int) -> State:
    """The state once a job holds parts of GPUs with these free thousandths."""
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
