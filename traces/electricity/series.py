"""A price or a carbon intensity over time, and its integral."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Literal

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import TraceError

DAY_S: Final = 86400.0
Repeat = Literal["year", "week", "day"]
PERIODS_S: Final[dict[Repeat, float]] = {"year": 364 * DAY_S, "week": 7 * DAY_S, "day": DAY_S}
"""After which a series repeats; a year has 52 whole weeks, so that days of the week stay."""


def format_time(time_s: float) -> str:
    """A time in seconds since 1970, as in messages: in UTC, to the second."""
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g} s after 1970"


@dataclass(frozen=True, eq=False)
class Series:
    """Values of slots in time, without gaps and overlaps; each is constant within its slot.

    Attributes:
        start_s: Start of each slot, seconds since 1970-01-01 00:00:00 UTC, ascending, shape
            (slots,).
        end_s: End of the last slot.
        value: Of each slot, per kWh, shape (slots,).
        unit: ``g/kWh``, or ``CURRENCY/kWh``.
        kind: ``average`` or ``marginal``; empty for a price.
        source: The file.
        area: Part of the grid, in the words of the file; empty if it does not say.
        repeat: Whether the values repeat before the start and after the end, and with what period.
        notes: What a reader must know: what was read, converted, left out, filled.
    """

    start_s: Floats
    end_s: float
    value: Floats
    unit: str
    kind: str = ""
    source: str = ""
    area: str = ""
    repeat: Repeat | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.repeat and self.end_s - self.start_s[0] < (period := PERIODS_S[self.repeat]):
            held = (self.end_s - self.start_s[0]) / DAY_S
            text = f"holds {held:.6g} days; repeat: {self.repeat} needs {period / DAY_S:g}"
            raise TraceError(text, self.source)

    def integral(
        self, from_s: Floats | float, until_s: Floats | float, origin_s: float = 0
    ) -> Floats:
        """The integral of the value over time, in its unit times seconds, of many spans at once.

        It is exact but for rounding. Times are in seconds since `origin_s`, which is in seconds
        since 1970 (UTC); of any one shape.

        Raises:
            TraceError: If a span reaches out of the series, and it does not repeat.
        """
        begin, end = np.asarray(from_s, dtype=float), np.asarray(until_s, dtype=float)
        shift = origin_s - self._start
        parts = self._accumulate(end + shift) - self._accumulate(begin + shift)
        return np.asarray(self._base * (end - begin) + parts)

    def at(self, time_s: Floats | float, origin_s: float = 0) -> Floats:
        """The value at each time, at the end that of the last slot; times, errors as `integral`."""
        times = np.asarray(time_s, dtype=float) + (origin_s - self._start)
        times = times - self._laps(times)[0]
        return np.asarray(self.value[np.searchsorted(self._starts[1:], times, side="right")])

    def describe_use(self, from_s: float, until_s: float) -> tuple[str, ...]:
        """The notes, and how much of a window lies outside of the series and repeats it."""
        start, length = float(self.start_s[0]), until_s - from_s
        within = max(0.0, min(until_s, self.end_s) - max(from_s, start))
        if not self.repeat or length <= 0 or within == length:
            return self.notes
        text = (
            f"{100 * (1 - within / length):.3g} % of the time from {format_time(from_s)} to "
            f"{format_time(until_s)} is outside of {self.source}, which covers "
            f"{format_time(start)} to {format_time(self.end_s)}: its nearest {self.repeat}"
            f"{' (364 days)' if self.repeat == 'year' else ''} is repeated there"
        )
        return (*self.notes, text)

    @cached_property
    def _start(self) -> float:
        """The origin of times within: differences of small numbers are exact."""
        return float(self.start_s[0])

    @cached_property
    def _length(self) -> float:
        return self.end_s - self._start

    @cached_property
    def _starts(self) -> Floats:
        return self.start_s - self._start

    @cached_property
    def _base(self) -> float:
        """The median: what is accumulated beside it is small, and so is its rounding error."""
        middle = len(self.value) // 2
        return float(np.partition(self.value, middle)[middle])

    @cached_property
    def _accumulated(self) -> Floats:
        """The integral of the value over `_base` until the start of each slot."""
        parts = (self.value[:-1] - self._base) * np.diff(self._starts)
        return np.concatenate([[0.0], np.cumsum(parts)])

    @cached_property
    def _step(self) -> float:
        """Length of all slots; 0 if they differ."""
        steps = np.diff(np.append(self._starts, self._length))
        return float(steps[0]) if (steps == steps[0]).all() else 0.0

    def _accumulate_within(self, times: Floats) -> Floats:
        if self._step:  # beside an edge, either slot gives the same integral
            slots = np.minimum((times / self._step).astype(np.intp), len(self.value) - 1)
        else:
            slots = np.searchsorted(self._starts[1:], times, side="right")
        rates = self.value[slots] - self._base
        return np.asarray(self._accumulated[slots] + rates * (times - self._starts[slots]))

    def _accumulate(self, times: Floats) -> Floats:
        """The integral of the value over `_base` from the start until each time."""
        moves, left_out = self._laps(times)
        return self._accumulate_within(times - moves) + left_out

    def _laps(self, times: Floats) -> tuple[Floats, Floats]:
        """By how much each time is to be moved into the series, and the integral of that."""
        if not ((times < 0) | (times > self._length)).any():
            return np.zeros_like(times), np.zeros_like(times)
        if not self.repeat:
            first, last = (format_time(self._start + float(t)) for t in (times.min(), times.max()))
            raise TraceError(
                f"covers {format_time(self._start)} to {format_time(self.end_s)}, not {first} to "
                f"{last}; give a longer series, or `repeat: year`, `week` or `day`",
                self.source,
            )
        period = PERIODS_S[self.repeat]
        edges = np.array([0, period, self._length - period, self._length])
        first_period, _, last_period = np.diff(self._accumulate_within(edges))
        before = np.minimum(np.floor(times / period), 0.0)
        after = np.maximum(np.ceil((times - self._length) / period), 0.0)
        return (before + after) * period, before * first_period + after * last_period
