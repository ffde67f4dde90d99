"""Chase's forecast: support-vector regression on time of day and the value before."""

from __future__ import annotations

import math
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.forecasts._svr import Regression, fit_regression
from wattkeeper.policies.numerics.portable import each

DIGITS: Final = 6
"""Decimals of forecasts, so that all machines have the same ones."""


class ChaseSvr(Forecast):
    """See `ChaseSvrConfig`."""

    def __init__(self, config: ChaseSvrConfig) -> None:
        self.config = config
        self._fitted: tuple[bytes, Regression] | None = None

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The regression's value from the one before; the present value is not read."""
        day = known.slots_per_day
        regression = self._fit(known, day)
        first = len(known.values) - 1
        if first < 1:
            raise PolicyError(f"the forecast {self.config.kind!r} needs a value before the present")
        predicted = np.empty(slots)
        before = known.values[first - 1]
        for ahead, (sine, cosine) in enumerate(_times(np.arange(first, first + slots), day)):
            value = regression.predict(np.array([sine, cosine, before]))
            before = predicted[ahead] = round(value, DIGITS)
        return predicted

    def _fit(self, known: KnownSignal, day: int) -> Regression:
        """Train on the day before the last training; the same values are trained on once."""
        every = self.config.retrain_slots
        since = known.slot % every if every else known.slot
        end = len(known.values) - 1 - since
        if end < day:
            raise PolicyError(
                f"the forecast {self.config.kind!r} needs {day} values before the run; "
                f"there are {max(end, 0)}"
            )
        # A series that starts with the first training row has no value before it.
        window = known.values[max(end - day - 1, 0) : end]
        key = window.tobytes()
        if self._fitted is None or self._fitted[0] != key:
            targets = window[-day:]
            before = np.concatenate([window[:1], window[:-1]])[-day:]
            rows = np.column_stack([_times(np.arange(end - day, end), day), before])
            self._fitted = key, fit_regression(rows, targets)
        return self._fitted[1]


class ChaseSvrConfig(ForecastConfig):
    """Chase's forecast (ICLR '23 workshop), of the present slot from the value before it.

    A support-vector regression on the time of day and the value before, trained once on the day
    before second 0 of the run. Further slots are predicted from predictions.
    """

    kind: Literal["chase-svr"] = "chase-svr"
    forecast = ChaseSvr
    daily: ClassVar[bool] = True
    retrain_slots: int | None = Field(default=None, gt=0)
    """Number of slots after which it is trained anew, on the day before; never if absent."""

    def check(self, signal: str, slot_s: float, before: int) -> None:
        """Check that there is a day of values to train on."""
        super().check(signal, slot_s, before)
        day = KnownSignal(np.empty(0), slot_s).slots_per_day
        if before < day:
            raise InputError(
                f"the forecast {self.kind!r} of the signal {signal!r} is trained on the {day} "
                f"slots before the run; the series has {before} there"
            )


def _times(slots: Ints, day: int) -> Floats:
    """Sine and cosine of the time of day, shape (slots, 2).

    Slots are counted from the oldest known one: the kernel reads distances alone, which do not
    depend on where the day begins.
    """
    angles = 2 * np.pi * (slots % day + 1) / day
    return np.column_stack([each(math.sin, angles), each(math.cos, angles)])
