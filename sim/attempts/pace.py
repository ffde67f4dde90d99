"""What slows a running job down: named causes, and how they combine."""

from __future__ import annotations

from typing import Final, NamedTuple


class Pace(NamedTuple):
    """How fast and at what power a job runs, relative to its full pace.

    Attributes:
        slowdown: Time of a step over that at full pace, so the reciprocal of its rate.
        power: Power of its GPUs over that at full pace.
    """

    slowdown: float = 1.0
    power: float = 1.0


FULL_PACE: Final = Pace()

NODE: Final = "node"
"""The cause: the slowest node that a job holds."""
STRAGGLER: Final = "straggler"
"""The cause: a replica of a pipeline-parallel job elsewhere."""
PEERS: Final = (NODE, STRAGGLER)
"""Causes that train a step side by side, which ends with the slowest of them."""

Causes = tuple[tuple[str, Pace], ...]
"""The paces that causes impose, by name, ascending; none is full."""


def with_cause(causes: Causes, cause: str, pace: Pace) -> Causes:
    """The causes once one of them imposes a pace; a full one takes it away."""
    others = [item for item in causes if item[0] != cause]
    if pace != FULL_PACE:
        others.append((cause, pace))
    return tuple(sorted(others))


def peers_pace(causes: Causes) -> Pace:
    """The pace of the slowest peer, for which the others wait."""
    return max([pace for cause, pace in causes if cause in PEERS], default=FULL_PACE)


def own_pace(causes: Causes) -> Pace:
    """The product of all other causes, in the order of their names, so that it rounds alike."""
    slowdown = power = 1.0
    for cause, pace in causes:
        if cause not in PEERS:
            slowdown *= pace.slowdown
            power *= pace.power
    return Pace(slowdown, power)
