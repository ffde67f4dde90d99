"""Chase (ICLR '23 workshop): power limits that follow a forecast of the carbon intensity."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.profile import Curve
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune._curves import CurveTune, ProfileSource

PUBLISHED_ETA: Final = 0.24

PUBLISHED_RATE: Final = 750.0
"""Carbon intensity by which Chase weighs time, g/kWh (ICLR '23 workshop)."""


class Chase(CurveTune):
    """See `ChaseConfig`."""

    def __init__(self, config: ChaseConfig) -> None:
        super().__init__(config.profile)
        self.config = config

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """The limit of the least weighted cost under the forecast of the present slot."""
        config, options = self.config, running.start.options
        curve = self.curves.find(ctx, running)
        if curve is None:
            return self.curves.measure(running)
        forecast = float(ctx.signal(config.signal).forecast(1)[0])
        limit_w = cheapest_limit(
            curve, config.eta, options.max_power_w * options.gpus, forecast, config.time_rate
        )
        return None if limit_w == running.knobs.power_limit_w else Knobs(limit_w)


class ChaseConfig(PolicyConfig):
    """Chase (ICLR '23 workshop): the power limit of the least weighted cost, in each slot anew.

    The cost of a unit of work is its energy times the forecast, weighed by `eta`, and its time at
    the largest power times `time_rate`, weighed by 1 - `eta`. The published rule reads carbon
    intensities in g/kWh; both settings must fit the grid. It neither pauses nor knows a deadline.
    """

    kind: Literal["chase"] = "chase"
    policy = Chase
    plain = "Chase"
    limits_unprofiled: ClassVar[bool] = True
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "signal")
    signal: str = "carbon"
    """Name of the signal; its forecast is read."""
    eta: float = Field(default=PUBLISHED_ETA, ge=0, le=1)
    """1 counts the signal alone, 0 counts time alone; published: 0.24."""
    time_rate: float = Field(default=PUBLISHED_RATE, gt=0)
    """What energy at the largest power would cost, in the unit of the signal, where time is
    weighed; published: 750 (g/kWh)."""
    profile: ProfileSource = "known"
    """`known`: the profiles from which jobs are replayed, in a simulation only. `measured`: all
    limits are measured when a group first runs a batch size."""

    @property
    def needs_foresight(self) -> bool:  # type: ignore[override]
        """Whether profiles are read before they are measured."""
        return self.profile == "known"

    @property
    def signals(self) -> tuple[str, ...]:
        """The one signal."""
        return (self.signal,)


def cheapest_limit(
    curve: Curve, eta: float, max_power_w: float, rate: float = 1.0, time_rate: float = 1.0
) -> float:
    """The power limit of the least weighted cost per unit of work, W; of equals, the lowest.

    The cost of a second is ``eta * power * rate + (1 - eta) * max_power_w * time_rate``. With the
    carbon intensity of the present slot as `rate` this is Chase's rule; with both rates 1, Zeus's.

    Args:
        curve: Power and time by limit.
        eta: 1 counts energy alone, 0 counts time alone.
        max_power_w: Largest power limit of all GPUs of the job together, W.
        rate: What energy costs.
        time_rate: What energy would cost if time were paid for as energy at `max_power_w`.
    """
    rows = zip(curve.limits_w, curve.time_per_epoch_s, curve.average_power_w, strict=True)
    haste = (1 - eta) * max_power_w * time_rate
    costs = {limit_w: (eta * power_w * rate + haste) * time_s for limit_w, time_s, power_w in rows}
    return min(costs, key=lambda limit_w: (costs[limit_w], limit_w))
