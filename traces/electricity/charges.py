"""What energy costs, in money or in grams of CO2, under a constant rate or a series."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.electricity.series import Series

JOULES_PER_KWH: Final = 3.6e6

Rate = Series | float
"""A price or a carbon intensity, per kWh: one number, or over time."""


def charge_power(
    time_s: Floats, power_w: Floats, rate: Rate, from_s: float, until_s: float, origin_s: float = 0
) -> float:
    """What power costs that is constant between change points, over a window.

    Args:
        time_s: Change points, ascending, as in the timeline of a run.
        power_w: From each change point to the next; the last one holds for ever.
        rate: Per kWh; 1 gives the energy in kWh.
        from_s: Start of the window, on the clock of `time_s`.
        until_s: Its end.
        origin_s: Second 0 of that clock, in seconds since 1970 (UTC); used with a series only.

    Returns:
        In the unit of the rate without ``/kWh``.

    Raises:
        ValueError: If the window begins before the first change point, or ends before it begins.
        TraceError: If the window reaches out of a series that does not repeat.
    """
    if until_s < from_s or (len(time_s) and from_s < time_s[0]) or not len(time_s):
        raise ValueError(f"no power is known from {from_s} s to {until_s} s")
    edges = np.clip(np.append(time_s, until_s), from_s, until_s)
    costs = power_w * _weigh(edges[:-1], edges[1:], rate, origin_s)
    return math.fsum(costs.data) / JOULES_PER_KWH


def charge_intervals(
    begin_s: Floats, end_s: Floats, energy_j: Floats, rate: Rate, origin_s: float = 0
) -> Floats:
    """What the energy of each interval costs, drawn evenly from its begin to its end.

    An interval without length is charged at its moment. Arguments and errors are as in
    `charge_power`; each array has the shape (intervals,).
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
