"""What a group of recurring jobs has learnt and spent, and which of its runs are under way."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from wattkeeper.policies.learning.epoch_belief import EpochBelief
from wattkeeper.policies.learning.epoch_costs import EpochCosts
from wattkeeper.policies.learning.lookahead import Lookahead
from wattkeeper.policies.points.views import Options

ALLOWANCE: Final = 0.3
LASTING_ALLOWANCE: Final = 0.03
"""Shares of what the default would have cost that explorations may cost: of one recurrence, spread
over all so far, and of all."""


class UnderWay(NamedTuple):
    """A run under way.

    Attributes:
        key: Of its GPUs.
        batch_size: Its batch size.
        is_trial: Whether it runs for what it teaches, not for what it costs.
        excess: What it costs beyond the incumbent, in expectation, J.
        is_first: Whether it is the first run of its job.
    """

    key: str
    batch_size: int
    is_trial: bool
    excess: float
    is_first: bool


class OnGpus:
    """What a group has learnt, and spent, on a number and type of GPUs.

    Attributes:
        costs: Of epochs.
        paid: What runs cost, as expected, J.
        default: What the default batch size would have cost, as believed, J.
        recurrences: Number of jobs.
    """

    def __init__(self, max_power_w: float) -> None:
        self.costs = EpochCosts(max_power_w)
        self.paid = self.default = 0.0
        self.recurrences = 0

    @property
    def allowed(self) -> float:
        """What trials under way and the next one may cost beyond the incumbent, J."""
        share = ALLOWANCE / max(1, self.recurrences) + LASTING_ALLOWANCE
        return (1 + share) * self.default - self.paid

    def state_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return self.costs.state_dict() | {
            "paid": self.paid,
            "default": self.default,
            "recurrences": self.recurrences,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> OnGpus:
        """What `state_dict` returned."""
        learnt = cls.__new__(cls)
        learnt.costs = EpochCosts.from_state(state)
        learnt.paid, learnt.default = state["paid"], state["default"]
        learnt.recurrences = state["recurrences"]
        return learnt


class LearntGroup:
    """What a group has learnt.

    Attributes:
        belief: On epochs, of all GPU types.
        learnt: By number and type of GPUs.
        under_way: By job.
    """

    def __init__(self, default: int) -> None:
        self.belief = EpochBelief(default)
        self.learnt: dict[str, OnGpus] = {}
        self.under_way: dict[str, UnderWay] = {}

    def on(self, options: Options) -> OnGpus:
        """What was learnt on the GPUs of a job."""
        if options.key not in self.learnt:
            self.learnt[options.key] = OnGpus(options.max_power_w * options.gpus)
        return self.learnt[options.key]

    def look_ahead(self, options: Options, eta: float) -> Lookahead:
        """What is believed, once the runs under way have ended."""
        own = self.on(options).costs
        others = [learnt.costs for key, learnt in self.learnt.items() if key != options.key]
        posterior = self.belief.posterior(options.batch_sizes)
        for run in self.under_way.values():
            if run.batch_size in options.batch_sizes:
                posterior = posterior.expect(options.batch_sizes.index(run.batch_size))
        log_costs, variances = own.expect(options, others, eta)
        return Lookahead(posterior, log_costs, variances, options.max_epochs)

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as JSON values whose order survives sorted keys."""
        return {
            "belief": self.belief.state_dict(),
            "learnt": [[key, learnt.state_dict()] for key, learnt in self.learnt.items()],
            "under_way": [[job_id, *run] for job_id, run in self.under_way.items()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> LearntGroup:
        """What `state_dict` returned."""
        group = cls(1)
        group.belief = EpochBelief.from_state(state["belief"])
        group.learnt = {key: OnGpus.from_state(each) for key, each in state["learnt"]}
        group.under_way = {job_id: UnderWay(*run) for job_id, *run in state["under_way"]}
        return group
