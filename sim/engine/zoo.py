"""The zoo of a simulated cluster: trained models from which later ones may start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    check_retention,
)
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
from wattkeeper.sim.kernel.hosting import Host
from wattkeeper.sim.kernel.streams import RandomStreams

BYTES = 4
"""Bytes of a parameter."""


class ModelOfJob(NamedTuple):
    """A model that jobs train.

    Attributes:
        child: The view of it for policies.
        accuracy: Mean accuracy from scratch; NaN if not known, where accuracies are reported.
    """

    child: ChildModel
    accuracy: float


class Benefit(Protocol):
    """What parents are worth."""

    def work(self, child: ChildModel, parent: TrainedModel, coverage: float) -> float:
        """The share of a child's training that is left with a parent, which fills so much of it."""

    def accuracy_of(
        self,
        model: ModelOfJob,
        parent: TrainedModel | None,
        coverage: float,
        draw: Callable[[], float],
    ) -> float:
        """The accuracy that a model ended at; `draw` draws from the standard normal distribution.

        The coverage is 0 without a parent.
        """


class ZooSpec(NamedTuple):
    """Specification of a zoo, which is empty at first.

    Attributes:
        capacity_bytes: Capacity; None if unbounded.
        known: The models that jobs train, by name.
        benefit: What parents are worth.
    """

    capacity_bytes: int | None
    known: Mapping[str, ModelOfJob]
    benefit: Benefit


class FinishedModel(NamedTuple):
    """A model that was trained.

    Attributes:
        number: `Job.number` of its job.
        time_s: Time of its end.
        parent: The id of its parent; None if it started from scratch.
        coverage: Share of its parameters that its parent filled; 0 from scratch.
        saved_s: Seconds of training that the parent saved.
        accuracy: Reached accuracy.
        admitted: Whether it was stored.
        zoo_models: Number of models in the zoo then.
        zoo_bytes: Their size.
    """

    number: int
    time_s: float
    parent: str | None
    coverage: float
    saved_s: float
    accuracy: float
    admitted: bool
    zoo_models: int
    zoo_bytes: int


class SimulatedZoo:
    """The models that `Configure` chooses parents from and `Retain` decides on.

    The id of a model is that of its job.

    Attributes:
        done: The models that were trained, in order.
        size_bytes: Size of the stored models.
    """

    def __init__(self, spec: ZooSpec, retain: PolicyConfig, streams: RandomStreams) -> None:
        self.done: list[FinishedModel] = []
        self.size_bytes = 0
        self._spec = spec
        self._config = retain
        self._streams = streams
        self._trained: dict[str, TrainedModel] = {}
        self._stored: dict[str, StoredModel] = {}
        self._count = 0
        self._view: tuple[TrainedModel, ...] | None = ()
        self._covered: tuple[tuple[int, str], float] = ((-1, ""), 0.0)
        self._taken: dict[int, tuple[TrainedModel, float]] = {}  # and its coverage, by job

    def engage(self, host: Host) -> None:
        """Let the host of the run build the `Retain` policy."""
        self._retain: Retain = host.engage(self._config).policy

    def child(self, job: Job) -> ChildModel | None:
        """The model that a job trains; None if it has none."""
        return None if job.model is None else self._spec.known[job.model].child

    def models(self) -> Sequence[TrainedModel]:
        """The stored models, in order of addition."""
        if self._view is None:
            self._view = tuple(self._trained.values())
        return self._view

    def work_left(self, job: Job, parent: str) -> float:
        """The share of a job's training that is left with a parent, as the benefit is modelled."""
        child, model, filled = self._cover(job, parent)
        return self._spec.benefit.work(child, model, filled)

    def work(self, job: Job, parent: str) -> float:
        """The share of a job's training that is left with a parent, which counts as used.

        Raises:
            PolicyError: If the parent is not there, or the job has no model.
        """
        child, model, filled = self._cover(job, parent)
        self._taken[job.number] = model, filled
        stored = self._stored[parent]
        self._count += 1
        stored = self._stored[parent] = stored._replace(used=self._count, uses=stored.uses + 1)
        with explain_failures(self._config, self._retain.on_use, f" for job {job.job_id}"):
            self._retain.on_use(stored)
        return self._spec.benefit.work(child, model, filled)

    def _cover(self, job: Job, parent: str) -> tuple[ChildModel, TrainedModel, float]:
        """A job's model, its parent and the coverage; known if it was asked for just before."""
        model, child = self._trained.get(parent), self.child(job)
        if model is None or child is None:
            what = "is not in the zoo" if child else "cannot be: the job has no model"
            raise PolicyError(f"{job.job_id} shall start from {parent}, which {what}", "configure")
        if self._covered[0] != (job.number, parent):
            from wattkeeper.policies.matching.relation import coverage

            self._covered = (job.number, parent), coverage(model.graph, child.graph)
        return child, model, self._covered[1]

    def offer(
        self, job: Job, now_s: float, parent: str | None, saved_s: float, accuracy: float | None
    ) -> Retention:
        """Offer the model that a job trained to the `Retain` policy, and apply its decision."""
        assert job.model is not None
        trained = self._spec.known[job.model]
        child = trained.child
        model, filled = (None, 0.0) if parent is None else self._taken.pop(job.number)
        if accuracy is None:

            def draw() -> float:
                stream = self._streams.policy("zoo", f"accuracy/{job.job_id}")
                return float(stream.standard_normal())

            accuracy = self._spec.benefit.accuracy_of(trained, model, filled, draw)
        size_bytes = BYTES * int(child.graph.parameters.sum())
        self._count += 1
        new = StoredModel(job.job_id, child.task, accuracy, size_bytes, self._count, self._count)
        store = StoredModels(self._spec.capacity_bytes, tuple(self._stored.values()))
        about = f" for job {job.job_id} at {now_s:.12g} s"
        with explain_failures(self._config, self._retain.retain, about):
            decision = check_retention(store, new, self._retain.retain(store, new))
        for name in decision.evict:
            self.size_bytes -= self._stored.pop(name).size_bytes
            del self._trained[name]
        if decision.admit:
            self.size_bytes += size_bytes
            self._stored[new.model_id] = new
            self._trained[new.model_id] = TrainedModel(
                new.model_id, child.name, child.task, accuracy, child.graph
            )
        self._view = None
        self.done.append(
            FinishedModel(
                job.number,
                now_s,
                parent,
                filled,
                saved_s,
                accuracy,
                decision.admit,
                len(self._stored),
                self.size_bytes,
            )
        )
        return decision
