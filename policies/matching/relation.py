"""How two models relate: what of them an alignment matches, and what it leaves."""

from typing import Literal, NamedTuple

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare

Kept = Literal["kept", "kept but the head", "partly", "lost"]
"""What of the parent's function an exact transfer keeps, as far as graphs tell: all of it, all but
the last layers, some layers, or nothing."""


class Relation(NamedTuple):
    """How a parent relates to a child, by their alignment; a tensor that nodes share counts once.

    Attributes:
        coverage: Share of the child's trained elements, 0 to 1, in matched nodes. Their tensors
            are filled completely, whether copied, widened or narrowed. A model fills itself
            completely; the coverage of a child without trained elements is 0.
        retained: Share of the parent's trained elements, 0 to 1, that the child takes over. A
            narrower child takes a part of a tensor, an unmatched node contributes nothing, a wider
            child takes all. The share of a parent without trained elements is 0.
        equal: Matched layers of equal shapes over all layers of both, matched ones once, 0 to 1. A
            layer is a node with trained elements.
        keeps: Whether the child takes over all of the parent, and only layers were added to it
            that can be the identity, or lie beside one.
        keeps_body: Whether that is so of all layers but the last ones of either.
        new_head: Whether a last layer of the child is not matched.
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


@cache_by_pair
def relate(parent: Graph, child: Graph) -> Relation:
    """How a parent relates to a child, by one alignment."""
    return relate_prepared(prepare(parent), prepare(child))


def relate_prepared(parent: Prepared, child: Prepared) -> Relation:
    """How a prepared parent relates to a prepared child."""
    found = kernel("alignment_kernel").count_relation(tuple(parent), tuple(child))
    filled, common, common_body, own_body, matched, equal, added, added_body, last = map(int, found)
    own, total = int(parent.sizes.sum()), int(child.sizes.sum())
    layers = int((parent.sizes > 0).sum()) + int((child.sizes > 0).sum()) - matched
    return Relation(
        filled / total if total else 0.0,
        common / own if own else 0.0,
        equal / layers if layers else 0.0,
        keeps=0 < common == own and not added,
        keeps_body=0 < common_body == own_body and not added_body,
        new_head=last > 0,
    )


def coverage(parent: Graph, child: Graph) -> float:
    """The coverage of a child by a parent; see `Relation`."""
    return relate(parent, child).coverage


def retained_share(parent: Graph, child: Graph) -> float:
    """The share of a parent that a child takes over; see `Relation`."""
    return relate(parent, child).retained
