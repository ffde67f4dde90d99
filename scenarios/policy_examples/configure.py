"""A batch size by an epsilon-greedy bandit.

Which batch size costs least is learnt from the attempts that ended: most of the time the one with
the least mean cost so far is repeated, and now and then another one is tried.
"""

import copy
from typing import Any, ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Outcome, Start
from wattkeeper.policies.registry import PolicyConfig


class EpsilonGreedy(Configure):
    """See `EpsilonGreedyConfig`."""

    def __init__(self, config: "EpsilonGreedyConfig") -> None:
        self.config = config
        # The state: for each group of jobs on one number and type of GPUs, number and sum of the
        # costs (J) by batch size. Keys are text, as in JSON.
        self.known: dict[str, dict[str, list[float]]] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Choose the batch size of an attempt that is about to start."""
        costs = self.known.setdefault(start.learning_key, {})
        sizes = start.options.batch_sizes
        untried = [size for size in sizes if str(size) not in costs]
        # A stream by name: the same draws in each run with this seed, whatever other policies draw.
        rng = ctx.rng("explore")
        if not costs:
            return Configuration(start.options.default_batch_size)
        if rng.random() < self.config.epsilon:
            among = untried or sizes
            return Configuration(among[int(rng.integers(len(among)))])
        means = {int(size): total / number for size, (number, total) in costs.items()}
        # A second argument, `cost_bound` (J), would end the attempt before it costs more.
        return Configuration(min(means, key=lambda size: (means[size], size)))

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn from an attempt that ended."""
        costs = self.known.get(outcome.start.learning_key)
        if costs is None:
            return  # of jobs that this policy never decided on
        # `work` is the share of the training that a parent from the zoo left, 1 without one: costs
        # are compared as if from scratch. What missed the target was in vain, and its job trains
        # again: with a `cost_bound` that it reached, or after all its epochs.
        cost = outcome.cost / outcome.start.work
        if not outcome.reached:
            cost *= self.config.penalty
        number, total = costs.get(str(outcome.batch_size), [0, 0.0])
        costs[str(outcome.batch_size)] = [number + 1, total + cost]

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as a copy: what was given away must not change any more."""
        return copy.deepcopy(self.known)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, which stays as it is."""
        self.known = copy.deepcopy(state)


class EpsilonGreedyConfig(PolicyConfig):
    """The batch size with the least mean cost so far, and at times another one.

    It draws a batch size with the probability `epsilon`: one that was never tried, as long as there
    is one.
    """

    kind: Literal["epsilon-greedy"] = "epsilon-greedy"
    policy = EpsilonGreedy
    draws: ClassVar[bool] = True  # it uses ctx.rng, so that seeds give other results
    epsilon: float = Field(default=0.2, ge=0, le=1)
    """Probability of trying another batch size."""
    penalty: float = Field(default=3.0, ge=1)
    """Factor on the cost of an attempt that misses its target, since its job has to train again; 1:
    a miss counts as a run that reached it."""
