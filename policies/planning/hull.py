"""Operating points of a job, and the mixes of them that draw the least power."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

from wattkeeper.policies.convex import lower_chain
from wattkeeper.policies.profile import Curve


class SpeedPoint(NamedTuple):
    """What a job does at a power limit, or at clocks.

    Attributes:
        speed: Work per second; in a unit that all points of the job share.
        power_w: Mean power of all its GPUs together, W.
        power_limit_w: The limit of each GPU, W; 0 while it pauses.
        clock_mhz: One locked clock for all GPUs and instructions, MHz; 0: none.
        plan: A plan of clocks for them; empty: none.
    """

    speed: float
    power_w: float
    power_limit_w: float
    clock_mhz: int = 0
    plan: tuple[tuple[int, ...], ...] = ()


Share = tuple[SpeedPoint, float]
"""A point, and the share of the time that is spent there."""


def speed_points(curve: Curve, unit_s: float = 1.0) -> tuple[SpeedPoint, ...]:
    """The points of a curve, by ascending limit; speeds are epochs per `unit_s` s."""
    rows = zip(curve.limits_w, curve.time_per_epoch_s, curve.average_power_w, strict=True)
    return tuple(SpeedPoint(unit_s / time_s, power_w, limit_w) for limit_w, time_s, power_w in rows)


def relative_points(curve: Curve) -> tuple[SpeedPoint, ...]:
    """The points of a curve, by ascending limit; speeds are relative to the highest limit."""
    return speed_points(curve, curve.time_per_epoch_s[-1])


def up_to_limit(points: Iterable[SpeedPoint], limit_w: float | None) -> list[SpeedPoint]:
    """The points up to a power limit of each GPU, W; all without one."""
    return [point for point in points if limit_w is None or point.power_limit_w <= limit_w]


def locked_points(curve: Curve, unit_s: float = 1.0) -> tuple[SpeedPoint, ...]:
    """The points of locked clocks, ascending; speeds are epochs per `unit_s` s."""
    return tuple(
        SpeedPoint(unit_s / s.time_per_epoch_s, s.average_power_w, curve.max_limit_w, s.clock_mhz)
        for s in curve.clocks
    )


def points_up_to(curve: Curve, limit_w: float | None, clock_mhz: int = 0) -> list[SpeedPoint]:
    """The points of a curve up to a power limit of each GPU (W) or a locked clock (MHz).

    Where locked clocks were measured, these are all points that are slower and draw less than that
    of the limit or clock, by ascending speed, and it. Speeds are relative to the highest limit.
    """
    points = relative_points(curve)
    if not curve.clocks:
        return up_to_limit(points, limit_w)
    if limit_w is None:
        limit_w = curve.max_limit_w
    points += locked_points(curve, curve.time_per_epoch_s[-1])
    most = next(p for p in points if p.power_limit_w == limit_w and p.clock_mhz == clock_mhz)
    return up_to_point(points, most)


def up_to_point(points: Iterable[SpeedPoint], most: SpeedPoint) -> list[SpeedPoint]:
    """The points that are slower and draw less than one, by ascending speed, and that one."""
    slower = (p for p in points if p.speed < most.speed and p.power_w < most.power_w)
    return [*sorted(slower), most]


def paused(idle_w: float) -> SpeedPoint:
    """The point of a pause, in which all GPUs of the job together draw `idle_w` W."""
    return SpeedPoint(0.0, idle_w, 0.0)


def fastest(points: Iterable[SpeedPoint]) -> SpeedPoint:
    """The point of the highest speed; of several, the one that draws least."""
    return max(points, key=lambda point: (point.speed, -point.power_w, -point.power_limit_w))


def lower_hull(points: Iterable[SpeedPoint]) -> tuple[SpeedPoint, ...]:
    """The points whose mixes draw the least power at each speed, by ascending speed.

    These are the vertices of the lower convex hull of (speed, power), from the lowest speed to the
    highest one.
    """
    return _lower_hull(tuple(points))


@lru_cache(maxsize=256)
def _lower_hull(points: tuple[SpeedPoint, ...]) -> tuple[SpeedPoint, ...]:
    frugal = [next(equal) for _, equal in groupby(sorted(points), lambda point: point.speed)]
    return tuple(lower_chain(frugal, _is_above))


def upper_hull(points: Iterable[SpeedPoint]) -> tuple[SpeedPoint, ...]:
    """The points whose mixes draw the most power at each speed, for rates below zero."""
    return _upper_hull(tuple(points))


@lru_cache(maxsize=256)
def _upper_hull(points: tuple[SpeedPoint, ...]) -> tuple[SpeedPoint, ...]:
    mirrored = lower_hull(point._replace(power_w=-point.power_w) for point in points)
    return tuple(point._replace(power_w=-point.power_w) for point in mirrored)


def _is_above(left: SpeedPoint, middle: SpeedPoint, right: SpeedPoint) -> bool:
    """Whether the middle one is on or above the line between the others."""
    rise = (right.power_w - left.power_w) * (middle.speed - left.speed)
    return (middle.power_w - left.power_w) * (right.speed - left.speed) >= rise


def mix(hull: Sequence[SpeedPoint], speed: float) -> tuple[Share, ...]:
    """The mix of neighbouring hull points with a mean speed, the faster one first.

    A speed out of the hull's range gets the nearest point.
    """
    if speed <= hull[0].speed:
        return ((hull[0], 1.0),)
    for slow, fast in pairwise(hull):
        if speed < fast.speed:
            share = (speed - slow.speed) / (fast.speed - slow.speed)
            return ((fast, share), (slow, 1 - share)) if share > 0 else ((slow, 1.0),)
    return ((hull[-1], 1.0),)
