"""Choice of the parent, and the learning rate of a training that starts from it."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import PolicyError

Rule = Literal["best", "bucketed"]

BUCKETS: Final = 10
WIDENING: Final = 1e-4
"""Added to the range of scores, as published."""
DEVIATIONS: Final = 3.0
"""Standard deviations below its task's mean accuracy beyond which a model is not used as a
parent."""
LEAST_DEVIATION: Final = 0.01
"""Lower bound of the standard deviation, relative to the mean."""
WARM_EPOCHS: Final = 2
LOWEST_FACTOR: Final = 0.3


class Candidate(NamedTuple):
    """A trained model that may become the parent.

    Attributes:
        score: Its similarity to the child, by the matcher in use.
        accuracy: Its accuracy; larger is better.
    """

    score: float
    accuracy: float


def valid_accuracy_mask(accuracy: Floats) -> Bools:
    """Mask of the models of a task whose accuracy is valid, shape (models,).

    It is finite, and not clearly below that of their peers: not more than three standard deviations
    below the mean of the others. A model is compared with the others only, or it would hide its own
    failure among few peers; and the deviation counts as at least 1 % of the mean, since few peers
    may be all alike.
    """
    valid: Bools = np.isfinite(accuracy)
    valid[valid] = accuracy[valid] >= _least(accuracy[valid])
    return valid


def _least(accuracy: Floats) -> Floats:
    """Smallest eligible accuracy of each model of a task, shape (models,)."""
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


def choose_bucketed(candidates: Sequence[Candidate], own: float) -> int:
    """The most accurate of the most similar models, as published (NSDI '23).

    Scores are normalised to the range from the lowest score to the child's own, and divided into
    ten buckets; the most accurate model of the highest bucket that is not empty is taken; ties go
    to the most similar, then the first. Scores above the child's own are in the highest bucket.
    """
    score = np.array([candidate.score for candidate in candidates])
    width = max(own - score.min(), 0) + WIDENING
    normalised = (score - score.min()) / width
    bucket = np.clip(np.floor(normalised * BUCKETS), 0, BUCKETS - 1)
    highest = np.flatnonzero(bucket == bucket.max()).tolist()

    def key(index: int) -> tuple[float, float, int]:
        candidate = candidates[index]
        return candidate.accuracy, candidate.score, -index

    return max(highest, key=key)


def warm_factor(matched: int, parent_tensors: int, epoch: int) -> float:
    """Factor of the learning rate in an epoch of a training that started from a parent.

    As published: for two epochs, the smaller, the more of the parent was taken over.

    Args:
        matched: Number of the parent's tensors that the child took over.
        parent_tensors: Number of the parent's tensors.
        epoch: From 0.

    Raises:
        PolicyError: If more tensors were matched than the parent has.
    """
    if not 0 <= matched <= parent_tensors or not parent_tensors:
        text = f"{matched} tensors matched of a parent's {parent_tensors}: at least 1 is needed"
        raise PolicyError(f"{text}, and no more can match than there are")
    if epoch >= WARM_EPOCHS:
        return 1.0
    return min(1.0, max(LOWEST_FACTOR, 1 - matched / parent_tensors))
