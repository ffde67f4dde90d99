"""Lower convex hulls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Point = TypeVar("Point")


def lower_chain(
    points: Iterable[Point], is_above: Callable[[Point, Point, Point], bool]
) -> list[Point]:
    """The vertices of the lower convex hull of points.

    Args:
        points: Ascending in one coordinate, none equal in it.
        is_above: Whether the second of three points is on or above the line between the others.
    """
    chain: list[Point] = []
    for point in points:
        while len(chain) > 1 and is_above(chain[-2], chain[-1], point):
            chain.pop()
        chain.append(point)
    return chain
