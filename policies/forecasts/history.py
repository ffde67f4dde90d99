"""The mean of the last days by time of day, plus the present deviation from it, fading."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.numerics import portable


class History(Forecast):
    """See `HistoryConfig`."""

    def __init__(self, config: HistoryConfig) -> None:
        self.config = config

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The mean by time of day plus the fading deviation."""
        ahead = np.arange(slots)
        means = mean_by_time(known.values, known.slots_per_day, self.config.days)
        deviation = known.values[-1] - means[0]
        fading = portable.exp(-known.slot_s / self.config.fade_s * ahead)
        return np.asarray(means[ahead % len(means)] + deviation * fading)


class HistoryConfig(ForecastConfig):
    """Each slot has the mean of the last days at its time of day, plus the present deviation.

    The deviation of the present value from its mean fades exponentially. Where no value is known at
    a time of day, the present value takes its mean's place.
    """

    kind: Literal["history"] = "history"
    forecast = History
    daily: ClassVar[bool] = True
    days: int = Field(default=7, gt=0, le=366)
    """Number of days that are averaged."""
    fade_s: float = Field(default=21_600.0, gt=0, le=1e9)
    """Time in which the deviation fades to 1/e of it, s."""


def mean_by_time(values: Floats, day: int, days: int) -> Floats:
    """Mean of the last days by time of day, shape (day,); the present time of day comes first.

    Args:
        values: By slot, oldest first; the last one is that of the present slot.
        day: Slots of a day.
        days: Number of days.
    """
    recent = values[-day * days :]
    rows = -(-len(recent) // day)
    padded = np.full(rows * day, np.nan)
    padded[rows * day - len(recent) :] = recent
    table = padded.reshape(rows, day)
    count = rows - np.isnan(table).sum(axis=0)
    means = np.where(count, np.nansum(table, axis=0) / np.maximum(count, 1), values[-1])
    return np.roll(means, 1)
