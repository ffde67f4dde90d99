"""What a policy of `Replan` saw of one job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from wattkeeper.policies.points.replan import ElasticTask, ElasticView

SHORTEST_S: Final = 60.0
"""The shortest mean time between losses that is thought possible, s."""

POINTS: Final = 96
"""Mean times that are told apart, equally spaced in their logarithms."""

LEAST: Final = 1e-9
"""Mean times that are less likely are left out."""


@dataclass
class JobHistory:
    """The losses of one job, and how it is resilient.

    Attributes:
        longest_s: The longest mean time between its losses that is thought possible, s.
        nodes: The nodes that it held last.
        updated_s: Until when they are counted, s.
        age_s: Time since it first formed, s.
        node_s: Its nodes, summed over that time, s.
        losses: Moments at which it lost nodes.
        announced: Of them, those that were announced early enough to write a checkpoint.
        mechanism: How it is resilient; empty before its first shape.
        changes_until_s: When the pause ends in which that changes, s.
    """

    longest_s: float
    nodes: int
    updated_s: float
    age_s: float = 0.0
    node_s: float = 0.0
    losses: int = 0
    announced: int = 0
    mechanism: str = ""
    changes_until_s: float = 0.0

    def see(self, view: ElasticView, now_s: float) -> None:
        """Count what happened to the job until now."""
        span_s = max(0.0, now_s - self.updated_s)
        self.age_s += span_s
        self.node_s += self.nodes * span_s
        self.updated_s = now_s
        if view.moment == "lost":
            self.losses += 1
            self.announced += view.announced
        if view.moment != "gained":
            self.nodes = view.nodes

    def mean_nodes(self, task: ElasticTask) -> int:
        """The nodes that it held on average; before, the middle of what it may hold."""
        if not self.age_s:
            return (task.least_nodes + task.most_nodes) // 2
        return round(self.node_s / self.age_s)

    @property
    def announced_share(self) -> float:
        """Share of the losses that are announced, with one beforehand that is not."""
        return self.announced / (self.losses + 1)

    @property
    def belief(self) -> LossBelief:
        """What it says about the time between losses."""
        return believe(self.losses, self.age_s, self.longest_s)

    def spans_s(self) -> list[float]:
        """For how long spare nodes would be an advantage, by mean time between losses, s.

        Until a loss, at which they are taken up anyhow, or until the job ends, which is to last as
        long again as it has lasted.
        """
        if not self.age_s:
            return [0.0] * len(self.belief.means_s)
        return [1 / (1 / mean_s + 1 / self.age_s) for mean_s in self.belief.means_s]

    def state_dict(self) -> dict[str, Any]:
        """The history as JSON values, by the names of its attributes."""
        return asdict(self)


class LossBelief(NamedTuple):
    """Mean times between moments with losses.

    Losses that come at one moment cost one pause, so moments count, not nodes. They are taken to
    come at a constant rate. Beforehand its logarithm is uniform: each order of magnitude is equally
    likely.

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
