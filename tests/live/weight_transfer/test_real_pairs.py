"""Transfers between real architectures claim what is so, and keep what can be kept."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.support.real_models import LIBRARIES, Model
from tests.support.real_pairs import (
    FAMILIES,
    KNOWN_NOT_KEPT,
    PLAIN,
    Outcome,
    Pair,
    examine,
    is_there,
    list_pairs,
)


def check(outcome: Outcome) -> None:
    assert not outcome.is_false_kept, str(outcome)
    name = outcome.pair.family, outcome.pair.kind
    assert outcome.is_false_not_kept is (name in KNOWN_NOT_KEPT), str(outcome)


def test_there_are_pairs_of_many_architectures() -> None:
    pairs = [pair for name in FAMILIES for pair in list_pairs(name)]
    assert len(pairs) >= 120
    assert len(KNOWN_NOT_KEPT) <= 0.05 * len(pairs)
    assert {pair.parent.library for pair in pairs} == {*LIBRARIES}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_pairs_of_a_family(name: str) -> None:
    library = LIBRARIES[FAMILIES[name].library]
    if not is_there(name):
        pytest.skip(f"{library} is not installed")
    for pair in list_pairs(name):
        check(examine(pair))


@pytest.mark.parametrize("pair", PLAIN, ids=lambda pair: f"{pair.family} {pair.kind}")
def test_pairs_that_need_torch_alone(pair: Pair) -> None:
    check(examine(pair))


def test_a_wrong_answer_is_noticed() -> None:
    """An outcome is compared with the right answer, and with what a run finds."""
    same = PLAIN[0]
    assert not examine(same).is_false_not_kept
    assert examine(same._replace(right="weights")).is_false_kept
    narrower = Model("torch", "resnet", {"size": (6,)})
    assert examine(same._replace(child=narrower)).is_false_not_kept


def test_libraries_are_found_by_their_names() -> None:
    for name in FAMILIES:
        library = LIBRARIES[FAMILIES[name].library]
        assert is_there(name) is (importlib.util.find_spec(library) is not None)
