"""The parent is the most similar trained model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from wattkeeper.policies.protocols import Configuration, Context, Start
from wattkeeper.policies.registry import Point, Policy, PolicyConfig
from wattkeeper.policies.zoo.choice import Candidate, Rule, choose, eligible
from wattkeeper.policies.zoo.graph import Graph, Ints
from wattkeeper.policies.zoo.matchers import find_matcher
from wattkeeper.policies.zoo.models import Trained
from wattkeeper.policies.zoo.search import Search
from wattkeeper.policies.zoo.starting import started_from


class ModelkeeperConfig(PolicyConfig):
    """Starts from the most similar of the stored models of the same task (ModelKeeper, NSDI '23).

    A model that is clearly less accurate than its peers is no parent.
    """

    point: ClassVar[Point] = "configure"
    sets_parent: ClassVar[bool] = True
    kind: Literal["modelkeeper"] = "modelkeeper"
    matcher: Literal["coverage", "modelkeeper-asbuilt"] = "coverage"
    """How similarity is measured: by the share of the child's parameters that the parent fills, or
    as ModelKeeper published it."""
    rule: Rule = "best"
    """`best`: the most similar model; `bucketed`: the most accurate of the most similar ones, as
    published. The latter scores every stored model."""
    minimum: float = 0.01
    """The least similarity of a parent, over the child's similarity to itself."""
    query_s: NonNegativeFloat = 0.0
    """Seconds that a query takes while the job holds its GPUs; none where the zoo holds nothing of
    the task. ModelKeeper reports 8 against 2,500 models."""

    def build(self) -> Modelkeeper:
        """A new policy."""
        return Modelkeeper(self)


class Modelkeeper(Policy):
    """See `ModelkeeperConfig`. What it keeps is derived from graphs: nothing is learnt."""

    def __init__(self, config: ModelkeeperConfig) -> None:
        self._config = config
        self._matcher = find_matcher(config.matcher)
        self._search: Search[Any] = Search(self._matcher)
        self._places: dict[str, int] = {}
        self._known: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The parent, if there is one."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return started_from(start, None)
        peers = [model for model in ctx.zoo.models() if model.task == child.task]
        if not peers:
            return started_from(start, None)
        parent = self._parent(peers, child.task, child.graph)
        return started_from(start, parent, self._config.query_s)

    def _parent(self, peers: Sequence[Trained], task: str, graph: Graph) -> str | None:
        arrays = self._matcher.arrays(graph)
        own = self._matcher.own(arrays)
        minimum = self._config.minimum * own
        where = np.array([self._place(model.graph) for model in peers])
        known = self._known[graph.digest]
        if self._config.rule == "best":
            sound = [Candidate(minimum, model.accuracy, task) for model in peers]
            allowed = eligible(sound, task, minimum)
            among = np.unique(where[allowed])
            scores = self._highest(arrays, among, known, minimum)
        else:
            among = np.unique(where)
            self._search.best(arrays, len(among), among, known)
            scores = known
        candidates = [
            Candidate(scores.get(at, -np.inf), model.accuracy, task)
            for at, model in zip(where.tolist(), peers, strict=True)
        ]
        chosen = choose(self._config.rule, candidates, task, minimum, own)
        return None if chosen is None else peers[chosen].model_id

    def _place(self, graph: Graph) -> int:
        """Position of an architecture in the search; those with the same graph share one."""
        place = self._places.get(graph.digest)
        if place is None:
            place = self._places[graph.digest] = len(self._places)
            self._search.add(self._matcher.arrays(graph))
        return place

    def _highest(
        self, child: Any, among: Ints, known: dict[int, float], minimum: float
    ) -> dict[int, float]:
        """The architectures of the highest score, all of them if several share it."""
        count = 1
        while True:
            found = self._search.best(child, count, among, known)
            best, worst = found[0].score, found[-1].score
            if len(found) < count or worst < best or best < minimum:
                return {one.at: one.score for one in found}
            count *= 2
