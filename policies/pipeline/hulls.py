"""Measured points as convex costs of time."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from wattkeeper.policies.convex import lower_chain
from wattkeeper.policies.pipeline.exact_walk import TimeCosts
from wattkeeper.policies.pipeline.profile import PipelineProfile


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
