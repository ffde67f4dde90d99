"""Every configuration once, then the best of them."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from wattkeeper.policies.protocols import Configuration, Configure, Context, Options, Outcome, Start
from wattkeeper.policies.registry import Point, PolicyConfig


class GridSearchConfig(PolicyConfig):
    """One (batch size, power limit) a recurrence, then the cheapest that reached the target.

    The grid search with pruning of Zeus (NSDI '23), section 6.1: batch sizes from the default one
    downwards, then upwards, each from the highest power limit to the lowest; a batch size that
    fails is dropped. A job whose attempt failed, or that starts while another of its group runs,
    takes the best configuration found so far. It sets the power limit itself: `tune` is not asked.
    """

    point: ClassVar[Point] = "configure"
    sets_power: ClassVar[bool] = True
    kind: Literal["grid-search"] = "grid-search"

    def build(self) -> GridSearch:
        """A new policy."""
        return GridSearch()


class _Search:
    """The grid of one group: what is still to be tried, and the best so far."""

    def __init__(self, options: Options) -> None:
        sizes = options.batch_sizes
        default = sizes.index(options.default_batch_size)
        outwards = sizes[default::-1] + sizes[default + 1 :]
        self.open = [(b, limit) for b in outwards for limit in reversed(options.limits(b))]
        self.best: tuple[int, float] | None = None
        self.best_cost = math.inf


class GridSearch(Configure):
    """See `GridSearchConfig`."""

    def __init__(self) -> None:
        self._searches: dict[str, _Search] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The next configuration of the grid, or the best."""
        key = start.learning_key
        if key not in self._searches:
            self._searches[key] = _Search(start.options)
        search = self._searches[key]
        if search.open and start.attempt == 1 and not start.group_in_flight:
            return Configuration(*search.open[0])
        if search.best:
            return Configuration(*search.best)
        if search.open:
            return Configuration(*search.open[0])
        default = start.options.default_batch_size
        return Configuration(default, start.options.limits(default)[-1])

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Cross the configuration off, or its whole batch size if it failed."""
        search = self._searches.get(outcome.start.learning_key)
        if search is None:
            return
        tried = (outcome.batch_size, outcome.power_limit_w)
        if search.open and search.open[0] == tried:
            search.open.pop(0)
            if not outcome.reached:
                search.open = [x for x in search.open if x[0] != outcome.batch_size]
        if outcome.reached and outcome.cost < search.best_cost:
            search.best, search.best_cost = tried, outcome.cost

    def state_dict(self) -> dict[str, Any]:
        """Open configurations and the best one by group."""
        return {
            key: {
                "open": list(search.open),
                "best": search.best and [*search.best, search.best_cost],
            }
            for key, search in self._searches.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._searches = {}
        for key, kept in state.items():
            search = _Search.__new__(_Search)
            search.open = [(b, limit) for b, limit in kept["open"]]
            search.best, search.best_cost = None, math.inf
            if kept["best"]:
                batch_size, limit, search.best_cost = kept["best"]
                search.best = (batch_size, limit)
            self._searches[key] = search
