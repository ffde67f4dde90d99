"""Feasibility of placements, now or if some running jobs were preempted."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import WHOLE, Job, Key, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.select import CapacityView
from wattkeeper.sim.attempts.validation import check_types_of_placement, check_wake
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.what_if import ClusterWithout
from wattkeeper.sim.engine.board import JobBoard
from wattkeeper.sim.engine.node_states import PowerBudget
from wattkeeper.sim.kernel.hosting import BoundPolicy


class Feasibility(CapacityView):
    """Which jobs fit, by the answers of `Place`, which are cached until they may change.

    What was started and refused does not fit again in the same pass: other jobs, which the same
    decision started before it, would take the same place again. It may fit once time has passed, or
    if anything was given back between two passes of one time.

    Args:
        cluster: The free GPUs.
        budget: The free power.
        place: The policy, and its context.
        board: Running attempts, and paused ones, which resume on GPUs of the same type.

    Attributes:
        ctx: The context of `Place`.
        questions: Number of jobs that `Select` asked about so far, those that it would preempt
            included.
        is_timed: Whether the answers of `Place` also depend on the job and the time.
    """

    def __init__(
        self, cluster: Cluster, budget: PowerBudget, place: BoundPolicy, board: JobBoard
    ) -> None:
        self._gpus: int = cluster.spec.gpus
        self._cluster = cluster
        self._budget = budget
        self._place: Place = place.policy
        self.ctx = place.ctx
        self._checks_types = place.is_foreign
        self._board = board
        self._has_types = len(cluster.gpu_types) > 1
        self._fitting: dict[Key, Placement] = {}
        self._not_fitting: set[Key] = set()
        self._refused: dict[Key, set[int]] = {}
        self._refused_s = 0.0
        self._has_grown = False
        self._growths = 0
        self.questions = 0
        self.is_timed: bool = type(place.policy).wake_s is not Place.wake_s
        self._withdrawn: set[int] = set()
        self._asked: Job | None = None
        self._answer: Placement = ()

    @property
    @override
    def gpus(self) -> int:
        return self._gpus

    @property
    @override
    def free_gpus(self) -> int:
        return self._cluster.free_gpus

    @property
    @override
    def growths(self) -> int:
        return self._growths

    def withdraw(self, job: Job) -> None:
        """Let a job that waits leave the queue: `Select` is told to start it, and it ends then."""
        self._withdrawn.add(job.number)
        self.grow()

    def drop_withdrawn(self, job: Job) -> bool:
        """Whether a job that `Select` starts has left the queue; it is forgotten."""
        if not self._withdrawn or job.number not in self._withdrawn:
            return False
        self._withdrawn.remove(job.number)
        return True

    @override
    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        self.questions += 1 + len(without)
        if self._withdrawn and job.number in self._withdrawn:
            return True
        if job.gpus > self._cluster.free_gpus and job.gpu_milli == WHOLE and not without:
            return False
        if self._refused and job.key in self._refused:
            return False
        return bool(self.where(job, without))

    def where(self, job: Job, without: Collection[Job] = ()) -> Placement:
        """Where `Place` puts a waiting job if some running ones are preempted; empty: nowhere."""
        if self._has_types and job.number in self._board.paused:
            job = job.replace(gpu_type=self._board.paused[job.number].execution.attempt.gpu_type)
        if without:
            return self._where_without(job, without)
        if job is not self._asked:
            self._remember()
            self._answer = self._find(job)
            self._asked = job
        return self._answer

    def _remember(self) -> None:
        """Cache the last answer for other jobs of its key."""
        if self._asked is None or self.is_timed:
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

    def begin_pass(self) -> None:
        """Note that `Select` is about to be asked."""
        if self._refused and (self._has_grown or self.ctx.now_s > self._refused_s):
            self._refused.clear()
        if self.is_timed:
            self._asked = None
        if self.is_timed or self._board.services:
            self._growths += 1

    def end_pass(self) -> None:
        """Note that nothing changes any more in this pass."""
        self._has_grown = False

    def refuse(self, job: Job) -> None:
        """Note that a job was started, but has no place.

        Raises:
            PolicyError: If it was refused before, and may not have a place since.
        """
        refused = self._refused.setdefault(job.key, set())
        if job.number in refused:
            raise PolicyError(
                f"job {job.job_id} was started again, though it was refused at this time", "select"
            )
        refused.add(job.number)
        self._refused_s = self.ctx.now_s

    def wake_s(self) -> float:
        """When `Place` is to be asked again if nothing happens before, s."""
        try:
            wake_s = self._place.wake_s(self.ctx)
            check_wake(wake_s, self.ctx.now_s, "place")
        except BaseException as error:
            raise self.ctx.explain_failure(error, self._place.wake_s, "") from None
        return wake_s

    def shrink(self) -> None:
        """Note that a job took GPUs or power: what did not fit does not fit."""
        if not self._answer:
            self._remember()
        self._asked = None
        self._fitting.clear()

    def grow(self) -> None:
        """Note that more may fit, though no job gave GPUs back."""
        self._growths += 1
        self.give_back()

    def give_back(self) -> None:
        """Note that a job gave GPUs and power back: what did not fit may fit."""
        self._has_grown = True
        self._asked = None
        self._fitting.clear()
        self._not_fitting.clear()

    def _where_without(self, job: Job, without: Collection[Job]) -> Placement:
        holders = [self._board.running[other.number].attempt for other in without]
        released_w = sum(self._budget.more_w(other.number) for other in without)
        view = ClusterWithout(self._cluster, [(holder.job, holder.placement) for holder in holders])
        return self._place_within_cap(job, view, released_w)

    def _place_within_cap(self, job: Job, cluster: ClusterView, released_w: float) -> Placement:
        placement = self._ask_place(job, cluster)
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
            placement = self._ask_place(narrowed, cluster)
        return placement

    def _ask_place(self, job: Job, cluster: ClusterView) -> Placement:
        services = self._board.services
        if services and job.number in services:
            return services[job.number].place(job, cluster)
        try:
            placement = self._place.place(self.ctx, job, cluster)
            if self._checks_types:
                check_types_of_placement(placement)
        except BaseException as error:
            about = f"job {job.job_id}"
            raise self.ctx.explain_failure(error, self._place.place, about) from None
        return placement
