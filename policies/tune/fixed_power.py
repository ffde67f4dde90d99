"""One power limit for all."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Options, Running
from wattkeeper.policies.registry import PolicyConfig


class FixedPower(Tune):
    """See `FixedPowerConfig`."""

    def __init__(self, config: FixedPowerConfig) -> None:
        self.power_limit_w = config.power_limit_w

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The fixed limit."""
        return Knobs(self.power_limit_w)


class FixedPowerConfig(PolicyConfig):
    """All attempts run at the same power limit.

    Jobs without a profile are limited, too: a model of their GPU type says what that changes.
    """

    kind: Literal["fixed-power"] = "fixed-power"
    policy = FixedPower
    limits_unprofiled: ClassVar[bool] = True
    power_limit_w: float = Field(gt=0, examples=[150.0])
    """Power limit of each GPU, W; a profiled one, or a whole number of watts that the GPU type
    allows where there is no profile."""

    def check(self, options: Options) -> None:
        """Check that the power limit was profiled."""
        known = sorted({limit_w for limits in options.limits_w for limit_w in limits})
        if self.power_limit_w not in known:
            raise PolicyError(
                f"power limit {self.power_limit_w:g} W has no profile on {options.key}; "
                f"there is {options.limits_text(known)}",
                self.point,
            )
