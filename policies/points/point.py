"""Registry of decision points: the questions that engines ask their policies."""

from typing import Final, NamedTuple

from wattkeeper.policies.errors import Point, PolicyError
from wattkeeper.policies.points.policy import Policy


class DecisionPoint(NamedTuple):
    """A question that an engine asks its policies.

    Attributes:
        name: In scenarios and messages; also of the method that answers, and of the room in which
            its shipped policies lie.
        base: Base class of its policies.
        answer: Type of the answers, as messages name it.
    """

    name: Point
    base: type[Policy]
    answer: str


POINTS: Final[dict[Point, DecisionPoint]] = {}
"""All decision points by name, those of one engine in the order in which it registered them."""


def register_points(*points: DecisionPoint) -> None:
    """Register the decision points of an engine.

    Raises:
        PolicyError: If another one has this name.
    """
    for point in points:
        known = POINTS.setdefault(point.name, point)
        if known != point:
            raise PolicyError(f"two decision points are called {point.name!r}")
