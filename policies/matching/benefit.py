"""The work that a parent is expected to save, by how its architecture relates to the child's.

The estimate is linear in a few properties of the alignment, and in the parent's accuracy. Its
coefficients are fitted to real trainings, each from scratch and from several parents, by
`benchmarks/warm_starts`; docs/zoo.md says how well it predicts trainings of other families.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wattkeeper.policies.matching.relation import Relation


class Coefficients(NamedTuple):
    """The expected share of the work that a parent saves.

    Attributes:
        filled: Times the coverage.
        kept: More, where the function can be kept.
        lost: More, times the share of the parent's elements that the child has no place for.
        equal: More, times the share of equal layers.
        accuracy: More, times the parent's accuracy over the best one of the task, less 1.
        new_head: More, where the child's last layers begin anew.
    """

    filled: float
    kept: float
    lost: float
    equal: float
    accuracy: float
    new_head: float


FITTED: Final = Coefficients(0.326, 0.366, -0.167, 0.091, 0.326, -0.299)


def expected_saving(relation: Relation) -> float:
    """The expected share of the work that a parent of the task's best accuracy saves, 0 to 1."""
    if not relation.coverage:
        return 0.0
    of_size = FITTED.filled * relation.coverage + FITTED.lost * (1 - relation.retained)
    of_layers = FITTED.equal * relation.equal + FITTED.new_head * relation.new_head
    return max(0.0, of_size + of_layers + FITTED.kept * relation.keeps)


def saving_by_accuracy(accuracy: float, best: float) -> float:
    """What an accuracy adds to the expected saving, 0 or less; `best`: the best of the task."""
    return FITTED.accuracy * (min(accuracy / best, 1.0) - 1) if best > 0 else 0.0
