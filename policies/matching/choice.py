"""Which of the trained models becomes the parent, and how its child's training begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import PolicyError

Rule = Literal["best", "bucketed"]

BUCKETS: Final = 10
WIDENING: Final = 1e-4
"""Added to the range of scores, as published."""
DEVIATIONS: Final = 3.0
"""A model so many standard deviations below its task's mean accuracy is no parent."""
LEAST_DEVIATION: Final = 0.01
"""Of the mean."""
WARM_EPOCHS: Final = 2
LOWEST_FACTOR: Final = 0.3


class Candidate(NamedTuple):
    """A trained model that may become the parent.

    Attributes:
        score: Its similarity to the child, by the matcher in use.
        accuracy: What it reached; the larger, the better.
        task: What that was measured on: task and data set. Accuracies of one task can be compared.
        kept: The share of its own parameters that the child takes over.
    """

    score: float
    accuracy: float
    task: str
    retained: float = 1.0


def eligible(candidates: Sequence[Candidate], task: str, minimum: float) -> Bools:
    """Which candidates may become the parent of a child of a task, shape (candidates,).

    Those of the same task with a finite score of at least `minimum` that are not clearly less
    accurate than their peers: below the mean of the task's other models by more than three of their
    standard deviations. The model itself is left out, or it would hide its own failure among few
    peers; and a deviation counts as at least 1 % of the mean, since few peers may be all alike.
    """
    score = np.array([one.score for one in candidates])
    accuracy = np.array([one.accuracy for one in candidates])
    same = np.array([one.task == task for one in candidates], dtype=bool) & np.isfinite(accuracy)
    allowed: Bools = same & np.isfinite(score) & (score >= minimum)
    allowed[same] &= accuracy[same] >= _least(accuracy[same])
    return allowed


def _least(accuracy: Floats) -> Floats:
    """The least accuracy that each of the models of a task needs, shape (models,)."""
    others = len(accuracy) - 1
    if others < 2:
        return np.full(len(accuracy), -np.inf)
    centre = accuracy.mean()
    off = accuracy - centre  # sums of squares are exact enough about the centre
    mean = (off.sum() - off) / others
    variance = ((off**2).sum() - off**2) / others - mean**2
    deviation = np.sqrt(np.maximum(variance, 0))
    least: Floats = centre + mean
    least -= DEVIATIONS * np.maximum(deviation, LEAST_DEVIATION * np.abs(centre + mean))
    return least


def choose(
    rule: Rule, candidates: Sequence[Candidate], task: str, minimum: float, own: float
) -> int | None:
    """The parent of a child.

    Args:
        rule: `best` takes the highest score, `bucketed` does as ModelKeeper (see `bucketed`).
        candidates: The trained models.
        task: The child's task and data set.
        minimum: The least score that is enough.
        own: The child's score for itself.

    Returns:
        Its position among the candidates, or None if none may be taken (see `eligible`).

    Raises:
        PolicyError: If there is no such rule.
    """
    if rule not in get_args(Rule):
        raise PolicyError(f"no rule is called {rule!r}; there are {', '.join(get_args(Rule))}")
    allowed = np.flatnonzero(eligible(candidates, task, minimum)).tolist()
    if not allowed:
        return None
    left = [candidates[at] for at in allowed]
    return int(allowed[choose_best(left) if rule == "best" else choose_bucketed(left, own)])


def choose_best(candidates: Sequence[Candidate]) -> int:
    """The highest score; of equal ones what loses the least, then the most accurate, the first.

    Any larger relative fills a small child wholly, but it is cut down for that.
    """

    def key(at: int) -> tuple[float, float, float, int]:
        one = candidates[at]
        return one.score, one.retained, one.accuracy, -at

    return max(range(len(candidates)), key=key)


def choose_bucketed(candidates: Sequence[Candidate], own: float) -> int:
    """The most accurate of the most similar ones, as published (NSDI '23).

    Scores are normalised to the range from the lowest to the child's own, and put into ten buckets;
    of the highest that is not empty, the most accurate is taken; of equal ones the most similar,
    then the first. Scores above the child's own are in the highest bucket.
    """
    score = np.array([one.score for one in candidates])
    width = max(own - score.min(), 0) + WIDENING
    normalised = (score - score.min()) / width
    bucket = np.clip(np.floor(normalised * BUCKETS), 0, BUCKETS - 1)
    highest = np.flatnonzero(bucket == bucket.max()).tolist()
    return int(max(highest, key=lambda at: (candidates[at].accuracy, candidates[at].score, -at)))


def warm_factor(matched: int, parent_tensors: int, epoch: int) -> float:
    """What to multiply the learning rate by in an epoch of a training that began with a parent.

    As published: for two epochs, the less, the more of the parent was taken over.

    Args:
        matched: How many of the parent's tensors the child took over.
        parent_tensors: How many the parent has.
        epoch: From 0.

    Raises:
        PolicyError: If more was matched than there is.
    """
    if not 0 <= matched <= parent_tensors or not parent_tensors:
        text = f"{matched} tensors matched of a parent's {parent_tensors}: at least 1 is needed"
        raise PolicyError(f"{text}, and no more can match than there are")
    if epoch >= WARM_EPOCHS:
        return 1.0
    return min(1.0, max(LOWEST_FACTOR, 1 - matched / parent_tensors))
