"""Feasibility of placements, now or if some running jobs were preempted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from wattkeeper.policies.protocols import (
    WHOLE,
    CapacityView,
    ClusterView,
    Context,
    Job,
    Key,
    Place,
    Placement,
)
from wattkeeper.sim.attempts.attempt import Execution, Paused
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.what_if import ClusterWithout
from wattkeeper.sim.engine.node_states import PowerBudget


class Feasibility(CapacityView):
    """Which jobs fit, by the answers of `Place`, which are cached until they may change.

    Args:
        cluster: The free GPUs.
        budget: The free power.
        place: The policy.
        ctx: Its context.
        running: Running attempts by number of the job; kept up to date by the owner.
        paused: Preempted attempts, which resume on GPUs of the same type; likewise.
    """

    def __init__(
        self,
        cluster: Cluster,
        budget: PowerBudget,
        place: Place,
        ctx: Context,
        running: Mapping[int, Execution],
        paused: Mapping[int, Paused],
    ) -> None:
        self._gpus: int = cluster.spec.gpus
        self._cluster = cluster
        self._budget = budget
        self._place = place
        self._ctx = ctx
        self._running = running
        self._paused = paused
        self._fitting: dict[Key, Placement] = {}
        self._not_fitting: set[Key] = set()
        self._asked: Job | None = None
        self._answer: Placement = ()

    @property
    def gpus(self) -> int:
        """See `wattkeeper.policies.protocols.CapacityView`."""
        return self._gpus

    @property
    def free_gpus(self) -> int:
        """See `wattkeeper.policies.protocols.CapacityView`."""
        return self._cluster.free_gpus

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """See `wattkeeper.policies.protocols.CapacityView`."""
        if job.gpus > self._cluster.free_gpus and job.gpu_milli == WHOLE and not without:
            return False
        return bool(self.where(job, without))

    def where(self, job: Job, without: Collection[Job] = ()) -> Placement:
        """Where `Place` puts a waiting job if some running ones are preempted; empty: nowhere."""
        if self._paused and job.number in self._paused:
            job = job.replace(gpu_type=self._paused[job.number].execution.attempt.gpu_type)
        if without:
            return self._where_without(job, without)
        if job is not self._asked:
            self._remember()
            self._answer = self._find(job)
            self._asked = job
        return self._answer

    def _remember(self) -> None:
        """Cache the last answer for other jobs of its key."""
        if self._asked is None:
            return
        if self._answer:
            self._fitting[self._asked.key] = self._answer
        else:
            self._not_fitting.add(self._asked.key)

    def _find(self, job: Job) -> Placement:
        if self._fitting:
            placement = self._fitting.get(job.key)
            if placement is not None:
                return placement
        if self._not_fitting and job.key in self._not_fitting:
            return ()
        return self._place_within_cap(job, self._cluster, 0.0)

    def shrink(self) -> None:
        """Note that a job took GPUs or power: what did not fit does not fit."""
        if not self._answer:
            self._remember()
        self._asked = None
        self._fitting.clear()

    def grow(self) -> None:
        """Note that GPUs or power were given back: what did not fit may fit."""
        self._asked = None
        self._fitting.clear()
        self._not_fitting.clear()

    def _where_without(self, job: Job, without: Collection[Job]) -> Placement:
        holders = [self._running[other.number].attempt for other in without]
        released_w = sum(self._budget.held_w(other) for other in without)
        view = ClusterWithout(self._cluster, [(holder.job, holder.placement) for holder in holders])
        return self._place_within_cap(job, view, released_w)

    def _place_within_cap(self, job: Job, cluster: ClusterView, released_w: float) -> Placement:
        placement = self._place.place(self._ctx, job, cluster)
        if self._budget.cap_w is None:
            return placement
        others = [cluster.gpu_types[index] for index in cluster.types_for(job)]
        while placement:
            gpu_type = self._cluster.gpu_type(placement)
            if self._budget.allows(job, gpu_type, released_w):
                break
            if gpu_type not in others:
                break  # it may not run there at all, which is refused when it starts
            others.remove(gpu_type)
            if not others:
                return ()
            narrowed = job.replace(gpu_type="|".join(others))
            placement = self._place.place(self._ctx, narrowed, cluster)
        return placement
