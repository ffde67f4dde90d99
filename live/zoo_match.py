"""How similar the models of a zoo are to a new one."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from wattkeeper.live import zoo_rows as rows
from wattkeeper.live.zoo import Zoo
from wattkeeper.live.zoo_rows import Model
from wattkeeper.policies.zoo.graph import Graph, Ints
from wattkeeper.policies.zoo.matchers import Matcher, find_matcher
from wattkeeper.policies.zoo.packing import pack, unpack

A = TypeVar("A", bound=tuple[Ints, ...])


class Match(NamedTuple):
    """A model as the parent of a new one.

    Attributes:
        model: The model.
        score: What the matcher says of both.
        over_own: The score over that of the new model for itself; None if that is 0.
    """

    model: Model
    score: float
    over_own: float | None


def rank(zoo: Zoo, child: Graph, matcher: str = "coverage") -> list[Match]:
    """All models of a zoo, the most similar one first; of equal ones, the more accurate one.

    Args:
        zoo: The zoo.
        child: The architecture of the new model.
        matcher: One of `wattkeeper.policies.zoo.matchers.MATCHERS`.

    Raises:
        PolicyError: If there is no such matcher.
    """
    by = find_matcher(matcher)
    models = zoo.models()
    arrays = arrays_of(zoo, models, by)
    wanted = by.arrays(child)
    own = by.own(wanted)
    scores = {digest: by.score(parent, wanted) for digest, parent in arrays.items()}
    matches = [
        Match(model, scores[model.digest], scores[model.digest] / own if own else None)
        for model in models
        if model.digest in scores
    ]
    return sorted(matches, key=lambda match: (-match.score, -match.model.accuracy))


def arrays_of(zoo: Zoo, models: tuple[Model, ...], matcher: Matcher[A]) -> dict[str, A]:
    """The graphs of models as a matcher takes them, by digest; they are kept in the index.

    Models that went meanwhile are left out.
    """
    layout = matcher.layout.__name__
    digests = {model.digest for model in models}
    query = "SELECT digest, data FROM arrays WHERE layout = ?"
    with zoo.index.read() as db:
        kept = [(digest, data) for digest, data in db.execute(query, (layout,))]
        found = {digest: unpack(matcher.layout, data) for digest, data in kept}
        arrays = {d: one for d, one in found.items() if one is not None and d in digests}
        missing = {model.digest: model for model in models if model.digest not in arrays}
        graphs = {
            digest: rows.graph(db, model)
            for digest, model in missing.items()
            if rows.model(db, model.model_id)
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
