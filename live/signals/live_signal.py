"""A signal whose values arrive during the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.signals import SignalView
from wattkeeper.sim.kernel.clock import Clock
from wattkeeper.sim.kernel.signals import SignalSource


class TimedValue(NamedTuple):
    """The value of a slot that begins at a time of the run, s."""

    since_s: float
    value: float


class LiveSignal(SignalSource):
    """Values of slots of one length, as far as they have arrived.

    While the value of a slot has not arrived, that of the last one holds; a value that comes when
    its slot is over replaces what stood in for it. See
    `wattkeeper.sim.kernel.signals.SignalSource`.

    Args:
        name: The signal's name.
        unit: Of its values.
        slot_s: Length of all slots, s.
        known: Values that are known at the beginning, oldest first; at least one.
        forecast: How it is predicted; None: it is not.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        slot_s: float,
        known: Sequence[TimedValue],
        forecast: ForecastConfig | None,
    ) -> None:
        self.name, self.unit, self.slot_s = name, unit, slot_s
        self.since_s, first = known[0]
        self._values = [first]
        self._forecast: Forecast | None = None if forecast is None else forecast.build()
        for timed in known[1:]:
            self.receive(timed)
        self.before = len(self._values)

    def receive(self, timed: TimedValue) -> bool:
        """Take a value over; slots that were left out keep the one before.

        Returns:
            Whether a slot has another value now: False for one of the past.
        """
        slots = round((timed.since_s - self.since_s) / self.slot_s)
        if slots < 0:
            if -slots < len(self._values):
                self._values[slots - 1] = timed.value
            return False
        if slots == 0 and timed.value == self._values[-1]:
            return False
        if slots == 0:
            self._values[-1] = timed.value
            return True
        self._values += [self._values[-1]] * (slots - 1) + [timed.value]
        self.since_s = timed.since_s
        return True

    def next_change_s(self, after_s: float) -> float:
        """Infinite: it is not known when a value arrives."""
        return math.inf

    @override
    def view(self, clock: Clock) -> _View:
        return _View(self, clock)

    def late_slots(self, now_s: float) -> int:
        """Slots that have begun since the last one with a value."""
        return max(0, math.floor((now_s - self.since_s) / self.slot_s))

    def known(self, now_s: float, slots: int | None = None) -> Floats:
        """Values of the last slots, the present one last; all without a number."""
        values = self._values + [self._values[-1]] * self.late_slots(now_s)
        return np.array(values if slots is None else values[-slots:] if slots else [])

    def predict(self, now_s: float, slots: int) -> Floats:
        """The forecast of the present slot and of those after it.

        Raises:
            PolicyError: If it has no forecast.
        """
        if self._forecast is None:
            raise PolicyError(f"the signal {self.name!r} has no forecast: state one (`forecast`)")
        values = self.known(now_s)
        known = KnownSignal(values, self.slot_s, len(values) - self.before)
        predicted: Floats = self._forecast.predict(known, slots)
        return predicted


class _View(SignalView):
    """See `wattkeeper.policies.signals.SignalView`."""

    def __init__(self, signal: LiveSignal, clock: Clock) -> None:
        self._signal = signal
        self._clock = clock

    @property
    @override
    def unit(self) -> str:
        return self._signal.unit

    @property
    def slot_s(self) -> float:
        return self._signal.slot_s

    @property
    def value(self) -> float:
        return float(self._signal.known(self._clock.now_s, 1)[-1])

    @property
    def since_s(self) -> float:
        signal = self._signal
        return signal.since_s + signal.late_slots(self._clock.now_s) * signal.slot_s

    @property
    def until_s(self) -> float:
        return self.since_s + self._signal.slot_s

    def history(self, slots: int) -> Floats:
        return self._signal.known(self._clock.now_s, slots)

    def forecast(self, slots: int) -> Floats:
        return self._signal.predict(self._clock.now_s, slots)
