"""Several jobs under one power cap: what each may draw, for the largest sum of weighted speeds.

At T s an iteration a pipeline needs E(T) J, so at a speed r = 1 / T it draws r E(1 / r) W. Between
two vertices of the frontier E is linear in T and the draw linear in r: a convex chain of pieces.
The pieces of all jobs, taken in the order of weight gained per watt, are the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise, takewhile
from math import inf
from typing import NamedTuple

from wattkeeper.policies.convex import lower_chain
from wattkeeper.policies.pipeline.exact import ExactFrontier
from wattkeeper.policies.pipeline.execution import execute_points
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import PipelineProfile


class DrawPoint(NamedTuple):
    """What a job does: speed as a share of its highest one, mean power of all its GPUs (W)."""

    speed: float
    power_w: float


class DrawCurve(NamedTuple):
    """A job that shares in a cap.

    Attributes:
        weight: What its highest speed is worth, in any unit that all jobs share.
        points: Ascending in speed, their powers convex (`convex_draw`).
    """

    weight: float
    points: tuple[DrawPoint, ...]

    def speed_at(self, power_w: float) -> float:
        """The highest speed within a power; 0 if its slowest one draws more."""
        if power_w < self.points[0].power_w:
            return 0.0
        for slow, fast in pairwise(self.points):
            if power_w < fast.power_w:
                share = (power_w - slow.power_w) / (fast.power_w - slow.power_w)
                return slow.speed + share * (fast.speed - slow.speed)
        return self.points[-1].speed


def convex_draw(points: Sequence[DrawPoint]) -> tuple[DrawPoint, ...]:
    """The vertices of the lower convex hull, from the one of least power to the fastest one."""
    frugal = [next(equal) for _, equal in groupby(sorted(points), lambda point: point.speed)]
    hull = lower_chain(
        frugal, lambda left, middle, right: _price(left, middle) >= _price(middle, right)
    )
    falling = takewhile(lambda pair: pair[0].power_w >= pair[1].power_w, pairwise(hull))
    return tuple(hull[len(list(falling)) :])


def pipeline_draw(frontier: ExactFrontier) -> tuple[DrawPoint, ...]:
    """Speed and power on the frontier of a pipeline."""
    return convex_draw([
        DrawPoint(frontier.fastest_s / vertex.time_s, vertex.energy_j / vertex.time_s)
        for vertex in frontier.vertices
    ])  # fmt: skip


def clock_draw(profile: PipelineProfile, graph: PipelineGraph, clock_mhz: int) -> DrawPoint:
    """Speed and power with all GPUs at one clock, or at the nearest measured one below it.

    The speed is iterations per second. Operations not measured below the clock run at their lowest
    one.
    """
    choice = []
    for operation in range(2 * graph.stages):
        points = profile.points(operation)
        clocks = [point.frequency_mhz for point in points]
        below = max((clock for clock in clocks if clock <= clock_mhz), default=min(clocks))
        choice.append(clocks.index(below))
    chosen = [choice[operation] for operation in graph.operations]
    result = execute_points(profile, graph, chosen)
    return DrawPoint(1 / result.time_s, result.energy_j / result.time_s)


def share_by_gain(jobs: Sequence[DrawCurve], cap_w: float) -> tuple[float, ...] | None:
    """Power of each job for the largest sum of weighted speeds; None if the cap is too low.

    All jobs end at an equal gain per watt, but for those at their lowest or highest speed.
    """
    powers = [job.points[0].power_w for job in jobs]
    left = cap_w - sum(powers)
    if left < 0:
        return None
    pieces = sorted(
        (_price(slow, fast) / job.weight if job.weight > 0 else inf, index, place)
        for index, job in enumerate(jobs)
        for place, (slow, fast) in enumerate(pairwise(job.points))
    )
    for price, index, place in pieces:
        if price == inf:
            break
        slow, fast = jobs[index].points[place : place + 2]
        amount = min(left, fast.power_w - slow.power_w)
        powers[index] += amount
        left -= amount
    return tuple(powers)


def share_in_proportion(draws_w: Sequence[float], cap_w: float) -> tuple[float, ...]:
    """Power of each job, in proportion to what it draws at its highest clock."""
    total = sum(draws_w)
    return tuple(cap_w * draw_w / total for draw_w in draws_w)


def _price(slow: DrawPoint, fast: DrawPoint) -> float:
    """Power for each unit of speed between two points, W."""
    return (fast.power_w - slow.power_w) / (fast.speed - slow.speed)
