"""One power limit for all."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.protocols import Context, Knobs, Running
from wattkeeper.policies.registry import Point, Policy, PolicyConfig


class FixedPowerConfig(PolicyConfig):
    """Every attempt runs at the same power limit.

    Attributes:
        power_limit_w: Power limit of each GPU in W; it must have been profiled.
    """

    point: ClassVar[Point] = "tune"
    kind: Literal["fixed-power"] = "fixed-power"
    power_limit_w: float = Field(gt=0, examples=[150.0])

    def build(self) -> FixedPower:
        """A new policy."""
        return FixedPower(self.power_limit_w)


class FixedPower(Policy):
    """See `FixedPowerConfig`."""

    def __init__(self, power_limit_w: float) -> None:
        self.power_limit_w = power_limit_w

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The fixed limit."""
        return Knobs(self.power_limit_w)
