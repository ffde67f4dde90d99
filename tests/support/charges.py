"""The cost of power that is constant between change points, piece by piece."""

from __future__ import annotations

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.electricity.charges import Rate
from wattkeeper.traces.electricity.series import Series


def cost_of_steps(
    times: Floats, power_w: Floats, rate: Rate, begin: float, end: float, origin_s: float = 0
) -> float:
    """Over a window that begins at or after the first change point; the last power holds on."""
    edges = np.clip(np.append(times, end), begin, end)
    spans = edges[:-1], edges[1:]
    weights = rate.integral(*spans, origin_s) if isinstance(rate, Series) else rate * np.diff(edges)
    return float((power_w * weights).sum()) / 3.6e6
