"""One fraction of the highest power limit for all."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Options, Running
from wattkeeper.policies.profile import UNLIMITED_W
from wattkeeper.policies.registry import PolicyConfig

SLACK_W = 1e-6
"""A fraction of a limit that should be a whole number of watts differs by less, by rounding."""


class PowerFraction(Tune):
    """See `PowerFractionConfig`."""

    def __init__(self, config: PowerFractionConfig) -> None:
        self._fraction = config.fraction

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The largest limit up to the fraction."""
        limits = running.start.options.limits(running.configuration.batch_size)
        return Knobs(limits[count_up_to(self._fraction, limits) - 1])


class PowerFractionConfig(PolicyConfig):
    """All attempts run at the same fraction of the highest power limit of their GPUs.

    That is the largest allowed limit up to it. Jobs without a profile are limited, too: a model of
    their GPU type says what that changes.
    """

    kind: Literal["power-fraction"] = "power-fraction"
    policy = PowerFraction
    limits_unprofiled: ClassVar[bool] = True
    fraction: float = Field(gt=0, le=1, examples=[0.8])
    """Fraction of the highest power limit."""

    def check(self, options: Options) -> None:
        """Check that there is a limit up to the fraction, with every batch size."""
        for limits in options.limits_w:
            if limits == (UNLIMITED_W,):
                raise PolicyError(f"{options.key} takes no power limit", self.point)
            if not count_up_to(self.fraction, limits):
                raise PolicyError(
                    f"no power limit on {options.key} is up to {self.fraction * limits[-1]:g} W, "
                    f"{self.fraction:g} of the highest; there is {options.limits_text(limits)}",
                    self.point,
                )


def count_up_to(fraction: float, limits: Sequence[float]) -> int:
    """The number of limits up to a fraction of the last one."""
    return bisect_right(limits, fraction * limits[-1] + SLACK_W)
