"""The last day repeats."""

from typing import ClassVar, Literal

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal


class DayBefore(Forecast):
    """See `DayBeforeConfig`."""

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The last value at each time of day; the present value where there is none."""
        day = known.slots_per_day
        last = np.full(day, known.values[-1])  # of the slots after the present one, oldest first
        values = known.values[-day:]
        last[day - len(values) :] = values
        return last[(np.arange(slots) - 1) % day]


class DayBeforeConfig(ForecastConfig):
    """Each slot has the last known value at its time of day; the present one if none is known."""

    kind: Literal["day-before"] = "day-before"
    forecast = DayBefore
    daily: ClassVar[bool] = True
