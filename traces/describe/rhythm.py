"""Rates of events in the parts of a cycle, such as the hours of a day."""

import numpy as np

from wattkeeper.policies.arrays import Floats


def rates(time_s: Floats, width_s: float, parts: int) -> Floats | None:
    """Mean number of events in each part of a cycle.

    Each count is divided by how often the span contains that part, so that a span of 25 Mondays and
    26 Tuesdays does not distort the rates.

    Args:
        time_s: Times of the events in s; a cycle begins at 0.
        width_s: Length of a part in s.
        parts: Parts of a cycle.

    Returns:
        Events per part, one number each; None if the span is shorter than a cycle.
    """
    cycle_s = width_s * parts
    first, last = float(time_s.min()), float(time_s.max())
    if last - first < cycle_s:
        return None
    place = np.minimum(np.mod(time_s, cycle_s) // width_s, parts - 1).astype(np.int64)
    begins = np.arange(parts) * width_s

    def held_s(until: float) -> Floats:
        rounds, rest = divmod(until, cycle_s)
        return np.asarray(rounds * width_s + np.clip(rest - begins, 0, width_s), dtype=np.float64)

    held = held_s(last) - held_s(first)
    return np.asarray(np.bincount(place, minlength=parts) * width_s / held, dtype=np.float64)
