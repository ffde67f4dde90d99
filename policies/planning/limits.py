"""Choice of one power limit by a weighted sum of energy and time."""

from __future__ import annotations

from typing import Final

from wattkeeper.policies.profile import Curve

PUBLISHED_ETA: Final = 0.24
PUBLISHED_RATE: Final = 750.0
"""Carbon intensity by which Chase weighs time, g/kWh (ICLR '23 workshop)."""


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
