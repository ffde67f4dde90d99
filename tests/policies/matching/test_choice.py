"""Which candidate becomes the parent, and the learning rate that a warm start begins with."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.parents import Candidate, choose, eligible
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.matching.choice import Rule, warm_factor
from wattkeeper.policies.registry import find_config

TASK = "image/cifar10"
PEERS = [Candidate(0.2, 0.90 + 0.001 * at, TASK) for at in range(12)]

candidate = st.builds(
    Candidate, st.floats(-1, 1), st.floats(0, 1), st.sampled_from([TASK, "image/digits"])
)
rules = st.sampled_from(["best", "bucketed"])


def choose_index(rule: Rule, *more: Candidate, minimum: float = 0.1) -> int | None:
    return choose(rule, [*PEERS, *more], TASK, minimum, own=1.0)


@given(rules, st.lists(candidate, max_size=20), st.floats(-1, 1), st.floats(-2, 2))
def test_a_chosen_parent_is_eligible(
    rule: Rule, candidates: list[Candidate], minimum: float, own: float
) -> None:
    at = choose(rule, candidates, TASK, minimum, own)
    allowed = eligible(candidates, TASK, minimum)
    if at is None:
        assert not allowed.any()
        return
    assert allowed[at]
    assert candidates[at].task == TASK
    assert candidates[at].score >= minimum
    if rule == "best":
        scores = [one.score for one, may in zip(candidates, allowed, strict=True) if may]
        assert candidates[at].score == max(scores)


def test_best_is_the_most_similar_and_bucketed_the_most_accurate_of_the_similar() -> None:
    near, accurate = Candidate(0.98, 0.91, TASK), Candidate(0.94, 0.93, TASK)
    assert choose_index("best", near, accurate) == 12
    assert choose_index("bucketed", near, accurate) == 13
    below = Candidate(0.85, 0.94, TASK)  # in the next bucket
    assert choose_index("bucketed", near, below) == 12


@pytest.mark.parametrize("rule", ["best", "bucketed"])
@pytest.mark.parametrize(
    "refused",
    [
        Candidate(1.0, 0.1, TASK),
        Candidate(1.0, math.nan, TASK),
        Candidate(math.nan, 0.95, TASK),
        Candidate(1.0, 95.0, "language/wikitext"),
        Candidate(1.0, 0.95, "image/digits"),
    ],
)
def test_ineligible_candidates_are_not_chosen(rule: Rule, refused: Candidate) -> None:
    at = choose_index(rule, refused)
    assert at is not None
    assert at < len(PEERS)


def test_a_failed_model_among_few_peers_is_ineligible() -> None:
    few = [Candidate(0.5, accuracy, TASK) for accuracy in (0.9, 0.91, 0.1)]
    assert eligible(few, TASK, 0).tolist() == [True, True, False]
    alike = [Candidate(0.5, accuracy, TASK) for accuracy in (0.9, 0.9, 0.899)]
    assert eligible(alike, TASK, 0).all()


def test_no_parent_is_chosen_below_the_minimum_score() -> None:
    assert choose_index("best", minimum=0.3) is None
    assert choose("bucketed", [], TASK, 0.0, own=1.0) is None


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match=r"rule: .*'best' or 'bucketed'"):
        find_config("configure", "modelkeeper", {"rule": "first"})


@pytest.mark.parametrize(
    ("matched", "epoch", "factor"),
    [(0, 0, 1.0), (4, 0, 0.6), (4, 1, 0.6), (9, 0, 0.3), (10, 1, 0.3), (10, 2, 1.0), (4, 7, 1.0)],
)
def test_the_learning_rate_is_lower_for_two_epochs(matched: int, epoch: int, factor: float) -> None:
    assert warm_factor(matched, 10, epoch) == pytest.approx(factor)


@pytest.mark.parametrize(("matched", "tensors"), [(11, 10), (-1, 10), (0, 0)])
def test_impossible_matches_are_refused(matched: int, tensors: int) -> None:
    with pytest.raises(PolicyError, match=f"{matched} tensors matched of a parent's {tensors}"):
        warm_factor(matched, tensors, 0)
