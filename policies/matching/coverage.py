"""Coverage, the default similarity of models, and the retained share of a parent."""

from typing import NamedTuple

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare


class Shares(NamedTuple):
    """What of two models an alignment matches.

    Attributes:
        coverage: Share of the child's trained elements, 0 to 1, in matched nodes. Their tensors
            are filled completely, whether copied, widened or narrowed. A model fills itself
            completely; the coverage of a child without trained elements is 0.
        retained: Share of the parent's trained elements, 0 to 1, that the child takes over. A
            narrower child takes a part of a tensor, an unmatched node contributes nothing, a wider
            child takes all. The share of a parent without trained elements is 0.
    """

    coverage: float
    retained: float


@cache_by_pair
def shares(parent: Graph, child: Graph) -> Shares:
    """The shares of two models, by one alignment; a tensor that nodes share counts once."""
    return shares_prepared(prepare(parent), prepare(child))


def shares_prepared(parent: Prepared, child: Prepared) -> Shares:
    """The shares of two prepared models."""
    filled, common = kernel("alignment_kernel").count_filled(tuple(parent), tuple(child))
    own, total = int(parent.sizes.sum()), int(child.sizes.sum())
    return Shares(int(filled) / total if total else 0.0, int(common) / own if own else 0.0)


def coverage(parent: Graph, child: Graph) -> float:
    """The coverage of a child by a parent; see `Shares`."""
    return shares(parent, child).coverage


def score_prepared(parent: Prepared, child: Prepared) -> float:
    """The coverage of a prepared child by a prepared parent."""
    return shares_prepared(parent, child).coverage


def retained_share(parent: Graph, child: Graph) -> float:
    """The share of a parent that a child takes over; see `Shares`."""
    return shares(parent, child).retained
