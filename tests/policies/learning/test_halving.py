"""Successive halving on drawn learning curves."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.learning.halving import halve

EPOCHS = 200

curves = st.lists(
    st.lists(st.integers(0, 20), min_size=EPOCHS + 1, max_size=EPOCHS + 1).map(tuple),
    min_size=1,
    max_size=9,
)


class Arms:
    """Arms that have a curve each; notes what each call trained, and its score."""

    def __init__(self, scores: list[tuple[int, ...]]) -> None:
        self.scores = scores
        self.trained = [0] * len(scores)
        self.rounds: dict[int, dict[int, int]] = {}  # scores by arm, by epochs in all

    def train(self, arm: int, epochs: int) -> float:
        assert epochs > self.trained[arm], "it goes on from where it was"
        self.trained[arm] = epochs
        score = self.scores[arm][epochs]
        self.rounds.setdefault(epochs, {})[arm] = score
        return score


@given(curves, st.integers(1, 5))
def test_the_better_half_goes_on_at_the_price_of_a_round(
    drawn: list[tuple[int, ...]], epochs: int
) -> None:
    arms = Arms(drawn)
    left = halve(len(drawn), epochs, arms.train)
    rounds = list(arms.rounds.items())
    assert len(rounds) == (0 if len(drawn) == 1 else int(log2(len(drawn))))
    before, there = 0, set(range(len(drawn)))
    for total, scores in rounds:
        assert set(scores) == there
        assert (total - before) * len(scores) <= epochs * len(drawn), "no round costs more"
        order = sorted(scores, key=lambda arm: (-scores[arm], arm))
        before, there = total, set(order[: len(order) // 2])
    assert there == {left}
    assert sum(arms.trained) <= epochs * len(drawn) * ceil(log2(len(drawn) or 1))


@given(curves)
def test_without_epochs_the_best_initial_weights_win(drawn: list[tuple[int, ...]]) -> None:
    first = [curve[0] for curve in drawn]
    assert halve(len(drawn), 0, lambda arm, epochs: first[arm]) == first.index(max(first))


@given(curves, st.integers(0, 5), st.data())
def test_an_arm_that_is_always_ahead_wins(
    drawn: list[tuple[int, ...]], epochs: int, data: st.DataObject
) -> None:
    ahead = data.draw(st.integers(0, len(drawn) - 1))
    drawn[ahead] = (21,) * (EPOCHS + 1)
    assert halve(len(drawn), epochs, lambda arm, total: drawn[arm][total]) == ahead
