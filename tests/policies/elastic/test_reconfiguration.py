"""Pipelines after a loss, and what is copied to form them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from wattkeeper.policies.elastic.reconfiguration import (
    LayerMove,
    assign_layers,
    plan_transition,
    reconfigure,
)
from wattkeeper.policies.elastic.stages import LayerCost
from wattkeeper.policies.elastic.templates import plan_templates
from wattkeeper.policies.errors import InputError, PolicyError

TEMPLATES = plan_templates([LayerCost(1.0)] * 6, 1, [2, 3, 4])


@pytest.mark.parametrize(
    ("pipelines", "lost", "least", "expected"),
    [
        # Too short ones are merged with each other first; the last one with a long one.
        (((0, 1), (2, 3), (4, 5), (6, 7)), (0, 3, 5), 2, ((1, 2), (4, 6, 7))),
        (((0, 1), (2, 3), (4, 5)), (0, 3), 2, ((4, 5), (1, 2))),
        # The last too short one is merged with the first of the long ones.
        (((0, 1), (2, 3), (4, 5)), (0,), 2, ((4, 5), (1, 2, 3))),
        # One gets what the longest can spare, and is still too short.
        (((0, 1, 2), (3, 4, 5, 6)), (0, 1), 3, ((2, 6, 3, 4, 5),)),
        # Too few ranks remain.
        (((0, 1), (2, 3)), (0, 1, 2), 2, ((3,),)),
        (((0, 1),), (0, 1), 2, ()),
    ],
)
def test_borrowing_and_merging(
    pipelines: tuple[tuple[int, ...], ...],
    lost: tuple[int, ...],
    least: int,
    expected: tuple[tuple[int, ...], ...],
) -> None:
    assert reconfigure(pipelines, lost, least) == expected


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 5), st.data())
def test_nobody_but_the_lost_is_lost(lengths: list[int], least: int, data: st.DataObject) -> None:
    ranks = iter(range(sum(lengths)))
    pipelines = [[next(ranks) for _ in range(length)] for length in lengths]
    everybody = list(range(sum(lengths)))
    lost = data.draw(st.lists(st.sampled_from(everybody), unique=True))
    found = reconfigure(pipelines, lost, least)
    stayed = [rank for rank in everybody if rank not in lost]
    assert sorted(rank for pipeline in found for rank in pipeline) == stayed
    assert list(map(len, found)) == sorted(map(len, found))
    if len(stayed) >= least:
        assert all(len(pipeline) >= least for pipeline in found)
    else:
        assert len(found) == min(len(stayed), 1)


def test_layers_come_from_the_first_holder_that_stayed() -> None:
    before = assign_layers(((0, 1), (2, 3), (4, 5, 6)), TEMPLATES)
    assert [*before.items()][:3] == [(0, range(3)), (1, range(3, 6)), (2, range(3))]
    after = assign_layers(((1, 6), (2, 3), (4, 5)), TEMPLATES)
    moves = plan_transition(before, after, {0}, [10] * 6)
    assert moves.moves == (
        LayerMove(0, 2, 1),
        LayerMove(1, 2, 1),
        LayerMove(2, 2, 1),
        LayerMove(3, 1, 6),
        LayerMove(2, 2, 4),
        LayerMove(4, 1, 5),
        LayerMove(5, 1, 5),
    )
    assert moves.copied_bytes == 70


def test_layers_without_a_holder_come_from_storage() -> None:
    before = assign_layers(((0, 1, 2),), TEMPLATES)
    after = assign_layers(((0, 2),), TEMPLATES)
    found = plan_transition(before, after, {1}, [1, 2, 4, 8, 16, 32])
    assert found.moves == (LayerMove(2, None, 0), LayerMove(3, None, 2))
    assert found.copied_bytes == 0


@given(st.lists(st.integers(0, 11), unique=True, max_size=8))
def test_each_new_layer_is_moved_once(lost: list[int]) -> None:
    pipelines = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    before = assign_layers(pipelines, TEMPLATES)
    after = assign_layers(reconfigure(pipelines, lost, 2), TEMPLATES)
    found = plan_transition(before, after, lost, [1] * 6)
    for rank, layers in after.items():
        moved = [move.layer for move in found.moves if move.target == rank]
        assert moved == [layer for layer in layers if layer not in before[rank]]
    for move in found.moves:
        holders = [rank for rank in before if move.layer in before[rank] and rank not in lost]
        assert move.source == (holders[0] if holders else None)
    assert found.copied_bytes == sum(move.source is not None for move in found.moves)


def test_bad_inputs() -> None:
    for pipelines, lost, least, facts in (
        (((0, 1), (1, 2)), (), 2, ("rank 1", "2 places")),
        (((0, 1),), (7,), 2, ("rank 7", "no pipeline")),
        (((0, 1),), (), 0, ("0 ranks",)),
    ):
        with pytest.raises(InputError) as caught:
            reconfigure(pipelines, lost, least)
        assert_states(str(caught.value), *facts)
    with pytest.raises(PolicyError) as unplanned:
        assign_layers(((0, 1, 2, 3, 4),), TEMPLATES)
    assert_states(str(unplanned.value), "5 nodes", "2, 3, 4")
    with pytest.raises(InputError, match="rank 0 is lost"):
        plan_transition({0: range(2)}, {0: range(2)}, {0}, [1, 1])
    with pytest.raises(InputError, match="layers 0 to 1; there are sizes of 1"):
        plan_transition({0: range(2)}, {0: range(2)}, (), [1])
