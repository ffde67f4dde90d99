"""Zeus's batch size optimizer."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, ClassVar, Literal

from numpy.random import Generator
from pydantic import PositiveFloat, PositiveInt

from wattkeeper.policies.learning.bandit import GaussianThompson, Rewards
from wattkeeper.policies.learning.exploration import PruningExploration
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Options, Outcome, Start
from wattkeeper.policies.registry import PolicyConfig

NEVER_RAN = 100
"""Cost, in cost bounds, of a sequential attempt whose cost bound excluded even the first epoch."""


class _Group:
    """Learnt state of the jobs of one group on one GPU type."""

    def __init__(self, options: Options, window: int | None) -> None:
        self.exploration = PruningExploration(options.batch_sizes, options.default_batch_size)
        self.bandit: GaussianThompson | None = None
        self.rewards = defaultdict[int, Rewards](lambda: Rewards(window))
        self.spent = defaultdict[str, float](float)
        self.min_cost = math.inf
        self.best = options.default_batch_size

    def choose(self, rng: Generator) -> int:
        if self.bandit is None:
            proposed = self.exploration.propose()
            if proposed is not None:
                return proposed
            self.bandit = GaussianThompson(self._arms(), self.rewards)
        return self.bandit.draw(rng)

    def learn(self, batch_size: int, cost: float, reached: bool) -> None:
        self.rewards[batch_size].add(-cost)
        if self.bandit is None:
            self.exploration.report(batch_size, cost, reached)
        else:
            self.bandit.learn(batch_size, self.rewards[batch_size])

    def _arms(self) -> list[int]:
        return [arm for arm in self.exploration.survivors if arm in self.rewards]

    def state_dict(self) -> dict[str, Any]:
        return {
            "exploration": self.exploration.state_dict(),
            "bandit": self.bandit is not None,
            "rewards": [[arm, rewards.state_dict()] for arm, rewards in self.rewards.items()],
            "spent": dict(self.spent),
            "min_cost": None if math.isinf(self.min_cost) else self.min_cost,
            "best": self.best,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], window: int | None) -> _Group:
        group = cls.__new__(cls)
        group.exploration = PruningExploration.from_state(state["exploration"])
        group.rewards = defaultdict(lambda: Rewards(window))
        for arm, saved in state["rewards"]:
            group.rewards[arm].load_state_dict(saved)
        group.bandit = GaussianThompson(group._arms(), group.rewards) if state["bandit"] else None
        group.spent = defaultdict(float, state["spent"])
        group.min_cost = math.inf if state["min_cost"] is None else state["min_cost"]
        group.best = state["best"]
        return group


class Zeus(Configure):
    """See `ZeusConfig`."""

    def __init__(self, config: ZeusConfig) -> None:
        self.config = config
        self._groups: dict[str, _Group] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Explore or exploit; while another job of the group runs, take the best so far."""
        key = start.learning_key
        if key not in self._groups:
            self._groups[key] = _Group(start.options, self.config.window)
        group = self._groups[key]
        if start.group_in_flight:
            batch_size = group.best
        else:
            batch_size = group.choose(ctx.rng(start.job.group_id))
        return Configuration(batch_size, cost_bound=self.config.beta * group.min_cost * start.work)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn the cost of the attempt, over the share of the training that it was."""
        group = self._groups.get(outcome.start.learning_key)
        if group is None:
            return
        if outcome.epochs == 0 and not self.config.overlapping:
            group.learn(outcome.batch_size, NEVER_RAN * self.config.beta * group.min_cost, False)
            return
        cost = outcome.cost / outcome.start.work
        group.learn(outcome.batch_size, cost, outcome.reached)
        paid = cost
        if not self.config.overlapping:
            job_id = outcome.start.job.job_id
            paid += group.spent.pop(job_id, 0.0)
            if not outcome.reached:
                group.spent[job_id] = paid
        if outcome.reached and paid < group.min_cost:
            group.min_cost, group.best = paid, outcome.batch_size

    def state_dict(self) -> dict[str, Any]:
        """Learnt state by group."""
        return {key: group.state_dict() for key, group in self._groups.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._groups = {
            key: _Group.from_state(saved, self.config.window) for key, saved in state.items()
        }


class ZeusConfig(PolicyConfig):
    """Pruning exploration, then Gaussian Thompson sampling over batch sizes (Zeus, NSDI '23).

    Decides exactly as the published code, including its weaknesses: nothing is explored while
    another job of the group runs, and a single noisy early stop can prune the optimum.
    """

    draws: ClassVar[bool] = True
    kind: Literal["zeus"] = "zeus"
    policy = Zeus
    plain = "Zeus"
    beta: PositiveFloat = 2.0
    """An attempt stops before it costs `beta` times the cheapest recurrence (section 4.4)."""
    window: PositiveInt | None = None
    """Number of an arm's last observations that count; by default all (section 4.4). A small window
    freezes arms whose last rewards are equal."""
    overlapping: bool = False
    """Account as the published simulator of overlapping jobs does: the bound follows from the
    cheapest attempt, instead of the cheapest recurrence with its failed attempts, and an attempt
    that never ran costs nothing."""
