"""The trained models of a zoo as candidates for the parent of a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.matching.choice import valid_accuracy_mask
from wattkeeper.policies.matching.coverage import retained_share
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import Matcher
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel

SPARE: Final = 64
"""Number of evicted models that are remembered besides as many as there are models."""


class BestParent(NamedTuple):
    """A model and its score, with what its accuracy adds."""

    model: TrainedModel
    score: float


def candidates(child: ChildModel, models: Sequence[TrainedModel]) -> list[TrainedModel]:
    """The models that may become the parent: of the child's task, usable, of a valid accuracy."""
    peers = [model for model in models if model.task == child.task]
    valid = valid_accuracy_mask(np.array([model.accuracy for model in peers])).tolist()
    return [
        model for model, is_valid in zip(peers, valid, strict=True) if is_valid and model.usable
    ]


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
        self,
        models: Sequence[TrainedModel],
        child: Graph,
        bonus: Callable[[TrainedModel], float] | None = None,
    ) -> BestParent | None:
        """The model of the highest score; ties go to the one that loses the least, then the first.

        Of the models of one architecture only the first of the most accurate can be chosen. Not all
        are scored.

        Args:
            models: The candidates.
            child: The child.
            bonus: What is added to the score of a model; no less for a more accurate one.
        """
        preferred: dict[int, TrainedModel] = {}
        for model in sorted(models, key=lambda model: -model.accuracy):
            preferred.setdefault(self._place(model), model)
        found = self._search.best(
            child,
            lambda place: self.matcher.score_graphs(self._graphs[place], child),
            among=np.array(list(preferred), dtype=np.int64),
            retained=lambda place: retained_share(self._graphs[place], child),
            bonus=None if bonus is None else np.array([*map(bonus, preferred.values())]),
        )
        return BestParent(preferred[found[0].parent], found[0].score) if found else None

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
