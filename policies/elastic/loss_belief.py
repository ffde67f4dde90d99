"""What a job believes about the time between its losses, of which it saw few or none.

Losses that come at one moment cost one pause, so moments count, not nodes. They are taken to come
at a constant rate. Beforehand its logarithm is uniform: each order of magnitude is equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

SHORTEST_S: Final = 60.0
"""The shortest mean time between losses that is thought possible, s."""

POINTS: Final = 96
"""Mean times that are told apart, equally spaced in their logarithms."""

LEAST: Final = 1e-9
"""Mean times that are less likely are left out."""


class LossBelief(NamedTuple):
    """Mean times between moments with losses.

    Attributes:
        means_s: The times, s, ascending.
        shares: The probability of each.
    """

    means_s: tuple[float, ...]
    shares: tuple[float, ...]

    def expect(self, values: Sequence[float]) -> float:
        """The mean of something that is known for each of the times."""
        return math.fsum(share * each for share, each in zip(self.shares, values, strict=True))


def believe(losses: int, observed_s: float, longest_s: float) -> LossBelief:
    """The belief after so many moments with losses in a time, s.

    Args:
        losses: Moments with losses.
        observed_s: The time, s.
        longest_s: The longest mean time between losses that is thought possible, s.
    """
    spread = max(1.0, math.log(longest_s / SHORTEST_S))
    means_s = [SHORTEST_S * math.exp(spread * n / (POINTS - 1)) for n in range(POINTS)]
    logs = [-losses * math.log(mean_s) - observed_s / mean_s for mean_s in means_s]
    highest = max(logs)
    weights = [math.exp(each - highest) for each in logs]
    total = math.fsum(weights)
    kept = [
        (mean_s, weight / total)
        for mean_s, weight in zip(means_s, weights, strict=True)
        if weight >= LEAST * total
    ]
    return LossBelief(tuple([mean_s for mean_s, _ in kept]), tuple([share for _, share in kept]))
