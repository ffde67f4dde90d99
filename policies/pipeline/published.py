"""The frontier of plans that the published Perseus computes (SOSP '24, sections 4 and 5).

The formulas are those of the published solver, with its flaws: fitted costs, and the slowest
point that fits a whole number of units. `wattkeeper.policies.pipeline.exact` has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.execution import (
    PipelineIteration,
    check_stages,
    execute_points,
    fastest_points,
    last_end,
    plan_of_points,
    waiting_power_w,
)
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile, check_profile
from wattkeeper.policies.pipeline.published_costs import (
    UNLIMITED_UJ,
    CostModel,
    bounds_uj,
    cost_models,
)
from wattkeeper.policies.pipeline.published_walk import CostTable, PublishedWalk, WalkStep


class PublishedStep(NamedTuple):
    """A plan of the frontier.

    Attributes:
        duration: Planned time of an iteration, units.
        cost_change_j: How much more its instructions cost than those of the step before, modelled.
        cost_j: What they cost, modelled, beyond the waiting of all GPUs.
        time_s: Time with measured values.
        energy_j: Energy with measured values.
    """

    duration: int
    cost_change_j: float
    cost_j: float
    time_s: float
    energy_j: float


class PublishedFrontier(NamedTuple):
    """Plans from the slowest to the fastest one.

    Attributes:
        profile: Measured points.
        graph: The instructions.
        models: Cost model by operation.
        steps: The plans' figures.
        walk: What each plan changes.
        fastest: The iteration at the highest clock throughout.
        waiting_w: Power of all GPUs while all wait, W.
    """

    profile: PipelineProfile
    graph: PipelineGraph
    models: tuple[CostModel, ...]
    steps: tuple[PublishedStep, ...]
    walk: tuple[WalkStep, ...]
    fastest: PipelineIteration
    waiting_w: float

    def durations(self, step: int) -> list[int]:
        """Planned duration of each instruction in a step, units."""
        durations = [self.models[operation].longest for operation in self.graph.operations]
        for change in self.walk[: step + 1]:
            for index in change.shortened:
                durations[index] -= 1
            for index in change.lengthened:
                durations[index] += 1
        return durations

    def points(self, step: int) -> list[int]:
        """The point at which each instruction runs in a step."""
        pairs = zip(self.graph.operations, self.durations(step), strict=True)
        return [self.models[operation].option(duration).point for operation, duration in pairs]

    def plan(self, step: int) -> ClockPlan:
        """The clocks of a step."""
        return plan_of_points(self.profile, self.graph, self.points(step))

    def step_for(self, time_s: float) -> int:
        """The step of least energy if an iteration lasts `time_s` s, as another replica needs.

        If none is as fast, that is the last one.
        """
        best = len(self.steps) - 1
        least = float("inf")
        for index, step in enumerate(self.steps):
            if step.time_s <= time_s:
                energy_j = step.energy_j + self.waiting_w * (time_s - step.time_s)
                if energy_j < least:
                    best, least = index, energy_j
        return best


@lru_cache(maxsize=64)
def published_frontier(
    profile: PipelineProfile, graph: PipelineGraph, unit_s: float = 1e-3
) -> PublishedFrontier:
    """The frontier of plans in steps of one unit of time (Perseus, SOSP '24, algorithm 1).

    Args:
        profile: Measured points.
        graph: The instructions.
        unit_s: Unit of time, s.

    Raises:
        InputError: If the profile or the unit cannot be used.
        EnvironmentLacks: If scipy is not installed.
    """
    if not unit_s > 0:
        raise InputError(f"the unit of time is {unit_s} s; it must be above 0")
    check_profile(profile)
    check_stages(profile, graph)
    models = cost_models(profile, unit_s)
    walker = PublishedWalk(
        graph.operations, graph.before, [_table(m) for m in models], UNLIMITED_UJ
    )
    walk = []
    while step := walker.step():
        walk.append(step)
    fastest = execute_points(profile, graph, fastest_points(profile, graph))
    waiting_w = waiting_power_w(profile, graph)
    steps = _execute(profile, graph, models, walk, waiting_w)
    return PublishedFrontier(profile, graph, models, steps, tuple(walk), fastest, waiting_w)


def _table(model: CostModel) -> CostTable:
    low_uj, high_uj = bounds_uj(model)
    costs_j = [model.cost_j(d) for d in range(model.shortest, model.longest + 1)]
    return CostTable(model.shortest, costs_j, low_uj, high_uj)


def _execute(
    profile: PipelineProfile,
    graph: PipelineGraph,
    models: Sequence[CostModel],
    walk: Sequence[WalkStep],
    waiting_w: float,
) -> tuple[PublishedStep, ...]:
    """The figures of all plans; only what a step changes is looked up."""
    # Time, and energy beyond that of waiting, by operation and duration.
    values: list[dict[int, tuple[float, float]]] = []
    for operation, model in enumerate(models):
        power_w = profile.blocking_power_w(operation)
        row = {}
        for duration in range(model.shortest, model.longest + 1):
            _, time_s, energy_j = profile.points(operation)[model.option(duration).point]
            row[duration] = (time_s, energy_j - power_w * time_s)
        values.append(row)
    durations = [models[operation].longest for operation in graph.operations]
    operations = graph.operations
    times_s = [values[op][d][0] for op, d in zip(operations, durations, strict=True)]
    energies_j = [values[op][d][1] for op, d in zip(operations, durations, strict=True)]
    cost_j = sum(models[op].cost_j(d) for op, d in zip(operations, durations, strict=True))
    time_s = last_end(graph.before, times_s)
    steps = []
    for step in walk:
        slower = False
        for index in (*step.shortened, *step.lengthened):
            durations[index] += 1 if index in step.lengthened else -1
            new_s, energies_j[index] = values[operations[index]][durations[index]]
            slower |= new_s != times_s[index]
            times_s[index] = new_s
        if slower:
            time_s = last_end(graph.before, times_s)
        cost_j += step.cost_change_j
        energy_j = sum(energies_j) + waiting_w * time_s
        steps.append(PublishedStep(step.duration, step.cost_change_j, cost_j, time_s, energy_j))
    return tuple(steps)
