"""The parent of a new model, chosen by a policy, and the models of a zoo by their similarity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from wattkeeper.live.zoo.rows import ZooModel, task_key
from wattkeeper.live.zoo.snapshot import ZooSnapshot
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.matching.benefit import expected_saving, saving_by_accuracy
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import Matcher, find_matcher
from wattkeeper.policies.matching.relation import Relation, relate
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Options, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig, find_config, policies
from wattkeeper.policies.zoo_parents import best_accuracy, candidates
from wattkeeper.sim.attempts.validation import check_parents, check_types_of_configuration
from wattkeeper.sim.kernel.clock import FixedTime
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.streams import NamedStreams

if TYPE_CHECKING:
    from torch import nn

DEFAULT_MATCHER: Final = "saving"
"""Ranks parents where nothing else is asked for."""

PARENTS: Final = Capabilities("a zoo on disk", hooks=frozenset(), zoo=True, trial="evaluated")
"""What the choice of a parent offers to policies; nothing is learnt from it."""

Evaluate = Callable[["nn.Module"], float]
"""Measures a model that was filled from a parent, on validation data; the larger, the better."""


class ParentMatch(NamedTuple):
    """A model as the parent of a new one.

    Attributes:
        model: The model.
        score: Its similarity to the new model, by a matcher, with what its accuracy adds there.
        over_own: The score over that of the new model for itself; None if that is 0.
        relation: How it relates to the new model, as far as graphs tell.
        by_accuracy: What its accuracy adds to the expected saving, 0 or less.
    """

    model: ZooModel
    score: float
    over_own: float | None
    relation: Relation
    by_accuracy: float

    @property
    def saving(self) -> float:
        """The expected share of the training that it saves, 0 to 1."""
        return max(0.0, expected_saving(self.relation) + self.by_accuracy)

    def as_kept(self, *, keeps: bool) -> Self:
        """The same after a transfer has shown whether the function is kept."""
        return self._replace(relation=self.relation._replace(keeps=keeps))


def parent_policy(
    chosen: str | PolicyConfig, settings: dict[str, Any] | None = None
) -> PolicyConfig:
    """The config of a `Configure` policy that chooses parents.

    `settings` are those of a policy given by name.

    Raises:
        InputError: If there is no such policy, it refuses a setting, or it chooses no parents.
    """
    config = find_config("configure", chosen, settings)
    if not config.sets_parent:
        able = [kind for kind, each in policies("configure").items() if each.sets_parent]
        raise InputError(
            f"found {config.kind!r}, which chooses no parents; allowed: {', '.join(able)}"
        )
    return config


def choose_parents(config: PolicyConfig, snapshot: ZooSnapshot, job: Job) -> list[ZooModel]:
    """Ask a policy for the parent of a job's model, as a run asks for a job without a workload.

    The policy's random streams depend on the id of the job alone.

    Returns:
        The parent, or several to be tried, the most promising first; empty if it chooses none.

    Raises:
        PolicyError: If it chooses a model that is not there or not usable, or trials that train.
        StoreError: If a model was evicted meanwhile; see `read_zoo`.
    """
    clock, streams, suffix = FixedTime(0.0), NamedStreams(0), f"/{job.job_id}"
    host = Host(PARENTS, clock, Objective(0.5), streams, zoo=snapshot, suffix=suffix)
    bound = host.engage(config)
    options = Options(job.group_id, "", job.gpus, (), (), 0, 0.0, 0)
    with explain_failures(config, bound.policy.configure, f" for job {job.job_id}"):
        chosen = bound.policy.configure(bound.ctx, Start(job, 1, options, 0))
        check_types_of_configuration(chosen)
        check_parents(job, chosen, config.trial)
    usable = {model.model_id for model in snapshot.models() if model.usable}
    for parent in chosen.parents:
        if parent not in usable:
            raise PolicyError(
                f"{config.kind} chose {parent} as the parent of {job.job_id}; allowed: "
                f"{', '.join(sorted(usable)) or 'none'}",
                "configure",
            )
    return [snapshot.stored[int(parent)] for parent in chosen.parents]


def check_evaluate(config: PolicyConfig, evaluate: object) -> None:
    """Check that models can be evaluated where a policy has parents tried, and only there.

    Raises:
        InputError: If it is not so.
    """
    if config.trial != "none" and evaluate is None:
        raise InputError(
            f"{config.kind} has several parents tried (trials): give `evaluate`, which takes the "
            "model and gives its metric on validation data, the larger, the better"
        )
    if config.trial == "none" and evaluate is not None:
        raise InputError(
            f"{config.kind} has no parents tried, so that `evaluate` is never called: leave it "
            "out, or take relative with trials"
        )


def measure(evaluate: Evaluate, model: nn.Module, parent: ZooModel) -> float:
    """The metric of a model that was filled from a parent.

    Raises:
        InputError: If it is no finite number.
    """
    metric = evaluate(model)
    try:
        value = float(metric)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"evaluate: found {metric!r} with the weights of {parent.name!r}; allowed: a finite "
            "number, the larger, the better"
        )
    return value


def match(snapshot: ZooSnapshot, model: ZooModel, child: Graph, matcher: str) -> ParentMatch:
    """How similar one model is to a new one.

    Raises:
        PolicyError: If there is no such matcher.
    """
    scorer = find_matcher(matcher)
    score = scorer.score_graphs(snapshot.graph(model), child)
    return _Ranking(snapshot, child, scorer).describe(model, score)


def rank(
    snapshot: ZooSnapshot, child: Graph, matcher: str, count: int | None = None
) -> list[ParentMatch]:
    """The `count` models most similar to a new one, or all, the best first.

    Of equally similar ones the more accurate one comes first. Only for all are all scored.

    Raises:
        PolicyError: If there is no such matcher.
    """
    scorer = find_matcher(matcher)
    ranking = _Ranking(snapshot, child, scorer)
    models = sorted(snapshot.stored.values(), key=lambda model: -model.accuracy)
    added: dict[str, float] = {}  # by architecture, the most that an accuracy adds
    for model in models:
        bonus = ranking.bonus(model)
        added[model.digest] = max(added.get(model.digest, bonus), bonus)
    graphs = {model.digest: snapshot.graph(model) for model in models}
    arrays = scorer.arrays(child)

    def score(digest: str) -> float:
        return scorer.score(scorer.arrays(graphs[digest]), arrays)

    if count is None:
        snapshot.read_all(scorer.layout, scorer.arrays)
        scores = {digest: score(digest) for digest in graphs}
    else:
        search: ParentSearch[Any] = ParentSearch(scorer, map(scorer.sketch, graphs.values()))
        digests = list(graphs)
        best = search.best(
            child, lambda place: score(digests[place]), count, bonus=np.array([*added.values()])
        )
        scores = {digests[place]: score(digests[place]) for place, _ in best}
    listed = [model for model in models if model.digest in scores]
    listed.sort(key=lambda model: -scores[model.digest] - ranking.bonus(model))
    return [ranking.describe(model, scores[model.digest]) for model in listed[:count]]


class _Ranking:
    """Compares models with a new one, by a matcher and by their accuracies."""

    def __init__(self, snapshot: ZooSnapshot, child: Graph, matcher: Matcher[Any, Any]) -> None:
        self._snapshot, self._child, self._matcher = snapshot, child, matcher
        self._own = matcher.own(matcher.arrays(child))
        models = snapshot.models()
        self._best = {
            task: best_accuracy(candidates(task, models))
            for task in {model.task for model in models}
        }

    def _accuracies(self, model: ZooModel) -> tuple[float, float]:
        """The accuracy of a model, and the best one of those that may be parents for its task."""
        return model.accuracy, self._best[task_key(model.task, model.dataset)]

    def bonus(self, model: ZooModel) -> float:
        """What the accuracy of a model adds to its score."""
        return self._matcher.by_accuracy(*self._accuracies(model))

    def describe(self, model: ZooModel, score: float) -> ParentMatch:
        total, own = score + self.bonus(model), self._own
        relation = relate(self._snapshot.graph(model), self._child)
        by_accuracy = saving_by_accuracy(*self._accuracies(model))
        return ParentMatch(model, total, total / own if own else None, relation, by_accuracy)
