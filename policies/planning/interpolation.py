"""Power and speed between the recorded power limits of a profile."""

from __future__ import annotations

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.profile import MOST_LIMITS, Curve


def interpolate_limits(curve: Curve, step_w: float) -> Curve:
    """A curve with further limits, each `step_w` above the one before, from the lowest limit on.

    Power and speed (not time) are interpolated by monotone cubics. The recorded limits stay, with
    their values. The result is marked as interpolated; a curve that gets no further limit is
    returned as it is.

    Raises:
        InputError: If there would be more than `MOST_LIMITS`.
        ValueError: If `step_w` is not positive.
    """
    if not step_w > 0:
        raise ValueError(f"a step of {step_w:g} W; it must be positive")
    recorded = np.array(curve.limits_w)
    count = int((recorded[-1] - recorded[0]) / step_w + 1e-9) + 1
    if count > MOST_LIMITS:
        raise InputError(
            f"{count:,} power limits from {recorded[0]:g} to {recorded[-1]:g} W in steps of "
            f"{step_w:g} W; at most {MOST_LIMITS:,}: take larger steps, unless the limits are wrong"
        )
    wanted = recorded[0] + step_w * np.arange(count)
    distance = np.abs(wanted[:, None] - recorded[None]).min(axis=1)
    added = wanted[distance > 1e-6 * step_w]
    if not len(added):
        return curve
    power = monotone_cubic(recorded, np.array(curve.average_power_w), added)
    speed = monotone_cubic(recorded, 1 / np.array(curve.time_per_epoch_s), added)
    limits = np.concatenate([recorded, added])
    order = np.argsort(limits)
    time_s = np.concatenate([curve.time_per_epoch_s, 1 / speed])
    power_w = np.concatenate([curve.average_power_w, power])
    return curve._replace(
        limits_w=tuple(limits[order].tolist()),
        time_per_epoch_s=tuple(time_s[order].tolist()),
        average_power_w=tuple(power_w[order].tolist()),
        interpolated=True,
    )


def monotone_cubic(x: Floats, y: Floats, points: Floats) -> Floats:
    """Piecewise cubic through all points of a table, monotone wherever the table is.

    Slopes are the weighted harmonic means of Fritsch and Butland (SIAM J. Sci. Stat. Comput. 5(2),
    1984), which keep the condition of Fritsch and Carlson (SIAM J. Numer. Anal. 17(2), 1980).

    Args:
        x: Ascending, shape (n,), n > 0.
        y: Shape (n,).
        points: Between the first and the last of `x`, shape (points,).

    Returns:
        The values there, shape (points,).
    """
    if len(x) == 1:
        return np.full(len(points), y[0])
    widths, rises = np.diff(x), np.diff(y) / np.diff(x)
    slopes = _slopes(widths, rises)
    index = np.clip(np.searchsorted(x, points, side="right") - 1, 0, len(x) - 2)
    width, t = widths[index], (points - x[index]) / widths[index]
    left, right = y[index], y[index + 1]
    first, last = width * slopes[index], width * slopes[index + 1]
    return np.asarray(
        left * (1 + 2 * t) * (1 - t) ** 2
        + right * t**2 * (3 - 2 * t)
        + first * t * (1 - t) ** 2
        - last * t**2 * (1 - t)
    )


def _slopes(widths: Floats, rises: Floats) -> Floats:
    """Slopes at all points of a table, from the widths and the mean slopes of its intervals."""
    if len(rises) == 1:
        return np.repeat(rises, 2)
    slopes = np.zeros(len(rises) + 1)
    before, after = rises[:-1], rises[1:]
    same = np.sign(before) * np.sign(after) > 0
    first, last = 2 * widths[1:] + widths[:-1], widths[1:] + 2 * widths[:-1]
    inner = slopes[1:-1]
    inner[same] = (first + last)[same] / (first[same] / before[same] + last[same] / after[same])
    slopes[0] = _end_slope(widths[0], widths[1], rises[0], rises[1])
    slopes[-1] = _end_slope(widths[-1], widths[-2], rises[-1], rises[-2])
    return slopes


def _end_slope(width: float, next_width: float, rise: float, next_rise: float) -> float:
    """Slope at an end: of the parabola through three points, limited so that it stays monotone."""
    slope = ((2 * width + next_width) * rise - width * next_rise) / (width + next_width)
    if slope * rise <= 0:
        return 0.0
    if rise * next_rise <= 0 and abs(slope) > 3 * abs(rise):
        return 3 * rise
    return slope
