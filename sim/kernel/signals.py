"""Signals of a run: values over time, what policies know of them, and their forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.forecasting import DAY_S, Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.signals import SignalView
from wattkeeper.sim.kernel.clock import Clock
from wattkeeper.sim.kernel.streams import RandomStreams

KNOWN_DAYS = 8
"""So many days before second 0 are known of a series that repeats."""


class SignalSource(Protocol):
    """A named series of values over the time of a run."""

    def next_change_s(self, after_s: float) -> float:
        """When the first slot after a time (s) begins, s; infinite if there is none."""

    def view(self, clock: Clock) -> SignalView:
        """The signal as a policy sees it at the time of a clock."""


@dataclass(frozen=True, eq=False)
class SignalSeries:
    """Values of slots; each is constant within its slot.

    Slots are numbered from 0. With a period, the slots of the last one repeat after the end, and
    those of the first one before the start, with negative numbers.

    Attributes:
        name: The signal's name.
        start_s: Start of each slot, seconds since the start of the run, ascending, shape (slots,);
            negative infinity for a constant.
        value: Of each slot, shape (slots,).
        end_s: End of the last slot; infinite if its value holds for ever.
        unit: Unit of the values.
        period_s: Period after which the series repeats in both directions; None if it does not.
        is_made_up: Whether the values come from a formula.
    """

    name: str
    start_s: Floats
    value: Floats
    end_s: float = math.inf
    unit: str = ""
    period_s: float | None = None
    is_made_up: bool = False

    def slot(self, time_s: float) -> int:
        """The number of the slot of a time.

        Raises:
            InputError: If the series does not cover the time.
        """
        count, first_s, period_s = len(self.start_s), float(self.start_s[0]), self.period_s
        if first_s <= time_s < self.end_s:
            return _last_up_to(self.start_s, time_s)
        if period_s is None:
            raise InputError(
                f"signal {self.name!r} is known from {first_s:.12g} s to {self.end_s:.12g} s of "
                f"the run, which needs it at {time_s:.12g} s: give a longer series, or let it "
                "repeat (`repeat`)"
            )
        if time_s >= self.end_s:
            lap = math.floor((time_s - self.end_s) / period_s) + 1
            index = _last_up_to(self._tail_s, time_s - lap * period_s)
            return count + (lap - 1) * len(self._tail_s) + index
        lap = math.floor((time_s - first_s) / period_s)
        return lap * self._head + _last_up_to(self.start_s, time_s - lap * period_s)

    def begin_s(self, slot: int) -> float:
        """Start of a slot, s; of the one after the last, the end of the series."""
        count = len(self.start_s)
        if 0 <= slot < count:
            return float(self.start_s[slot])
        if self.period_s is None:
            return self.end_s
        if slot >= count:
            lap, index = divmod(slot - count, len(self._tail_s))
            return float(self._tail_s[index] + (lap + 1) * self.period_s)
        lap, index = divmod(slot, self._head)
        return float(self.start_s[index] + lap * self.period_s)

    def values(self, first: int, end: int) -> Floats:
        """Values of the slots from one up to another, as far as there are such slots."""
        count = len(self.start_s)
        if self.period_s is None or (first >= 0 and end <= count):
            return self.value[max(first, 0) : max(end, 0)]
        slots = np.arange(first, end)
        tail = len(self._tail_s)
        after = count - tail + (slots - count) % tail
        within = np.where(slots >= count, after, np.where(slots < 0, slots % self._head, slots))
        repeated: Floats = self.value[within]
        return repeated

    def changes(self, from_s: float, until_s: float) -> tuple[Floats, Floats]:
        """Start (s) and value of the slots of a span of time; the first one starts with it.

        Raises:
            InputError: If the series does not cover it.
        """
        first, last = self.slot(from_s), self.slot(until_s)
        inner = [self.begin_s(slot) for slot in range(first + 1, last + 1)]
        return np.array([from_s, *inner]), self.values(first, last + 1)

    def integral(self, times_s: Floats) -> Floats:
        """The integral of the value from second 0 until each time, in its unit times seconds.

        Times are at least 0, of any one shape.

        Raises:
            InputError: If the series does not cover a time; at its end, it does.
        """
        most_s = float(times_s.max(initial=0.0))
        first, last = self.slot(0.0), self.slot(math.nextafter(most_s, 0.0))
        inner = [self.begin_s(slot) for slot in range(first + 1, last + 1)]
        begins, values = np.array([0.0, *inner]), self.values(first, last + 1)
        before = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(begins))])
        at = np.searchsorted(begins, times_s, side="right") - 1
        return np.asarray(before[at] + values[at] * (times_s - begins[at]))

    @cached_property
    def slot_s(self) -> float:
        """Length of all slots, s; NaN if they differ."""
        lengths = np.diff(np.append(self.start_s, self.end_s))
        return float(lengths[0]) if np.allclose(lengths, lengths[0], rtol=1e-9) else math.nan

    @cached_property
    def before(self) -> int:
        """Number of slots that are known before that of second 0."""
        if self.period_s is None:
            return self.slot(0.0)
        return self.slot(0.0) - self.slot(-KNOWN_DAYS * DAY_S)

    @cached_property
    def _tail_s(self) -> Floats:
        """Starts of the slots that repeat after the end."""
        assert self.period_s is not None
        since_s = self.end_s - self.period_s
        return np.concatenate([[since_s], self.start_s[self.start_s > since_s]])

    @cached_property
    def _head(self) -> int:
        """Number of the slots that repeat before the start."""
        assert self.period_s is not None
        return int(np.count_nonzero(self.start_s < self.start_s[0] + self.period_s))


def _last_up_to(starts_s: Floats, time_s: float) -> int:
    return max(0, int(np.searchsorted(starts_s, time_s, side="right")) - 1)


class Signal(SignalSource):
    """A signal of one run.

    Args:
        series: Its values.
        forecast: How it is predicted; None: it is not.
        streams: Random streams of the run, for the errors of assumed forecasts.
    """

    def __init__(
        self, series: SignalSeries, forecast: ForecastConfig | None, streams: RandomStreams
    ) -> None:
        self.series = series
        self._config = forecast
        self._forecast: Forecast | None = None if forecast is None else forecast.build()
        self._streams = streams
        self._origin = series.slot(0.0)
        self._predicted_in = self._origin
        self._predicted: dict[int, Floats] = {}

    @override
    def next_change_s(self, after_s: float) -> float:
        return self.series.begin_s(self.series.slot(after_s) + 1)

    @override
    def view(self, clock: Clock) -> _View:
        return _View(self, clock)

    def known(self, slot: int, slots: int) -> Floats:
        """Values of the last slots up to one, as far as a policy knows them."""
        first = max(slot - slots + 1, self._origin - self.series.before)
        return self.series.values(first, slot + 1)

    def predict(self, slot: int, slots: int) -> Floats:
        """The forecast of a slot and those after it, made in that slot.

        Policies ask about one running job after the other: equal forecasts are made once.
        """
        if slot != self._predicted_in:
            self._predicted_in = slot
            self._predicted.clear()
        if slots not in self._predicted:
            self._predicted[slots] = self._predict(slot, slots)
        return self._predicted[slots].copy()

    def _predict(self, slot: int, slots: int) -> Floats:
        series, config = self.series, self._config
        if config is None or self._forecast is None:
            raise PolicyError(f"the signal {series.name!r} has no forecast: state one (`forecast`)")
        truth, rng = None, None
        if config.needs_foresight:
            truth = series.values(slot, slot + slots)

            def rng() -> np.random.Generator:
                return self._streams.policy("signal", f"{series.name}/{slot}")

        values = self.known(slot, slot - self._origin + series.before + 1)
        known = KnownSignal(values, series.slot_s, slot - self._origin, truth, rng)
        predicted: Floats = self._forecast.predict(known, slots)
        return predicted


class _View(SignalView):
    """A signal as policies see it at the time of a clock."""

    def __init__(self, signal: Signal, clock: Clock) -> None:
        self._signal = signal
        self._series = signal.series
        self._clock = clock
        self._known_s = math.nan
        self._known = 0

    @property
    def _slot(self) -> int:
        now_s = self._clock.now_s
        if now_s != self._known_s:
            self._known_s, self._known = now_s, self._series.slot(now_s)
        return self._known

    @property
    @override
    def unit(self) -> str:
        return self._series.unit

    @property
    def slot_s(self) -> float:
        return self._series.slot_s

    @property
    def value(self) -> float:
        slot = self._slot
        return float(self._series.values(slot, slot + 1)[0])

    @property
    def since_s(self) -> float:
        return self._series.begin_s(self._slot)

    @property
    def until_s(self) -> float:
        return self._series.begin_s(self._slot + 1)

    def history(self, slots: int) -> Floats:
        return self._signal.known(self._slot, slots).copy()

    def forecast(self, slots: int) -> Floats:
        return self._signal.predict(self._slot, slots)
