"""The trained models of a zoo as candidates for the parent of a new one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.matching.choice import valid_accuracy_mask
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import Matcher, find_matcher
from wattkeeper.policies.matching.relation import retained_share
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, ParentTrial, Start
from wattkeeper.policies.zoo_views import TrainedModel

SPARE: Final = 64
"""Number of evicted models that are remembered besides as many as there are models."""


class BestParent(NamedTuple):
    """A model and its score, with what its accuracy adds."""

    model: TrainedModel
    score: float


def candidates(task: str, models: Sequence[TrainedModel]) -> list[TrainedModel]:
    """The models that may become the parent of one of a task: usable, of a valid accuracy."""
    peers = [model for model in models if model.task == task]
    valid = valid_accuracy_mask(np.array([model.accuracy for model in peers])).tolist()
    return [
        model for model, is_valid in zip(peers, valid, strict=True) if is_valid and model.usable
    ]


def best_accuracy(models: Iterable[TrainedModel]) -> float:
    """The best accuracy of models; 0 without any."""
    return max((model.accuracy for model in models), default=0.0)


class ParentIndex:
    """Finds the best parent of a child among models, whose sketches it keeps.

    All its state is derived from graphs.
    """

    def __init__(self, matcher: Matcher[Any, Any]) -> None:
        self.matcher = matcher
        self._forget()

    def _forget(self) -> None:
        self._search: ParentSearch[Any] = ParentSearch(self.matcher)
        self._place_of_digest: dict[str, int] = {}
        self._place_of_model: dict[str, int] = {}
        self._graphs: list[Graph] = []

    def forget_evicted(self, models: Sequence[TrainedModel]) -> None:
        """Forget all sketches if most are of models that are no longer there."""
        if len(self._place_of_model) > 2 * len(models) + SPARE:
            self._forget()

    def score(self, model: TrainedModel, child: Graph) -> float:
        """The score of a model as the parent of a child."""
        return self.matcher.score_graphs(self._graphs[self._place(model)], child)

    def best(
        self, models: Sequence[TrainedModel], child: Graph, count: int = 1
    ) -> list[BestParent]:
        """At most `count` models of the highest scores, the best first.

        Ties go to the one that loses the least, then the first. Of the models of one architecture
        only the first of the most accurate can be chosen. Not all are scored.
        """
        highest = best_accuracy(models)
        preferred: dict[int, TrainedModel] = {}
        for model in sorted(models, key=lambda model: -model.accuracy):
            preferred.setdefault(self._place(model), model)
        found = self._search.best(
            child,
            lambda place: self.matcher.score_graphs(self._graphs[place], child),
            count,
            among=np.array(list(preferred), dtype=np.int64),
            retained=lambda place: retained_share(self._graphs[place], child),
            bonus=np.array(
                [self.matcher.by_accuracy(each.accuracy, highest) for each in preferred.values()]
            ),
        )
        return [BestParent(preferred[place], score) for place, score in found]

    def _place(self, model: TrainedModel) -> int:
        """Position of a model's architecture in the search; models with equal graphs share it."""
        place = self._place_of_model.get(model.model_id)
        if place is None:
            digest = model.graph.digest
            place = self._place_of_digest.setdefault(digest, len(self._graphs))
            if place == len(self._graphs):
                self._search.add(self.matcher.sketch(model.graph))
                self._graphs.append(model.graph)
            self._place_of_model[model.model_id] = place
        return place


class ParentChoice(Configure):
    """A base class: chooses the parent among the models of the task that may be one.

    All its state is derived from graphs; it learns nothing.

    Args:
        matcher: Name of the matcher.
        query_s: Time that a choice takes, s.
        trial_epochs: Epochs for which several parents are tried, at first.
    """

    def __init__(self, matcher: str, query_s: float, trial_epochs: int = 0) -> None:
        self.index = ParentIndex(find_matcher(matcher))
        self._query_s = query_s
        self._trial_epochs = trial_epochs

    @abstractmethod
    def choose(self, models: Sequence[TrainedModel], child: Graph) -> Sequence[TrainedModel]:
        """The parent of a child among models, or several to be tried, the most promising first.

        Without one, training starts from scratch.
        """

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from the model that is chosen; without one of the task nothing takes time."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        models = ctx.zoo.models()
        if not any(model.task == child.task for model in models):
            return start.inherit(None)
        self.index.forget_evicted(models)
        chosen = self.choose(candidates(child.task, models), child.graph)
        if not chosen:
            return start.inherit(None, self._query_s)
        parent, *rivals = [model.model_id for model in chosen]
        trial = ParentTrial(tuple(rivals), self._trial_epochs) if rivals else None
        return start.inherit(parent, self._query_s, trial)
