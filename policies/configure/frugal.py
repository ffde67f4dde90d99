"""Batch size and power limit at a small regret: slices, early stops and one step of lookahead."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from wattkeeper.policies.learning.epoch_belief import EpochBelief
from wattkeeper.policies.learning.epoch_costs import SHARE, EpochCosts
from wattkeeper.policies.learning.lookahead import Lookahead, Trial
from wattkeeper.policies.moments import Moment
from wattkeeper.policies.profile import epochs_left
from wattkeeper.policies.protocols import (
    Configuration,
    Configure,
    Context,
    Knobs,
    Options,
    Outcome,
    Running,
    Slice,
    Start,
    Tune,
)
from wattkeeper.policies.registry import Point, PolicyConfig

HORIZON: Final = 40.0
"""So many recurrences are thought to follow at least, where nobody says how many."""
ALLOWANCE: Final = 0.3
LASTING_ALLOWANCE: Final = 0.03
"""Shares of what the default would have cost that explorations may cost: of one recurrence, spread
over all so far, and of all."""


class _Spending:
    """What a group spent on a GPU type.

    Attributes:
        paid: Cost of all attempts, J.
        default: What the default batch size would have cost, as believed, J.
        recurrences: Number of jobs.
    """

    def __init__(self, paid: float = 0.0, default: float = 0.0, recurrences: int = 0) -> None:
        self.paid, self.default, self.recurrences = paid, default, recurrences

    @property
    def allowed(self) -> float:
        """What explorations under way and the next one may cost beyond the incumbent, J."""
        share = ALLOWANCE / max(1, self.recurrences) + LASTING_ALLOWANCE
        return (1 + share) * self.default - self.paid

    def state_dict(self) -> list[float]:
        """As JSON values."""
        return [self.paid, self.default, self.recurrences]


class _Group:
    """What a group has learnt on all GPU types.

    Attributes:
        belief: On epochs.
        costs: Of epochs, by key of the GPU type.
        spending: Likewise.
        under_way: By job: its key, its batch size, and its expected excess, J.
    """

    def __init__(self, default: int) -> None:
        self.belief = EpochBelief(default)
        self.costs: dict[str, EpochCosts] = {}
        self.spending: dict[str, _Spending] = {}
        self.under_way: dict[str, tuple[str, int, float]] = {}

    def costs_of(self, options: Options) -> EpochCosts:
        """What was learnt on a GPU type."""
        if options.key not in self.costs:
            self.costs[options.key] = EpochCosts(options.max_power_w * options.gpus)
            self.spending[options.key] = _Spending()
        return self.costs[options.key]

    def look_ahead(self, options: Options, eta: float) -> Lookahead:
        """What is believed, once the runs under way have ended."""
        own = self.costs_of(options)
        others = [costs for key, costs in self.costs.items() if key != options.key]
        posterior = self.belief.posterior(options.batch_sizes)
        for _, batch_size, _ in self.under_way.values():
            if batch_size in options.batch_sizes:
                posterior = posterior.expect(options.batch_sizes.index(batch_size))
        log_costs, variances = own.expect(options, others, eta)
        return Lookahead(posterior, log_costs, variances, options.max_epochs)

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as JSON values."""
        return {
            "belief": self.belief.state_dict(),
            "costs": {key: costs.state_dict() for key, costs in self.costs.items()},
            "spending": {key: spent.state_dict() for key, spent in self.spending.items()},
            "under_way": {job: list(values) for job, values in self.under_way.items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> _Group:
        """What `state_dict` returned."""
        group = cls(1)
        group.belief = EpochBelief.from_state(state["belief"])
        group.costs = {key: EpochCosts.from_state(each) for key, each in state["costs"].items()}
        group.spending = {key: _Spending(*each) for key, each in state["spending"].items()}
        group.under_way = {job: tuple(values) for job, values in state["under_way"].items()}
        return group


class Frugal(Configure):
    """See `FrugalConfig`."""

    def __init__(self, config: FrugalConfig) -> None:
        self._config = config
        self._groups: dict[str, _Group] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The batch size that costs least, or one that is worth trying, with a bound."""
        options, job = start.options, start.job
        group = self._groups.setdefault(job.group_id, _Group(options.default_batch_size))
        group.under_way.pop(job.job_id, None)
        while len(group.under_way) > start.group_in_flight:  # lost: they never ended
            del group.under_way[next(iter(group.under_way))]
        trial, ahead = self._choose(ctx, group, start)
        batch_size = options.batch_sizes[trial.choice]
        bound = math.inf
        if ahead is not None and trial.choice != ahead.incumbent:
            epochs = epochs_left(trial.epochs, start.work) + 0.5
            if self._eta(ctx, start) != ctx.objective.eta:  # a bound counts no waiting of others
                ahead = group.look_ahead(options, ctx.objective.eta)
            bound = (1 + SHARE) * epochs * float(ahead.epoch_costs[trial.choice])
        group.under_way[job.job_id] = options.key, batch_size, trial.excess
        return Configuration(batch_size, cost_bound=bound)

    def _choose(self, ctx: Context, group: _Group, start: Start) -> tuple[Trial, Lookahead | None]:
        options = start.options
        default = options.batch_sizes.index(options.default_batch_size)
        if group.belief.is_empty:
            return Trial(default, options.max_epochs, 0.0, 0.0), None
        ahead = group.look_ahead(options, self._eta(ctx, start))
        if ahead.incumbent is None:
            stops = [group.belief.stops(batch_size) for batch_size in options.batch_sizes]
            least_tried = np.where(np.array(stops) == min(stops), ahead.costs, np.inf)
            return Trial(int(least_tried.argmin()), options.max_epochs, 0.0, 0.0), None
        spending = group.spending[options.key]
        horizon = self._horizon(spending.recurrences)
        best = ahead.exploit(horizon)
        if start.attempt > 1 or not group.costs[options.key].points:
            return best, ahead
        excess = math.fsum(
            excess for key, _, excess in group.under_way.values() if key == options.key
        )
        tried = {size for _, size, _ in group.under_way.values()}
        for index in ahead.candidates():
            if options.batch_sizes[index] in tried:
                continue
            trial = ahead.explore(index, horizon)
            if trial.score < best.score and trial.excess + excess <= spending.allowed:
                best = trial
        return best, ahead

    def _eta(self, ctx: Context, start: Start) -> float:
        """Weight of energy, where time counts more the more jobs wait."""
        eta, others = ctx.objective.eta, self._config.waiting * start.waiting
        return eta / (eta + (1 - eta) * (1 + others)) if others else eta

    def _horizon(self, done: int) -> float:
        if self._config.recurrences is not None:
            return float(max(1, self._config.recurrences - done))
        return max(HORIZON, float(done))

    def tuner(self) -> Tune:
        """The policy at `Tune`, with the same state."""
        return _FrugalTune(self)

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """The cheapest limit, once slices have measured the limits; then other batch sizes."""
        start, eta = running.start, self._eta(ctx, running.start)
        options, size = start.options, running.configuration.batch_size
        group = self._groups.setdefault(start.job.group_id, _Group(options.default_batch_size))
        costs = group.costs_of(options)
        if running.moment == "reached":
            if running.measured and running.measured[-1].batch_size != size:
                costs.add(running.measured[-1])
            others = self._config.measure == "all"
            return self._measure_other(ctx, costs, running) if others else None
        if running.measured:
            costs.add(running.measured[-1])
        epochs = group.belief.typical_epochs(size)
        limit_w = costs.next_own(size, options.limits(size), running.measured, epochs, eta)
        if limit_w is not None:
            return Knobs(slice=Slice(limit_w))
        if running.measured:
            costs.end_own(size, options.limits(size), eta)
        return Knobs(costs.cheapest_limit(size, eta))

    def _measure_other(self, ctx: Context, costs: EpochCosts, running: Running) -> Knobs | None:
        """A slice of another batch size, as long as these are a small part of the run."""
        options, size = running.start.options, running.configuration.batch_size
        max_power_w = options.max_power_w * options.gpus
        cost, progress = ctx.objective.cost, running.progress
        others = [measured for measured in running.measured if measured.batch_size != size]
        spent = math.fsum(cost(each.spent_j, each.spent_s, max_power_w) for each in others)
        paid = cost(progress.energy_j, progress.time_s, max_power_w) / running.start.job.time_scale
        budget = SHARE * (paid - spent) - spent
        probe = costs.next_other(options, size, budget, self._eta(ctx, running.start))
        return None if probe is None else Knobs(slice=probe)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn from an attempt that ended, as if it had started from scratch."""
        start, options = outcome.start, outcome.start.options
        group = self._groups.get(start.job.group_id)
        if group is None:
            return
        known = group.under_way.pop(start.job.job_id, None)
        group.belief.add(outcome.batch_size, outcome.epochs / start.work, outcome.reached)
        group.costs_of(options)
        spending = group.spending[options.key]
        ahead = group.look_ahead(options, ctx.objective.eta)
        if known is None or known[2]:
            spending.paid += outcome.cost / start.work
        elif outcome.reached:
            spending.paid += float(ahead.costs[options.batch_sizes.index(outcome.batch_size)])
        if start.attempt == 1:
            spending.recurrences += 1
            spending.default += float(
                ahead.costs[options.batch_sizes.index(options.default_batch_size)]
            )

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, by group."""
        return {name: group.state_dict() for name, group in self._groups.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._groups = {name: _Group.from_state(saved) for name, saved in state.items()}


class _FrugalTune(Tune):
    """`Frugal` at `Tune`."""

    def __init__(self, policy: Frugal) -> None:
        self._policy = policy

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """See `Frugal`."""
        return self._policy.tune(ctx, running)


class FrugalConfig(PolicyConfig):
    """Learns batch size and power limit of recurring jobs at a small part of Zeus's regret.

    The cost of a run is its epochs times the cost of an epoch. Epochs are learnt from whole runs,
    by a belief that is smooth over batch sizes and shared by GPU types; costs of epochs by slices,
    some seconds of training each: of the run's own power limits, and once it reached its target of
    other batch sizes. A batch size is tried where what its result is worth over the recurrences to
    come exceeds what it costs, is stopped as soon as that pays, and never costs more than a share
    of what the default would have. It draws nothing at random.
    """

    point: ClassVar[Point] = "configure"
    kind: Literal["frugal"] = "frugal"
    policy = Frugal
    tunes: ClassVar[bool] = True
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "reached")
    recurrences: PositiveInt | None = None
    """How often each group recurs on a GPU type; if absent, as often again as it did, and 40 times
    at least."""
    measure: Literal["all", "own"] = "all"
    """Whether slices measure other batch sizes, too, or only that of the run."""

    waiting: NonNegativeFloat = 0.0
    """Weight of the time that other jobs wait. With 1, a second of their waiting costs as much as
    one of the job's own time: where n jobs wait for c GPUs, each of them is taken to wait 1/c
    seconds longer for each second on a GPU, so that the job's time counts 1 + n/c times."""

    @property
    def slices(self) -> bool:
        """Always."""
        return True

    @property
    def sees_queue(self) -> bool:
        """Whether the waiting of others has a weight."""
        return self.waiting > 0
