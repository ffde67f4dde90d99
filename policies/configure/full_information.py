"""What could be had if each attempt showed a run of every batch size."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Outcome, Start
from wattkeeper.policies.registry import PolicyConfig


class FullInformation(Configure):
    """See `FullInformationConfig`. Keeps sums of epochs, misses and runs by batch size."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, list[float]]] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The cheapest configuration by the runs that were seen; the default one at first."""
        profile, key = ctx.foresight(start), start.learning_key
        most_w = profile.max_power_w * profile.gpus
        seen = self._seen.setdefault(key, {})
        costs = {}
        for size, curve in profile.curves.items():
            epochs = _mean_epochs(seen[size], profile.max_epochs) if seen else math.inf
            if epochs < math.inf:
                epoch_cost, limit_w = curve.cheapest_epoch(ctx.objective, most_w)
                costs[epochs * epoch_cost, size] = limit_w
        if not costs:
            size = start.options.default_batch_size
            cheapest = profile.curves[size].cheapest_epoch(ctx.objective, most_w)
            return Configuration(size, cheapest[1])
        best = min(costs)
        return Configuration(best[1], costs[best])

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """See a run of every batch size."""
        start = outcome.start
        seen = self._seen.get(start.learning_key)
        if seen is None:
            return
        profile, rng = ctx.foresight(start), ctx.rng(start.job.group_id)
        for size, curve in profile.curves.items():
            epochs = curve.epochs[int(rng.integers(len(curve.epochs)))]
            reached = epochs <= profile.max_epochs
            sums = seen.setdefault(size, [0.0, 0.0, 0.0])
            sums[0] += epochs if reached else 0.0
            sums[1] += 0.0 if reached else 1.0
            sums[2] += 1.0

    def state_dict(self) -> dict[str, Any]:
        """What was seen, by group and GPUs."""
        return {
            key: [[size, *sums] for size, sums in seen.items()] for key, seen in self._seen.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._seen = {
            key: {size: list(sums) for size, *sums in saved} for key, saved in state.items()
        }


def _mean_epochs(sums: list[float], max_epochs: int) -> float:
    """Mean epochs until the target, with the misses before it."""
    epochs, misses, runs = sums
    if runs == misses:
        return math.inf
    return (epochs + misses * max_epochs) / (runs - misses)


class FullInformationConfig(PolicyConfig):
    """Knows costs of epochs, and sees a run of every batch size after each attempt.

    A bound on what learning can do: its first run has the default batch size, then it takes the
    cheapest by the runs that it saw, which are drawn from the profile. All of them count alike, so
    that it is no bound where epochs change over time. The power limit is set with it: `tune` is not
    asked.
    """

    draws: ClassVar[bool] = True
    needs_foresight: ClassVar[bool] = True
    sets_power: ClassVar[bool] = True
    kind: Literal["full-information"] = "full-information"
    policy = FullInformation
