"""The zoo's part in a run: which models attempts start from, and which ones they add."""

from __future__ import annotations

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.attempts.decided import FROM_SCRATCH, Inheritance, without_choices
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.engine.backend import Backend, ZooBackend
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.recording.recorder import Recorder


class Inheritances(Subscriber):
    """What attempts take over from models of the zoo, and what they leave to it.

    Args:
        zoo: The zoo; None if the run has none.
        sets_parent: Whether `Configure` sets parents; False if there is no zoo.
        decisions: Asks it.
        backend: Gives the power that a job may draw.
        recorder: Records parents, and the decisions of `Retain`.
    """

    def __init__(
        self,
        zoo: ZooBackend | None,
        sets_parent: bool,
        decisions: DecisionMaker,
        backend: Backend,
        recorder: Recorder,
    ) -> None:
        self._zoo = zoo
        self._asks = sets_parent
        self._decisions = decisions
        self._backend = backend
        self._recorder = recorder
        self._parents: dict[int, tuple[str, float]] = {}  # and what is left to do, by job

    def ask(self, attempt: Attempt) -> Inheritance:
        """Ask for the parent of a job without a workload, if there may be one."""
        job, gpu_type = attempt.job, attempt.gpu_type
        if not self._asks or job.model is None:
            return FROM_SCRATCH
        most_w = self._backend.most_power_w(job, gpu_type) / job.gpus_held
        options = without_choices(job, gpu_type, most_w)
        start = Start(job, attempt.number, options, 0)
        return self.take(job, self._decisions.choose_parent(start))

    def take(self, job: Job, configuration: Configuration) -> Inheritance:
        """What the job takes over from the parent that its configuration names.

        Raises:
            PolicyError: If there is no such model, or the job has none.
        """
        parent, query_s = configuration.parent, configuration.query_s
        if self._parents:
            self._parents.pop(job.number, None)
        if parent is None:
            return Inheritance(query_s=query_s) if query_s else FROM_SCRATCH
        if self._zoo is None:
            raise PolicyError(
                f"{job.job_id} shall start from {parent}, but there is no zoo", "configure"
            )
        work = self._zoo.work(job, parent)
        self._parents[job.number] = parent, work
        return Inheritance(work, query_s)

    def take_again(self, job: Job) -> Inheritance:
        """What the next attempt of a job takes over if the one before was lost to an accident."""
        before = self._parents.get(job.number)
        return FROM_SCRATCH if before is None else Inheritance(before[1])

    def book(self, attempt: Attempt, ended_s: float) -> None:
        """Record the parent of the attempt that was booked last."""
        if self._parents and attempt.job.number in self._parents:
            parent = self._parents[attempt.job.number][0]
            self._recorder.parents[self._recorder.attempts - 1] = parent

    def end(
        self, attempt: Attempt, now_s: float, saved_s: float, reached: bool, accuracy: float | None
    ) -> None:
        """Let `Retain` decide on the model that a job trained, if it reached its target.

        Args:
            attempt: The job's last attempt.
            now_s: The time, s.
            saved_s: Seconds of training that the parent saved.
            reached: Whether it reached the target.
            accuracy: What the model reached; None: it is modelled.
        """
        zoo, job = self._zoo, attempt.job
        if zoo is None or job.model is None:
            return
        inherited = self._parents.pop(job.number, None)
        if not reached:
            return
        parent = None if inherited is None else inherited[0]
        decision = zoo.offer(job, now_s, parent, saved_s, accuracy)
        left = decision.evict if decision.admit else (*decision.evict, job.job_id)
        if left:
            self._backend.discard(left)
        chose = "admit" if decision.admit else f"refuse: {decision.reason}"
        if decision.evict:
            chose += f" evict={','.join(decision.evict)}"
        saw = (zoo.size_bytes, len(zoo.models()))
        self._recorder.journal.note(now_s, "retain", job.number, attempt.number, saw, chose)
