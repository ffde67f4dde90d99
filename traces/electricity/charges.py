"""What energy costs, in money or in grams of CO2, under a constant rate or a series."""

from collections.abc import Callable
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.electricity.series import Series

JOULES_PER_KWH: Final = 3.6e6

Rate = Series | float
"""A price or a carbon intensity, per kWh: one number, or over time."""


def charge_intervals(
    begin_s: Floats, end_s: Floats, energy_j: Floats, rate: Rate, origin_s: float = 0
) -> Floats:
    """What the energy of each interval costs, drawn evenly from its begin to its end.

    An interval without length is charged at its moment.

    Args:
        begin_s: Begin of each, shape (intervals,).
        end_s: End of each, shape (intervals,).
        energy_j: Energy of each, J, shape (intervals,).
        rate: Per kWh.
        origin_s: Second 0 of the times, in seconds since 1970 (UTC); used with a series only.

    Returns:
        In the unit of the rate without ``/kWh``, shape (intervals,).

    Raises:
        TraceError: If an interval reaches out of a series that does not repeat.
    """
    if not isinstance(rate, Series):
        return energy_j * (rate / JOULES_PER_KWH)
    length = end_s - begin_s
    is_moment = length <= 0
    mean = _weigh(begin_s, end_s, rate, origin_s) / np.where(is_moment, 1.0, length)
    if is_moment.any():
        mean[is_moment] = rate.at(begin_s[is_moment], origin_s)
    return energy_j * mean / JOULES_PER_KWH


def clock(rate: Rate, origin_s: float = 0) -> Callable[[Floats], Floats]:
    """What a constant power of 1 W has cost until each time, but for a constant.

    Differences are the cost of spans, as of `charge_intervals`; arguments and errors are its own.
    """
    start = rate.start_s[0] - origin_s if isinstance(rate, Series) else 0.0
    return lambda times: _weigh(start, times, rate, origin_s) / JOULES_PER_KWH


def _weigh(begin_s: Floats | float, end_s: Floats, rate: Rate, origin_s: float) -> Floats:
    """The integral of the rate over each span."""
    if isinstance(rate, Series):
        return rate.integral(begin_s, end_s, origin_s)
    return np.asarray((end_s - begin_s) * rate)
