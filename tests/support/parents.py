"""The choice of a parent among candidates that all are scored: what policies must come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Bools
from wattkeeper.policies.matching import choice
from wattkeeper.policies.matching.choice import Rule, choose_bucketed, valid_accuracy_mask


class Candidate(NamedTuple):
    """A trained model that may become the parent.

    Attributes:
        score: Its similarity to the child, by the matcher in use.
        accuracy: Its accuracy; larger is better.
        task: Task and data set of the accuracy. Accuracies of one task can be compared.
        retained: Share of its parameters that the child takes over.
    """

    score: float
    accuracy: float
    task: str
    retained: float = 1.0


def eligible(candidates: Sequence[Candidate], task: str, minimum: float) -> Bools:
    """Which candidates may become the parent of a child of a task, shape (candidates,).

    Those of the same task with a finite score of at least `minimum` whose accuracy is sound.
    """
    score = np.array([c.score for c in candidates])
    accuracy = np.array([c.accuracy for c in candidates])
    allowed = np.array([c.task == task for c in candidates], dtype=bool)
    allowed[allowed] = valid_accuracy_mask(accuracy[allowed])
    allowed &= np.isfinite(score) & (score >= minimum)
    return allowed


def choose_best(candidates: Sequence[Candidate]) -> int:
    """The highest score; ties go to the model that loses least, then the most accurate, the first.

    Any larger relative fills a small child completely, but is cut down for that.
    """

    def key(index: int) -> tuple[float, float, float, int]:
        candidate = candidates[index]
        return candidate.score, candidate.retained, candidate.accuracy, -index

    return max(range(len(candidates)), key=key)


def choose(
    rule: Rule, candidates: Sequence[Candidate], task: str, minimum: float, own: float
) -> int | None:
    """Index of the parent by a rule; None if no candidate is eligible."""
    allowed = np.flatnonzero(eligible(candidates, task, minimum)).tolist()
    if not allowed:
        return None
    pool = [candidates[index] for index in allowed]
    if rule == "best":
        return int(allowed[choose_best(pool)])
    scored = [choice.Candidate(one.score, one.accuracy) for one in pool]
    return int(allowed[choose_bucketed(scored, own)])
