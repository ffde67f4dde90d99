"""Batch size and power limit at a small regret: slices, early stops and one step of lookahead."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt
from typing_extensions import override

from wattkeeper.policies.learning.epoch_costs import SHARE, EpochCosts
from wattkeeper.policies.learning.group import LearntGroup, UnderWay
from wattkeeper.policies.learning.lookahead import Lookahead, Trial
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import (
    Configuration,
    Knobs,
    Options,
    Outcome,
    Running,
    Slice,
    Start,
)
from wattkeeper.policies.profile import epochs_left
from wattkeeper.policies.registry import PolicyConfig

HORIZON: Final = 40.0
"""So many recurrences are thought to follow at least, where nobody says how many."""
MOST_SPARE: Final = 0.4
"""A trial may cost `SHARE` more than its epochs, for slices, but less than another epoch."""


class Frugal(Configure):
    """See `FrugalConfig`."""

    def __init__(self, config: FrugalConfig) -> None:
        self._config = config
        self._groups: dict[str, LearntGroup] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The batch size that costs least, or one that is worth trying, with a bound."""
        options, job = start.options, start.job
        group = self._groups.setdefault(job.group_id, LearntGroup(options.default_batch_size))
        before = group.under_way.pop(job.job_id, None)
        while len(group.under_way) > start.group_in_flight:  # left by a session for good
            del group.under_way[next(iter(group.under_way))]
        plain = ahead = group.look_ahead(options, ctx.objective.eta)
        if start.waiting:
            ahead = group.look_ahead(options, self._eta(ctx, start))
        trial = self._find_trial(group, start, ahead, plain)
        if trial is None:
            choice, bound, excess = self._find_cheapest(group, options, ahead), math.inf, 0.0
        else:
            choice, excess = trial.choice, plain.excess(trial)
            epochs = epochs_left(trial.epochs, start.work) + 0.5
            bound = (epochs + min(SHARE * epochs, MOST_SPARE)) * float(plain.epoch_costs[choice])
        is_first = start.attempt == 1 or (before is not None and before.is_first)
        group.under_way[job.job_id] = UnderWay(
            options.key, options.batch_sizes[choice], trial is not None, excess, is_first
        )
        return Configuration(options.batch_sizes[choice], cost_bound=bound)

    @staticmethod
    def _find_cheapest(group: LearntGroup, options: Options, ahead: Lookahead) -> int:
        """The incumbent; before there is one, the batch size that failed least often."""
        if group.belief.is_empty:
            return options.batch_sizes.index(options.default_batch_size)
        if ahead.incumbent is not None:
            return ahead.incumbent
        stops = np.array([group.belief.stops(batch_size) for batch_size in options.batch_sizes])
        return int(np.where(stops == stops.min(), ahead.costs, np.inf).argmin())

    def _find_trial(
        self, group: LearntGroup, start: Start, ahead: Lookahead, plain: Lookahead
    ) -> Trial | None:
        """The trial that is worth most; None: nothing is worth more than a run of the incumbent.

        Args:
            group: What was learnt.
            start: The attempt.
            ahead: What is believed.
            plain: The same, where the waiting of others costs nothing: what runs are charged.
        """
        options, own = start.options, group.on(start.options)
        if ahead.incumbent is None or start.attempt > 1 or not own.costs.points:
            return None
        horizon = self._horizon(own.recurrences)
        runs = group.under_way.values()
        tried = {run.batch_size for run in runs}
        spare = own.allowed - math.fsum(run.excess for run in runs if run.key == options.key)
        best, found = ahead.exploit(horizon), None
        for index in ahead.candidates():
            if options.batch_sizes[index] in tried:
                continue
            trial = ahead.explore(index, horizon)
            if trial.score < best.score and plain.excess(trial) <= spare:
                best = found = trial
        return found

    def _eta(self, ctx: Context, start: Start) -> float:
        """Weight of energy, where time counts more the more jobs wait for its GPUs."""
        eta, others = ctx.objective.eta, self._config.waiting * start.waiting * start.options.gpus
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
        group = self._groups.setdefault(start.job.group_id, LearntGroup(options.default_batch_size))
        costs = group.on(options).costs
        if running.moment == "reached":
            if running.measured and running.measured[-1].batch_size != size:
                costs.add(running.measured[-1])
            others = self._config.measure == "all"
            return self._measure_other(ctx, costs, running) if others else None
        if running.measured:
            costs.add(running.measured[-1])
        epochs = start.work * group.belief.typical_epochs(size)
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
        """Learn from an attempt that ended, as if it had started from scratch.

        A run counts with what it was expected to cost, so that bad luck forbids no trial; before
        any run at its batch size reached the target, with what it did cost.
        """
        start, options, size = outcome.start, outcome.start.options, outcome.batch_size
        group = self._groups.get(start.job.group_id)
        if group is None or not size:  # of another job of the group, without a configuration
            return
        run = group.under_way.pop(start.job.job_id, None)
        had_reached = group.belief.has_reached(size)
        group.belief.add(size, outcome.epochs / start.work, outcome.reached)
        ahead, learnt = group.look_ahead(options, ctx.objective.eta), group.on(options)
        if run is not None and run.is_trial:
            learnt.paid += run.excess
        elif not (outcome.reached or had_reached):
            learnt.paid += outcome.cost / start.work
        if outcome.reached:
            assert ahead.incumbent is not None
            is_trial = run is not None and run.is_trial
            index = ahead.incumbent if is_trial else options.batch_sizes.index(size)
            learnt.paid += float(ahead.costs[index])
        if start.attempt == 1 if run is None else run.is_first:
            learnt.recurrences += 1
            learnt.default += float(
                ahead.costs[options.batch_sizes.index(options.default_batch_size)]
            )

    def on_loss(self, ctx: Context, start: Start) -> None:
        """Expect no result of a run that was lost."""
        group = self._groups.get(start.job.group_id)
        if group is not None:
            group.under_way.pop(start.job.job_id, None)

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, by group."""
        return {name: group.state_dict() for name, group in self._groups.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._groups = {name: LearntGroup.from_state(saved) for name, saved in state.items()}


class _FrugalTune(Tune):
    """`Frugal` at `Tune`."""

    def __init__(self, policy: Frugal) -> None:
        self._policy = policy

    @override
    def tune(self, ctx: Context, running: Running) -> Knobs | None:
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

    kind: Literal["frugal"] = "frugal"
    policy = Frugal
    plain = "frugal"
    tunes: ClassVar[bool] = True
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "reached")
    recurrences: PositiveInt | None = None
    """How often each group recurs on a GPU type; if absent, as often again as it did, and 40 times
    at least."""
    measure: Literal["all", "own"] = "all"
    """Whether slices measure other batch sizes, too, or only that of the run."""

    waiting: NonNegativeFloat = 0.0
    """Weight of the time that other jobs wait. With 1, a second of their waiting costs as much as
    one of the job's own time: where n jobs wait for c GPUs, each of them is taken to wait g/c
    seconds longer for each second that a job holds g GPUs, whose time then counts 1 + n g/c
    times."""

    @property
    def slices(self) -> bool:
        """Always."""
        return True

    @property
    def sees_queue(self) -> bool:
        """Whether the waiting of others has a weight."""
        return self.waiting > 0
