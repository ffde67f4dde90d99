"""The exact frontier of time and energy of a pipeline, and plans that are near to it.

With every operation's points replaced by their lower convex hull, the least energy for a time of
the iteration is a linear program; no plan with one clock for each instruction needs less. Its whole
frontier is found at once, and rounded to measured clocks.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import NamedTuple

from wattkeeper.policies.convex import lower_chain
from wattkeeper.policies.pipeline.event_shifts import EventShifts
from wattkeeper.policies.pipeline.exact_walk import ExactStep, ExactWalk, TimeCosts
from wattkeeper.policies.pipeline.execution import check_stages, plan_of_points, waiting_power_w
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile, check_profile
from wattkeeper.policies.pipeline.rounding import ClockRounding

ROUNDING_S = 1e-6
"""Times are whole ns in the walk; their sums along a path differ by less from those in s."""

MOST_STARTS = 16
STARTED_INSTRUCTIONS = 1024
"""Most instructions of all starts together."""
STARTED_SHARE = 0.004
"""By how much of its time the fastest start is faster, where there are vertices enough."""


class FrontierPoint(NamedTuple):
    """A vertex of the frontier: time of an iteration (ns), least energy (J)."""

    time_ns: int
    energy_j: float

    @property
    def time_s(self) -> float:
        """Time of an iteration, s."""
        return self.time_ns * 1e-9


class ExactFrontier(NamedTuple):
    """The least energy of an iteration by its time.

    Attributes:
        profile: Measured points.
        graph: The instructions.
        points: By operation, the points that no other one beats, by ascending time.
        slowest_ns: By operation, the longest duration that saves energy.
        steps: Stretches of the frontier, from its slow end.
        vertices: From the slow end to the fast one.
        waiting_w: Power of all GPUs while all wait, W.
    """

    profile: PipelineProfile
    graph: PipelineGraph
    points: tuple[tuple[TimedPoint, ...], ...]
    slowest_ns: tuple[int, ...]
    steps: tuple[ExactStep, ...]
    vertices: tuple[FrontierPoint, ...]
    waiting_w: float

    @property
    def fastest_s(self) -> float:
        """The shortest time of an iteration, s."""
        return self.vertices[-1].time_s

    @property
    def cheapest(self) -> FrontierPoint:
        """The vertex of least energy; a longer iteration only waits more."""
        return min(self.vertices, key=lambda vertex: (vertex.energy_j, vertex.time_ns))

    def bound_j(self, time_s: float) -> float:
        """What no plan of that time falls below, J; of times that are too short, infinite."""
        if time_s < self.fastest_s:
            return inf if time_s < self.fastest_s - ROUNDING_S else self.vertices[-1].energy_j
        slow = self.vertices[0]
        if time_s >= slow.time_s:
            return slow.energy_j + self.waiting_w * (time_s - slow.time_s)
        index = bisect_left(self.vertices, -time_s, key=lambda vertex: -vertex.time_s)
        slow, fast = self.vertices[index - 1], self.vertices[index]
        share = (time_s - fast.time_s) / (slow.time_s - fast.time_s)
        return fast.energy_j + share * (slow.energy_j - fast.energy_j)

    def durations_ns(self, time_ns: int) -> list[int]:
        """Duration of each instruction at a time of the iteration, for the least energy."""
        durations = [self.slowest_ns[operation] for operation in self.graph.operations]
        for step in self.steps:
            change = step.start_ns - max(time_ns, step.end_ns)
            if change <= 0:
                break
            for index in step.shortened:
                durations[index] -= change
            for index in step.lengthened:
                durations[index] += change
        return durations

    def plan(self, time_s: float, margin: float = 0.0) -> ClockPlan:
        """A plan with one clock for each instruction, for an iteration of at most a time.

        Args:
            time_s: Time of an iteration, s; if it is too short, the plan is as fast as can be.
            margin: Share of the time that is kept free, for measurements that deviate.
        """
        return plan_of_points(self.profile, self.graph, self.choose(time_s / (1 + margin)))

    def choose(self, time_s: float) -> list[int]:
        """The points of `plan`, by instruction.

        The best of some roundings: of the frontier at this time and at its next faster vertices,
        where nearly all durations are those of measured points; each as it is, and after shifts of
        events. What is left of the time is spent as slack.
        """
        operations, before = self.graph.operations, self.graph.before
        times_ns = [[point.time_ns for point in row] for row in self.points]
        costs_j = [[point.cost_j for point in row] for row in self.points]
        rounding = ClockRounding(operations, before, times_ns, costs_j)
        shifts = EventShifts(operations, before, times_ns, costs_j)
        end_ns = max(round(time_s * 1e9), self.vertices[-1].time_ns)
        least, choices = inf, rounding.choices
        for start_ns in self._starts_ns(end_ns):
            durations = self.durations_ns(start_ns)
            for rounded in (durations, shifts.search(durations, end_ns)):
                rounding.round_down(rounded)
                rounding.spend_slack(end_ns)
                if rounding.cost_j() < least:
                    least, choices = rounding.cost_j(), rounding.choices.copy()
        pairs = zip(operations, choices, strict=True)
        return [self.points[operation][place].point for operation, place in pairs]

    def _starts_ns(self, end_ns: int) -> list[int]:
        """From which times of an iteration plans are rounded: fewer, the more instructions.

        This one, and vertices that are evenly spread among the next faster ones.
        """
        most = min(MOST_STARTS, max(1, STARTED_INSTRUCTIONS // len(self.graph.operations)))
        first, last = (
            bisect_left(self.vertices, -time_ns, key=lambda vertex: -vertex.time_ns)
            for time_ns in (end_ns, (1 - STARTED_SHARE) * end_ns)
        )
        faster = self.vertices[first : max(last, first + most)]
        chosen = (faster[place * len(faster) // most].time_ns for place in range(most))
        return list(dict.fromkeys((end_ns, *chosen)))[:most]


@lru_cache(maxsize=64)
def exact_frontier(profile: PipelineProfile, graph: PipelineGraph) -> ExactFrontier:
    """The exact frontier of a pipeline (Kelley 1961; Fulkerson 1961).

    Raises:
        InputError: If the profile cannot be used.
        PolicyError: If the profile is not one of the graph's stages.
    """
    check_profile(profile)
    check_stages(profile, graph)
    points = [useful_points(profile, operation) for operation in range(2 * graph.stages)]
    hulls = [lower_hull_of(row) for row in points]
    walk = ExactWalk(graph.operations, graph.before, [time_costs(hull) for hull in hulls])
    waiting_w = waiting_power_w(profile, graph)
    cost_j = sum(hulls[operation][-1].cost_j for operation in graph.operations)
    start_ns = int(walk.end_ns)
    vertices = [FrontierPoint(start_ns, cost_j + waiting_w * start_ns * 1e-9)]
    steps: list[ExactStep] = []
    while step := walk.step():
        steps.append(step)
        cost_j += step.slope_uw * (step.start_ns - step.end_ns) * 1e-15
        energy_j = cost_j + waiting_w * step.end_ns * 1e-9
        vertices.append(FrontierPoint(step.end_ns, energy_j))
    return ExactFrontier(
        profile,
        graph,
        tuple(tuple(row) for row in points),
        tuple(hull[-1].time_ns for hull in hulls),
        tuple(steps),
        tuple(vertices),
        waiting_w,
    )


class TimedPoint(NamedTuple):
    """A measured point: time (ns), cost beyond that of waiting (J), index in the profile."""

    time_ns: int
    cost_j: float
    point: int


def useful_points(profile: PipelineProfile, operation: int) -> list[TimedPoint]:
    """The points that no other one beats in time and cost, by ascending time."""
    power_w = profile.blocking_power_w(operation)
    rows = sorted(
        TimedPoint(round(time_s * 1e9), energy_j - power_w * time_s, index)
        for index, (_, time_s, energy_j) in enumerate(profile.points(operation))
    )
    useful = rows[:1]
    for row in rows[1:]:
        if row.cost_j < useful[-1].cost_j and row.time_ns > useful[-1].time_ns:
            useful.append(row)
    return useful


def lower_hull_of(points: list[TimedPoint]) -> list[TimedPoint]:
    """The vertices of the lower convex hull of useful points."""
    return lower_chain(
        points, lambda left, middle, right: _saving(left, middle) <= _saving(middle, right)
    )


def time_costs(hull: list[TimedPoint]) -> TimeCosts:
    """The convex cost of a hull, slopes in whole uW."""
    slopes = [round(_saving(left, right) * 1e15) for left, right in pairwise(hull)]
    return TimeCosts([point.time_ns for point in hull], slopes)


def _saving(left: TimedPoint, right: TimedPoint) -> float:
    """What each ns saves between two points, J."""
    return (left.cost_j - right.cost_j) / (right.time_ns - left.time_ns)
