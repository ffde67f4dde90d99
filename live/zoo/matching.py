"""How similar the models of a zoo are to a new one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wattkeeper.live.zoo import rows
from wattkeeper.live.zoo.rows import ZooModel, task_key
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.choice import Candidate, choose_best, eligible
from wattkeeper.policies.matching.coverage import retained_share
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import Matcher, find_matcher
from wattkeeper.policies.matching.packing import pack, unpack
from wattkeeper.policies.matching.search import ParentSearch

A = TypeVar("A", bound=tuple[Ints, ...])


class ParentMatch(NamedTuple):
    """A model as the parent of a new one.

    Attributes:
        model: The model.
        score: What the matcher says of both.
        over_own: The score over that of the new model for itself; None if that is 0.
    """

    model: ZooModel
    score: float
    over_own: float | None


class ParentRanking:
    """The models of a zoo as parents of a new one.

    Args:
        zoo: The zoo.
        child: The architecture of the new model.
        matcher: One of `wattkeeper.policies.matching.matchers.MATCHERS`.

    Raises:
        PolicyError: If there is no such matcher.

    Attributes:
        models: The models.
    """

    def __init__(self, zoo: Zoo, child: Graph, matcher: str = "coverage") -> None:
        by = find_matcher(matcher)
        models = zoo.models()
        arrays = arrays_of(zoo, models, by)
        self.models = tuple(model for model in models if model.digest in arrays)
        self._zoo, self._child = zoo, child
        self._wanted = by.arrays(child)
        self._own = by.own(self._wanted)
        self._digests = list(arrays)
        self._at = {digest: at for at, digest in enumerate(self._digests)}
        self._search: ParentSearch[Any] = ParentSearch(by, arrays.values())

    def rank(self, count: int | None = None) -> list[ParentMatch]:
        """The `count` most similar ones, or all, the best first.

        Of equally similar ones the more accurate one comes first. Only for all are all scored.
        """
        if count is None:
            scores = dict(enumerate(self._search.scores(self._wanted).tolist()))
        else:
            scores = dict(self._search.best(self._wanted, count, ties=True))
        found = self._matches(self.models, scores)
        return sorted(found, key=lambda match: (-match.score, -match.model.accuracy))[:count]

    def score(self, model: ZooModel) -> ParentMatch:
        """One of them."""
        at = self._at[model.digest]
        (found,) = self._search.best(self._wanted, among=np.array([at]))
        return self._matches([model], dict([found]))[0]

    def sound(self, task: str, minimum: float) -> list[ZooModel]:
        """The models of a task key that are not clearly less accurate than their peers."""
        keys = [task_key(model.task, model.dataset) for model in self.models]
        peers = [
            Candidate(minimum, model.accuracy, key)
            for model, key in zip(self.models, keys, strict=True)
        ]
        sound = eligible(peers, task, minimum)
        return [model for model, good in zip(self.models, sound, strict=True) if good]

    def best(self, among: Iterable[ZooModel], minimum: float) -> ParentMatch | None:
        """The one that `wattkeeper.policies.matching.choice.best` takes; not all are scored.

        Args:
            among: Those that may be taken.
            minimum: The least score over the child's own that is enough.

        Returns:
            None if none is similar enough.
        """
        models = tuple(among)
        allowed = np.array([self._at[model.digest] for model in models], dtype=np.int64)
        scores = dict(self._search.best(self._wanted, among=allowed, ties=True))
        top = [
            match
            for match in self._matches(models, scores)
            if match.over_own is not None and match.over_own >= minimum
        ]
        if len(top) < 2:
            return top[0] if top else None
        candidates = [
            Candidate(match.score, match.model.accuracy, "", self._kept(match.model))
            for match in top
        ]
        return top[choose_best(candidates)]

    def _matches(self, models: Iterable[ZooModel], scores: dict[int, float]) -> list[ParentMatch]:
        own = self._own
        return [
            ParentMatch(model, scores[at], scores[at] / own if own else None)
            for model in models
            if (at := self._at[model.digest]) in scores
        ]

    def _kept(self, model: ZooModel) -> float:
        try:
            return retained_share(self._zoo.graph(model.model_id), self._child)
        except StoreError:  # it went meanwhile
            return 0.0


def arrays_of(zoo: Zoo, models: tuple[ZooModel, ...], matcher: Matcher[A]) -> dict[str, A]:
    """The graphs of models as a matcher takes them, by digest; they are kept in the index.

    Models that went meanwhile are left out.
    """
    layout = matcher.layout.__name__
    digests = {model.digest for model in models}
    query = "SELECT digest, data FROM arrays WHERE layout = ?"
    with zoo.index.read() as db:
        found = {d: unpack(matcher.layout, data) for d, data in db.execute(query, (layout,))}
        arrays = {d: one for d, one in found.items() if one is not None and d in digests}
        missing = {model.digest: model for model in models if model.digest not in arrays}
        graphs = {
            digest: rows.graph(db, model)
            for digest, model in missing.items()
            if rows.one(db, "SELECT 1 FROM graphs WHERE digest = ?", digest)
        }
    made = {digest: matcher.arrays(graph) for digest, graph in graphs.items()}
    if made:
        with zoo.index.write() as db:
            for digest, one in made.items():
                if rows.one(db, "SELECT 1 FROM graphs WHERE digest = ?", digest):
                    row = (digest, layout, pack(one))
                    db.execute(
                        "INSERT OR REPLACE INTO arrays (digest, layout, data) VALUES (?, ?, ?)", row
                    )
    return arrays | made
