"""What bandits over batch sizes share that know nothing but the cost of whole runs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from pydantic import PositiveFloat

from wattkeeper.policies.described import Described
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Options, Outcome, Start


class RunCosts:
    """Costs of the runs at a batch size, J.

    Attributes:
        runs: Their number.
        mean: Their mean.
        squares: Sum of the squared deviations from it.
        reached: Whether any of them reached the target.
    """

    def __init__(self) -> None:
        self.runs, self.mean, self.squares, self.reached = 0, 0.0, 0.0, False

    def add(self, cost: float, reached: bool) -> None:
        """Add a run (Welford's update)."""
        self.runs += 1
        step = cost - self.mean
        self.mean += step / self.runs
        self.squares += step * (cost - self.mean)
        self.reached = self.reached or reached

    def state_dict(self) -> list[Any]:
        """As JSON values."""
        return [self.runs, self.mean, self.squares, self.reached]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> RunCosts:
        """What `state_dict` returned."""
        costs = cls()
        costs.runs, costs.mean, costs.squares, costs.reached = state
        return costs


class GroupCosts:
    """What the jobs of a group have learnt on a number and type of GPUs.

    Attributes:
        sizes: The batch sizes, from the default one downwards, then upwards.
        costs: Costs of runs by batch size that ran.
        scale: Cost of the first run, J: what the group's costs are compared with; 0 before.
    """

    def __init__(self, options: Options) -> None:
        default = options.batch_sizes.index(options.default_batch_size)
        self.sizes = [*options.batch_sizes[default::-1], *options.batch_sizes[default + 1 :]]
        self.costs: dict[int, RunCosts] = {}
        self.scale = 0.0

    @property
    def best(self) -> int | None:
        """The batch size of least mean cost of those that ever reached the target."""
        reached = [size for size, costs in self.costs.items() if costs.reached]
        return min(reached, key=lambda size: self.costs[size].mean, default=None)

    @property
    def untried(self) -> list[int]:
        """Batch sizes that never ran, outwards from the default one."""
        return [size for size in self.sizes if size not in self.costs]

    def learn(self, outcome: Outcome) -> None:
        """Learn from an attempt.

        Costs are those of a training from scratch, of which a parent leaves `Start.work`. An
        attempt that missed the target counts with what it takes to do the job after all: its own
        cost and the least mean cost known, or as much again.
        """
        cost, best = outcome.cost / outcome.start.work, self.best
        if not outcome.reached:
            cost += cost if best is None else self.costs[best].mean
        self.scale = self.scale or cost
        self.costs.setdefault(outcome.batch_size, RunCosts()).add(cost, outcome.reached)

    def state_dict(self) -> dict[str, Any]:
        """As JSON values."""
        costs = [[size, costs.state_dict()] for size, costs in self.costs.items()]
        return {"sizes": self.sizes, "costs": costs, "scale": self.scale}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> GroupCosts:
        """What `state_dict` returned."""
        group = cls.__new__(cls)
        group.sizes, group.scale = list(state["sizes"]), state["scale"]
        group.costs = {size: RunCosts.from_state(saved) for size, saved in state["costs"]}
        return group


class CostBandit(Configure):
    """Chooses batch sizes by the costs of whole runs.

    The first job of a group takes the default batch size. One that failed, or that starts while
    another of its group runs, takes the cheapest batch size so far, as Zeus has it (NSDI '23,
    section 4.4); before one reached the target, those that never ran.
    """

    def __init__(self, config: CostBoundSettings) -> None:
        self.beta = config.beta
        self._groups: dict[str, GroupCosts] = {}

    @abstractmethod
    def choose(self, ctx: Context, start: Start, group: GroupCosts) -> int:
        """The batch size of a job whose group is known."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The batch size, with a bound on what the run may cost."""
        group = self._groups.setdefault(start.learning_key, GroupCosts(start.options))
        best = group.best
        if not group.costs:
            return Configuration(start.options.default_batch_size)
        if best is None:
            return Configuration((group.untried or group.sizes)[0])
        bound = self.beta * group.costs[best].mean * start.work
        if start.attempt > 1 or start.group_in_flight:
            return Configuration(best, cost_bound=math.inf if start.attempt > 1 else bound)
        return Configuration(self.choose(ctx, start, group), cost_bound=bound)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn the cost of an attempt."""
        group = self._groups.get(outcome.start.learning_key)
        if group is not None:
            group.learn(outcome)

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, by group and GPUs."""
        return {key: group.state_dict() for key, group in self._groups.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._groups = {key: GroupCosts.from_state(saved) for key, saved in state.items()}


class CostBoundSettings(Described):
    """Settings of bandits that know nothing but the cost of whole runs."""

    beta: PositiveFloat = 2.0
    """A run stops before it costs `beta` times the least mean cost, unless it repeats a failed one
    (Zeus, NSDI '23, section 4.4)."""
