"""Successive halving: finds a good one of several arms by trying them for ever longer.

Non-stochastic best-arm identification (Jamieson and Talwalkar, AISTATS '16): all arms are trained
for a while, the better half goes on, and each round spends what the first one did.
"""

from __future__ import annotations

from collections.abc import Callable


def halve(arms: int, epochs: int, train: Callable[[int, int], float]) -> int:
    """The arm that successive halving leaves.

    Args:
        arms: Number of arms, at least 1.
        epochs: Epochs of each arm in the first round; an arm that goes on gets twice as many in the
            next one. With 0, arms are compared as they are, once.
        train: Trains the arm of an index up to so many epochs in all, and returns its score; the
            larger, the better. Equal ones go to the first arm.
    """
    left = list(range(arms))
    total = more = epochs
    while len(left) > 1:
        scores = {arm: train(arm, total) for arm in left}
        best = sorted(left, key=lambda arm: -scores[arm])
        left = sorted(best[: len(left) // 2 if epochs else 1])
        more *= 2
        total += more
    return left[0]
