"""What a parent is expected to save, by how the architectures relate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_graphs import build, draw
from wattkeeper.policies.matching.benefit import FITTED, expected_saving, saving_by_accuracy
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.relation import Kept, relate


def chain(*widths: int) -> Graph:
    """Linear layers one after the other; the first width is that of the input."""
    nodes = [
        Node("linear", (at - 1,), (Tensor(f"{at}", "weight", (there, here)),))
        for at, (here, there) in enumerate(pairwise(widths))
    ]
    return Graph("x".join(map(str, widths)), tuple(nodes))


CHILD = chain(8, 16, 16, 4)

RELATIVES: list[tuple[Graph, Kept]] = [
    (CHILD, "kept"),
    (chain(8, 16, 4), "kept"),  # a square layer was added
    (chain(8, 12, 16, 4), "kept"),
    (chain(8, 16, 16, 5), "kept but the head"),
    (chain(8, 12, 7), "kept but the head"),
    (chain(8, 16, 32, 4), "partly"),  # it is cut
    (chain(8, 16, 16, 16, 4), "partly"),  # a layer is left out
    (chain(9, 16, 4), "partly"),  # other inputs
    (chain(9, 20, 5), "lost"),
]


@pytest.mark.parametrize(("parent", "kept"), RELATIVES, ids=[each.name for each, _ in RELATIVES])
def test_what_of_the_function_is_kept(parent: Graph, kept: Kept) -> None:
    assert relate(parent, CHILD).kept == kept


def test_layers_that_cannot_be_the_identity_change_the_function() -> None:
    assert relate(chain(8, 4, 4), chain(8, 6, 7, 4)).kept == "partly"


def test_more_is_expected_of_what_keeps_more() -> None:
    savings = [expected_saving(relate(parent, CHILD)) for parent, _ in RELATIVES]
    assert savings[0] == max(savings)
    kept, body, partly, lost = (
        [saving for saving, (_, kept) in zip(savings, RELATIVES, strict=True) if kept == kind]
        for kind in ("kept", "kept but the head", "partly", "lost")
    )
    assert min(kept) > max(*body, *partly)
    assert lost == [0]
    # On digits, a head that begins anew costs as much as the body saves.
    assert expected_saving(relate(chain(8, 16, 16, 5), CHILD)) == 0


def test_signs_of_coefficients_are_those_that_bounds_rely_on() -> None:
    assert FITTED.filled >= 0
    assert FITTED.kept >= 0
    assert FITTED.equal >= 0
    assert FITTED.accuracy >= 0
    assert FITTED.lost <= 0
    assert FITTED.new_head <= 0


def test_accuracy_counts_against_the_best_of_the_task() -> None:
    assert saving_by_accuracy(0.9, 0.9) == 0
    assert saving_by_accuracy(0.45, 0.9) == pytest.approx(-FITTED.accuracy / 2)
    assert saving_by_accuracy(-3.0, -1.0) == 0  # not a share


@given(st.integers(0, 50), st.integers(0, 50))
def test_relations_of_any_two_models(first: int, second: int) -> None:
    parent, child = (build(draw(np.random.default_rng(seed), 20)) for seed in (first, second))
    found, itself = relate(parent, child), relate(child, child)
    assert 0 <= found.equal <= 1
    assert 0 <= expected_saving(found) <= expected_saving(itself) < 1
    if found.keeps:
        assert found.retained == 1
        assert found.keeps_body or not parent.parameters[:-1].any()
    assert itself.keeps == bool(child.parameters.any())
