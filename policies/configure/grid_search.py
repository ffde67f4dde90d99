"""Grid search over batch sizes and power limits."""

import math
from typing import Any, ClassVar, Literal

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Options, Outcome, Start
from wattkeeper.policies.registry import PolicyConfig


class _Search:
    """Grid of one group: configurations still to try, and the best one so far."""

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
        """The next configuration of the grid, or the best one."""
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
        """Remove the configuration from the grid, or its whole batch size if it failed."""
        search = self._searches.get(outcome.start.learning_key)
        if search is None:
            return
        tried = (outcome.batch_size, outcome.power_limit_w)
        if search.open and search.open[0] == tried:
            search.open.pop(0)
            if not outcome.reached:
                search.open = [pair for pair in search.open if pair[0] != outcome.batch_size]
        cost = outcome.cost / outcome.start.work
        if outcome.reached and cost < search.best_cost:
            search.best, search.best_cost = tried, cost

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
        """Restore the state that `state_dict` returned."""
        self._searches = {}
        for key, saved in state.items():
            search = _Search.__new__(_Search)
            search.open = [(b, limit) for b, limit in saved["open"]]
            search.best, search.best_cost = None, math.inf
            if saved["best"]:
                batch_size, limit, search.best_cost = saved["best"]
                search.best = (batch_size, limit)
            self._searches[key] = search


class GridSearchConfig(PolicyConfig):
    """One (batch size, power limit) per recurrence, then the cheapest that reached the target.

    The grid search with pruning of Zeus (NSDI '23), section 6.1: batch sizes from the default one
    downwards, then upwards, each from the highest power limit to the lowest; a batch size that
    misses the target is pruned. A job whose attempt failed, or that starts while another of its
    group runs, takes the best configuration so far. The power limit is set with it: `tune` is not
    asked.
    """

    sets_power: ClassVar[bool] = True
    kind: Literal["grid-search"] = "grid-search"
    policy = GridSearch
    plain = "grid search"
