"""The tightest room."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.place._tightest import BestFit
from wattkeeper.policies.registry import Point, PolicyConfig


class BestFitConfig(PolicyConfig):
    """The node with the fewest free GPUs that has room; the fullest shared GPUs for parts.

    Ties go to the first GPU type, then to the first node. A job that no node can hold as a whole
    takes as few nodes as possible: emptiest ones in whole, and the tightest for the rest; of
    several GPU types the one that needs the fewest nodes. A job that asks for parts of GPUs takes
    those with the fewest free thousandths that it fits in, on all nodes of a type.
    """

    point: ClassVar[Point] = "place"
    kind: Literal["best-fit"] = "best-fit"

    def build(self) -> BestFit:
        """A new policy."""
        return BestFit()
