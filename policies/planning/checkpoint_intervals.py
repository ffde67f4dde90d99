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
    """The same to a higher order (Daly, Future Generation Computer Systems 2006, equation 37)."""
    if write_s >= 2 * mean_s:
        return mean_s
    part = write_s / (2 * mean_s)
    return math.sqrt(2 * write_s * mean_s) * (1 + math.sqrt(part) / 3 + part / 9) - write_s


def useful_share(interval_s: float, write_s: float, mean_s: float, pause_s: float = 0.0) -> float:
    """Expected share of time that ends up in kept training, with exponential losses.

    Each loss costs what was done since the last checkpoint and a pause, which may itself be
    interrupted and starts anew then (Daly, section 3).

    Args:
        interval_s: Training between two checkpoints, s.
        write_s: Time to write one, in which nothing is trained, s.
        mean_s: Mean time between losses, s.
        pause_s: Time from a loss until training goes on, s.
    """
    return (
        interval_s / mean_s * math.exp(-pause_s / mean_s)
        / math.expm1((interval_s + write_s) / mean_s)
    )  # fmt: skip
