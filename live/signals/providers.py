"""Where values of live signals come from: services, and files that grow.

Electricity Maps: https://portal.electricitymaps.com/developer-hub/api/reference (v3). WattTime:
https://docs.watttime.org (v3).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from wattkeeper.live.signals.addresses import MAPS, WATTTIME
from wattkeeper.live.signals.http import NoAnswer, basic_authorization, get_json
from wattkeeper.policies.errors import EnvironmentLacks, TraceError
from wattkeeper.traces.electricity.forms import Quantity, SeriesOptions
from wattkeeper.traces.electricity.readers import read_series
from wattkeeper.traces.electricity.series import format_time

MAPS_TOKEN: Final = "ELECTRICITYMAPS_TOKEN"
WATTTIME_USER: Final = "WATTTIME_USER"
WATTTIME_PASSWORD: Final = "WATTTIME_PASSWORD"

HISTORY_S: Final = 8 * 86_400.0
"""So much of the past is asked for, where a service has it."""
GRAMS_PER_POUND: Final = 453.59237
TOKEN_S: Final = 1500.0
"""A token of WattTime holds for 30 minutes; a new one is asked for before."""
MOST_VALUE: Final = 1e9
SLOT_PART: Final = 1e-3
"""By so much of a slot, times in a file may differ from whole slots."""


class SlotValue(NamedTuple):
    """The value of a slot that begins at a time, in seconds since 1970 (UTC)."""

    begin_s: float
    value: float


class Provider(Protocol):
    """Gives values of one signal.

    Attributes:
        identity: What it gives, without secrets; names its cache and stands in results.
        is_cached: Whether answers are kept for runs that begin or resume soon.
        unit: Of the values.
    """

    identity: str
    is_cached: bool
    unit: str

    @property
    def slot_s(self) -> float:
        """Length of all slots, s; of a file once it was read."""

    def history(self) -> list[SlotValue]:
        """Slots that have begun, oldest first.

        Raises:
            EnvironmentLacks: If there is no answer, or no file.
        """

    def latest(self) -> list[SlotValue]:
        """The last slots that have begun, oldest first; at least one."""


class ElectricityMaps:
    """Average carbon intensity of a zone by hour, g/kWh; see `Provider` for its methods.

    Raises:
        EnvironmentLacks: If there is no token in the environment.
    """

    is_cached = True
    unit = "g/kWh"
    slot_s = 3600.0

    def __init__(self, zone: str, address: str = MAPS) -> None:
        self.identity = f"Electricity Maps, zone {zone}, {address}"
        self._query, self._address = {"zone": zone}, f"{address}/v3/carbon-intensity"
        self._headers = {"auth-token": _secret(MAPS_TOKEN)}

    def history(self) -> list[SlotValue]:
        """The last 24 hours."""
        return self._ask("history")

    def latest(self) -> list[SlotValue]:
        """The present hour, or the last one that is known."""
        return self._ask("latest")

    def _ask(self, what: str) -> list[SlotValue]:
        address = f"{self._address}/{what}"
        answer = get_json(address, self._query, self._headers)
        rows = answer.get("history") if what == "history" else [answer]
        return _readings(rows, "datetime", "carbonIntensity", 1.0, address)


class WattTime:
    """Marginal emissions of a region by five minutes, g/kWh; see `Provider` for its methods.

    Raises:
        EnvironmentLacks: If there are no user and password in the environment.
    """

    is_cached = True
    unit = "g/kWh"
    slot_s = 300.0

    def __init__(self, region: str, address: str = WATTTIME) -> None:
        self.identity = f"WattTime, region {region}, co2_moer, {address}"
        self._query, self._address = {"region": region, "signal_type": "co2_moer"}, address
        self._login = basic_authorization(_secret(WATTTIME_USER), _secret(WATTTIME_PASSWORD))
        self._token, self._token_s = "", -math.inf

    def history(self) -> list[SlotValue]:
        """The last eight days, as far as the plan of the user has them."""
        now = datetime.fromtimestamp(time.time(), UTC)
        begin = datetime.fromtimestamp(time.time() - HISTORY_S, UTC)
        span = {
            "start": begin.isoformat(timespec="seconds"),
            "end": now.isoformat(timespec="seconds"),
        }
        return self._ask("historical", span)

    def latest(self) -> list[SlotValue]:
        """The present five minutes, which the forecast begins with."""
        return self._ask("forecast", {})[:1]

    def _ask(self, what: str, span: Mapping[str, str]) -> list[SlotValue]:
        if time.monotonic() - self._token_s > TOKEN_S:
            answer = get_json(f"{self._address}/login", {}, self._login)
            token = answer.get("token")
            if not isinstance(token, str) or not token.isascii() or not token.isprintable():
                raise NoAnswer(f"{self._address}/login answers without a token")
            self._token, self._token_s = token, time.monotonic()
        address = f"{self._address}/v3/{what}"
        try:
            answer = get_json(
                address, self._query | dict(span), {"Authorization": f"Bearer {self._token}"}
            )
        except EnvironmentLacks:
            self._token_s = -math.inf  # it may have expired
            raise
        per_mwh = GRAMS_PER_POUND / 1e3
        return _readings(answer.get("data"), "point_time", "value", per_mwh, address)


class GrowingFile(Provider):
    """A CSV file to which rows are appended; see `Provider` for its methods.

    What follows its last line break is not read: it may be half written. Slots without a row are
    left out; the others are whole numbers of slots apart, of the length that was usual at first.

    Args:
        path: The file.
        quantity: What the values are.
        options: What the file does not state.
        slot_s: Length of its slots, s; NaN: that which is usual when it is first read.
    """

    is_cached = False

    def __init__(
        self, path: Path, quantity: Quantity, options: SeriesOptions, slot_s: float = math.nan
    ) -> None:
        self.identity = f"file {path.name}"
        self.unit = options.unit
        self._path, self._quantity, self._options = path, quantity, options
        self._slot_s = slot_s
        self._seen: tuple[int, int] | None = None
        self._readings: list[SlotValue] = []

    @property
    @override
    def slot_s(self) -> float:
        return self._slot_s

    def history(self) -> list[SlotValue]:
        """All rows."""
        try:
            state = self._path.stat()
            seen = state.st_mtime_ns, state.st_size
            if seen != self._seen:
                self._read()
                self._seen = seen
        except OSError as error:
            raise EnvironmentLacks(
                f"{self._path}: {error.strerror}; a live run needs the file from its start on, "
                "with two values or more"
            ) from None
        return self._readings

    def latest(self) -> list[SlotValue]:
        """All rows."""
        return self.history()

    def _read(self) -> None:
        whole, _, _ = self._path.read_bytes().rpartition(b"\n")
        with TemporaryDirectory() as folder:
            copy = Path(folder) / self._path.name
            copy.write_bytes(whole + b"\n")
            try:
                options = self._options._replace(fill="previous", stamp="start")
                series = read_series(copy, self._quantity, options)
            except TraceError as error:
                text = str(error).replace(str(copy), str(self._path))
                raise EnvironmentLacks(text) from None
        slot_s = self._slot_s if self._slot_s > 0 else series.end_s - float(series.start_s[-1])
        steps = np.diff(series.start_s) / slot_s
        odd = np.flatnonzero((np.abs(steps - np.round(steps)) > SLOT_PART) | (steps < 0.5))
        if odd.size:
            before_s, after_s = series.start_s[odd[0] : odd[0] + 2].tolist()
            raise EnvironmentLacks(
                f"{self._path}: {format_time(after_s)} is {after_s - before_s:g} s after "
                f"{format_time(before_s)}; slots of {slot_s:g} s were usual at first, and a live "
                "signal needs times that are whole numbers of such slots apart"
            )
        self.unit, self._slot_s = series.unit, slot_s
        begin_s = series.start_s - (slot_s if self._options.stamp == "end" else 0.0)
        rows = zip(begin_s.tolist(), series.value.tolist(), strict=True)
        self._readings = [SlotValue(*row) for row in rows]


def _secret(name: str) -> str:
    value = os.environ.get(name, "")
    if not value or not value.isprintable() or not value.isascii():
        raise EnvironmentLacks(
            f"{name}: the environment needs it, in printable ASCII, to ask for a live signal"
        )
    return value


def _readings(
    rows: Any, time_key: str, value_key: str, factor: float, address: str
) -> list[SlotValue]:
    """The values of rows that have one, by ascending time.

    Raises:
        NoAnswer: If they are no such rows, or none has a value.
    """
    readings = list(_parse_rows(rows if isinstance(rows, list) else [], time_key, value_key))
    if not readings:
        raise NoAnswer(
            f"{address} answers without a value: objects with {time_key} (a date) and {value_key} "
            "(a number) are needed"
        )
    by_time = {begin_s: value * factor for begin_s, value in readings}
    return [SlotValue(begin_s, by_time[begin_s]) for begin_s in sorted(by_time)]


def _parse_rows(rows: Iterable[Any], time_key: str, value_key: str) -> Iterable[SlotValue]:
    for row in rows:
        value = row.get(value_key) if isinstance(row, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # the service does not know it yet
        try:
            moment = datetime.fromisoformat(str(row.get(time_key)))
        except ValueError:
            continue
        if moment.tzinfo is not None and 0 <= value <= MOST_VALUE:
            yield SlotValue(moment.timestamp(), float(value))
