"""How often to write a checkpoint, given how often a job loses what it did since the last one."""

from __future__ import annotations

import math


def young_interval_s(write_s: float, mean_s: float) -> float:
    """Training between two checkpoints, s (Young, CACM 1974).

    Args:
        write_s: Time to write one, s.
        mean_s: Mean time between losses, s.
    """
    return math.sqrt(2 * write_s * mean_s)


def daly_interval_s(write_s: float, mean_s: float) -> float:
    """`young_interval_s` to a higher order, s (Daly, FGCS 2006, equation 37)."""
    if write_s >= 2 * mean_s:
        return mean_s
    part = write_s / (2 * mean_s)
    return math.sqrt(2 * write_s * mean_s) * (1 + math.sqrt(part) / 3 + part / 9) - write_s
