"""The parent of a new model, chosen by a policy, and the models of a zoo by their similarity."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.live.zoo.rows import ZooModel, task_key
from wattkeeper.live.zoo.snapshot import ZooSnapshot
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.matching.benefit import Kept, relate, saving_by_accuracy
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Options, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig, find_config, policies
from wattkeeper.sim.attempts.validation import check_types_of_configuration
from wattkeeper.sim.kernel.clock import FixedTime
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.streams import NamedStreams

DEFAULT_MATCHER: Final = "saving"
"""Ranks parents where nothing else is asked for."""

PARENTS: Final = Capabilities("a zoo on disk", hooks=frozenset(), zoo=True)
"""What the choice of a parent offers to policies; nothing is learnt from it."""


class ParentMatch(NamedTuple):
    """A model as the parent of a new one.

    Attributes:
        model: The model.
        score: Its similarity to the new model, by a matcher.
        over_own: The score over that of the new model for itself; None if that is 0.
        kept: What of its function the new model can keep, as far as graphs tell.
        saving: The expected share of the training that it saves, its accuracy included.
    """

    model: ZooModel
    score: float
    over_own: float | None
    kept: Kept
    saving: float


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


def choose_parent(config: PolicyConfig, snapshot: ZooSnapshot, job: Job) -> ZooModel | None:
    """Ask a policy for the parent of a job's model, as a run asks for a job without a workload.

    The policy's random streams depend on the id of the job alone.

    Returns:
        The parent; None if the policy chooses none.

    Raises:
        PolicyError: If it chooses a model that is not there or not usable.
        StoreError: If a model was evicted meanwhile; see `read_zoo`.
    """
    clock, streams, suffix = FixedTime(0.0), NamedStreams(0), f"/{job.job_id}"
    host = Host(PARENTS, clock, Objective(0.5), streams, zoo=snapshot, suffix=suffix)
    bound = host.engage(config)
    options = Options(job.group_id, "", job.gpus, (), (), 0, 0.0, 0)
    with explain_failures(config, bound.policy.configure, f" for job {job.job_id}"):
        chosen = bound.policy.configure(bound.ctx, Start(job, 1, options, 0))
        check_types_of_configuration(chosen)
    if chosen.parent is None:
        return None
    usable = {model.model_id for model in snapshot.models() if model.usable}
    if chosen.parent not in usable:
        raise PolicyError(
            f"{config.kind} chose {chosen.parent} as the parent of {job.job_id}; allowed: "
            f"{', '.join(sorted(usable)) or 'none'}",
            "configure",
        )
    return snapshot.stored[int(chosen.parent)]


def match(snapshot: ZooSnapshot, model: ZooModel, child: Graph, matcher: str) -> ParentMatch:
    """How similar one model is to a new one.

    Raises:
        PolicyError: If there is no such matcher.
    """
    scorer = find_matcher(matcher)
    own = scorer.own(scorer.arrays(child))
    score = scorer.score_graphs(snapshot.graph(model), child)
    return _describe_match(snapshot, model, child, score, own, _best_accuracies(snapshot))


def _best_accuracies(snapshot: ZooSnapshot) -> dict[str, float]:
    """The best accuracy of each task and data set."""
    best: dict[str, float] = {}
    for model in snapshot.stored.values():
        task = task_key(model.task, model.dataset)
        best[task] = max(best.get(task, model.accuracy), model.accuracy)
    return best


def _by_accuracy(model: ZooModel, best: Mapping[str, float]) -> float:
    return saving_by_accuracy(model.accuracy, best[task_key(model.task, model.dataset)])


def _describe_match(
    snapshot: ZooSnapshot,
    model: ZooModel,
    child: Graph,
    score: float,
    own: float,
    best: Mapping[str, float],
) -> ParentMatch:
    relation = relate(snapshot.graph(model), child)
    saving = max(0.0, relation.saving + _by_accuracy(model, best))
    return ParentMatch(model, score, score / own if own else None, relation.kept, saving)


def rank(
    snapshot: ZooSnapshot, child: Graph, matcher: str, count: int | None = None
) -> list[ParentMatch]:
    """The `count` models most similar to a new one, or all, the best first.

    By `saving`, what its accuracy adds counts, as in `ParentMatch.saving`. Of equally similar ones
    the more accurate one comes first. Only for all are all scored.

    Raises:
        PolicyError: If there is no such matcher.
    """
    scorer = find_matcher(matcher)
    arrays = scorer.arrays(child)
    models = sorted(snapshot.stored.values(), key=lambda model: -model.accuracy)
    best = _best_accuracies(snapshot)
    added = {
        model.model_id: _by_accuracy(model, best) if matcher == DEFAULT_MATCHER else 0.0
        for model in models
    }
    graphs = {model.digest: snapshot.graph(model) for model in models}

    def score(digest: str) -> float:
        return scorer.score(scorer.arrays(graphs[digest]), arrays)

    if count is None:
        snapshot.read_all(scorer.layout, scorer.arrays)
        scores = {digest: score(digest) for digest in graphs}
    else:
        search: ParentSearch[Any] = ParentSearch(scorer, map(scorer.sketch, graphs.values()))
        digests = list(graphs)
        most = dict.fromkeys(digests, -math.inf)
        for model in models:
            most[model.digest] = max(most[model.digest], added[model.model_id])
        found = search.best(
            child, lambda place: score(digests[place]), count, bonus=np.array([*most.values()])
        )
        scores = {digests[place]: score(digests[place]) for place, _ in found}
    listed = [model for model in models if model.digest in scores]
    listed.sort(key=lambda model: -scores[model.digest] - added[model.model_id])
    own = scorer.own(arrays)
    return [
        _describe_match(snapshot, model, child, scores[model.digest], own, best)
        for model in listed[:count]
    ]
