"""When to start a job that may wait: the start of the least cost on a forecast."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats


class Outlook(NamedTuple):
    """A signal from now on, as a sum over time.

    Attributes:
        time_s: Now, and the ends of the slots that follow, s, ascending, shape (slots + 1,).
        total: Integral of the signal from now up to each, shape (slots + 1,).
    """

    time_s: Floats
    total: Floats

    @classmethod
    def of(cls, now_s: float, until_s: float, slot_s: float, values: Floats) -> Outlook:
        """The outlook of values by slot, of which the first one ends at `until_s`.

        Args:
            now_s: Present time, s.
            until_s: End of the present slot, s.
            slot_s: Length of a slot, s.
            values: Of the present slot and of those after it, shape (slots,).
        """
        time_s = np.append(now_s, until_s + slot_s * np.arange(len(values)))
        return cls(time_s, np.append(0.0, np.cumsum(values * np.diff(time_s))))

    def cost(self, start_s: Floats, run_s: Floats | float) -> Floats:
        """Integral of the signal over runs, by start and run time in s; of the shape of these."""
        after = np.interp(start_s + run_s, self.time_s, self.total)
        return np.asarray(after - np.interp(start_s, self.time_s, self.total))


def best_start(outlook: Outlook, latest_s: float, run_s: float) -> tuple[float, float]:
    """The earliest start of the least cost from now to the latest one, and its cost.

    The cost is linear between the starts at which a slot begins or the run ends with one.

    Args:
        outlook: The signal, up to the end of a run that starts last.
        latest_s: Latest start, s; not before now.
        run_s: Run time, s.
    """
    now_s = float(outlook.time_s[0])
    ends_s = outlook.time_s - run_s
    starts_s = np.concatenate([[now_s, latest_s], outlook.time_s, ends_s])
    starts_s = np.unique(starts_s[(starts_s >= now_s) & (starts_s <= latest_s)])
    costs = outlook.cost(starts_s, run_s)
    index = int(np.argmin(costs))
    return float(starts_s[index]), float(costs[index])
