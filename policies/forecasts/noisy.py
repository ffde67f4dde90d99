"""A provider's day-ahead forecast, assumed: the truth with errors."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.forecasts.history import HistoryConfig, mean_by_time
from wattkeeper.policies.numerics import portable


class Noisy(Forecast):
    """See `NoisyConfig`."""

    def __init__(self, config: NoisyConfig) -> None:
        self.config = config
        self._afterwards = HistoryConfig().build()

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The truth with errors for a day, then `history`."""
        if known.truth is None or known.rng is None:
            raise PolicyError("the forecast 'noisy' needs the true values, which are unknown here")
        predicted: Floats = self._afterwards.predict(known, slots)
        near = min(slots, known.slots_per_day, len(known.truth))
        steps = known.rng().normal(0.0, self.config.error, known.slots_per_day)
        errors, error = np.zeros(near), 0.0
        for ahead in range(1, near):
            error = self.config.correlation * error + steps[ahead - 1]
            errors[ahead] = error
        predicted[:near] = known.truth[:near] * (1 + errors)
        if self.config.fade_s is not None and slots > near:
            predicted[near:] = _extend(known, predicted[:near], slots, self.config.fade_s)
        return predicted


def _extend(known: KnownSignal, near: Floats, slots: int, fade_s: float) -> Floats:
    """Means by time of day, plus the mean deviation of the last hours before, fading."""
    day = known.slots_per_day
    means = mean_by_time(known.values, day, HistoryConfig().days)
    deviation = np.mean((near - means[: len(near)])[-max(1, day // 4) :])
    ahead = np.arange(len(near), slots)
    since_s = known.slot_s * np.arange(1, slots - len(near) + 1, dtype=np.float64)
    fading = portable.exp(-since_s / fade_s)
    return np.asarray(means[ahead % day] + deviation * fading)


class NoisyConfig(ForecastConfig):
    """An assumed day-ahead forecast: the true values of the next 24 h with errors, then `history`.

    The relative error of the present slot is 0; from slot to slot it is
    ``correlation * e + N(0, error)``. Each slot's forecast has errors of its own.
    """

    kind: Literal["noisy"] = "noisy"
    forecast = Noisy
    needs_foresight: ClassVar[bool] = True
    assumption: ClassVar[str] = "assumed errors"
    daily: ClassVar[bool] = True
    correlation: float = Field(default=0.97, ge=0, lt=1)
    """Share of a slot's relative error that the next slot has, too."""
    error: float = Field(default=0.02, ge=0, le=1)
    """Standard deviation of what each slot adds to the relative error."""
    fade_s: float | None = Field(default=None, gt=0, le=1e9)
    """Time in which the deviation of the last quarter of the day from the means by time of day
    fades to 1/e after it, s; if absent, `history` follows as seen from the present slot."""
