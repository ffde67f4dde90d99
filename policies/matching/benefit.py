"""The work that a parent is expected to save, by how its architecture relates to the child's.

The estimate is linear in a few properties of the alignment, and in the parent's accuracy. Its
coefficients are fitted to real trainings, each from scratch and from several parents, by
`benchmarks/warm_starts`; docs/zoo.md says how well it predicts trainings of other families.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare

Kept = Literal["kept", "kept but the head", "partly", "lost"]
"""What of the parent's function an exact transfer keeps, as far as graphs tell: all of it, all but
the last layers, some layers, or nothing."""


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


class Relation(NamedTuple):
    """How two models relate, by their alignment; see `relate`.

    Attributes:
        coverage: Share of the child's trained elements in matched layers.
        retained: Share of the parent's trained elements that the child takes over.
        equal: Matched layers of equal shapes over all layers of both, matched ones once.
        keeps: Whether the child takes over all of the parent, and only layers were added to it
            that can be the identity, or lie beside one.
        keeps_body: Whether that is so of all layers but the last ones of either.
        new_head: Whether a last layer of the child has no counterpart.
    """

    coverage: float
    retained: float
    equal: float
    keeps: bool
    keeps_body: bool
    new_head: bool

    @property
    def kept(self) -> Kept:
        """What of the parent's function can be kept."""
        if self.keeps:
            return "kept"
        if self.keeps_body:
            return "kept but the head"
        return "partly" if self.coverage else "lost"

    @property
    def saving(self) -> float:
        """The expected share of the work that the parent saves, of the task's best accuracy."""
        if not self.coverage:
            return 0.0
        fitted = FITTED
        of_size = fitted.lost * (1 - self.retained) + fitted.equal * self.equal
        of_kind = fitted.kept * self.keeps + fitted.new_head * self.new_head
        return max(0.0, fitted.filled * self.coverage + of_kind + of_size)


@cache_by_pair
def relate(parent: Graph, child: Graph) -> Relation:
    """How a parent relates to a child."""
    return relate_prepared(prepare(parent), prepare(child))


def relate_prepared(parent: Prepared, child: Prepared) -> Relation:
    """How a prepared parent relates to a prepared child."""
    found = kernel("alignment_kernel").count_relation(tuple(parent), tuple(child))
    filled, common, common_body, own_body, matched, equal, added, added_body, last = map(int, found)
    own, total = int(parent.sizes.sum()), int(child.sizes.sum())
    layers = int((parent.sizes > 0).sum()) + int((child.sizes > 0).sum()) - matched
    if not own or not total:
        return Relation(0.0, 0.0, 0.0, keeps=False, keeps_body=False, new_head=True)
    return Relation(
        filled / total,
        common / own,
        equal / layers,
        keeps=common == own and not added,
        keeps_body=0 < common_body == own_body and not added_body,
        new_head=last > 0,
    )


def expected_saving(parent: Graph, child: Graph) -> float:
    """The expected share of the work that a parent of the task's best accuracy saves."""
    return relate(parent, child).saving


def saving_prepared(parent: Prepared, child: Prepared) -> float:
    """`expected_saving` of prepared models."""
    return relate_prepared(parent, child).saving


def saving_by_accuracy(accuracy: float, best: float) -> float:
    """What an accuracy adds to the expected saving, 0 or less; `best`: the best of the task."""
    return FITTED.accuracy * (min(accuracy / best, 1.0) - 1) if best > 0 else 0.0
