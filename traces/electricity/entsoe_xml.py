"""Documents of the web API of ENTSO-E's Transparency Platform: time series as XML.

A document has ``TimeSeries``, each with a ``curveType`` and a ``Period`` or several: an interval,
a resolution, and points at positions that count from 1. Of curve A01, each position has its point;
of A03, a point holds until the next one. Sources: ENTSO-E's implementation guides of
``Publication_MarketDocument`` (prices) and ``GL_MarketDocument`` (generation and load).
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.electricity.texts import Texts
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS, MOST_SLOTS
from wattkeeper.traces.readers.csvfile import quote, read_whole

DOCUMENTS: Final = ("Publication_MarketDocument", "GL_MarketDocument")
PRICE, QUANTITY = "price.amount", "quantity"
RESOLUTION: Final = re.compile(r"PT(?:(\d{1,4})H)?(?:(\d{1,5})M)?")
SEQUENCE: Final = "classificationSequence_AttributeInstanceComponent.position"
AREAS: Final = (
    "in_Domain.mRID",
    "inBiddingZone_Domain.mRID",
    "outBiddingZone_Domain.mRID",
    "controlArea_Domain.mRID",
)
DEEPEST: Final = 32
TOO_MANY: Final = f"has more than {MOST_SLOTS:,} values, more than are read"
UNITS: Final = {"MWH": "MWh", "KWH": "kWh", "MAW": "MW", "KWT": "kW"}
ABOUT: Final = ("end", "area", "sequence", "unit")
"""Columns besides those of the start of a slot and the value."""
OF_SERIES: Final = (
    *AREAS,
    SEQUENCE,
    "curveType",
    "currency_Unit.name",
    "price_Measure_Unit.name",
    "quantity_Measure_Unit.name",
    "contract_MarketAgreement.type",
)


class _Refused(Exception):
    """What is wrong, at the line that the parser is in."""


class _Point(NamedTuple):
    """A point as it is written, and its line."""

    line: int
    position: str
    value: str


def read_document(path: Path) -> Texts:
    """The values of a document: columns ``start``, `PRICE` or `QUANTITY`, and `ABOUT`.

    Documents with a type declaration, and so all that could define entities, are refused.

    Raises:
        TraceError: If it is no such document, or wrong; with the lines.
    """
    reader = _Reader(path)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = lambda name, _: reader.begin(name, parser.CurrentLineNumber)
    parser.EndElementHandler = lambda name: reader.end(parser.CurrentLineNumber)
    parser.CharacterDataHandler = reader.add
    try:
        parser.Parse(read_whole(path, MOST_BYTES), True)
    except expat.ExpatError as error:
        text = f"is no valid XML: {expat.errors.messages[error.code]}"
        raise TraceError(text, f"{path}, line {error.lineno}") from None
    except (LookupError, ValueError) as error:  # of its encoding
        raise TraceError(f"is in an encoding that is not read: {error}", path) from None
    except _Refused as error:
        raise TraceError(str(error), f"{path}, line {parser.CurrentLineNumber}") from None
    return reader.finish()


def _refuse_doctype(*_: Any) -> None:
    raise _Refused("has a document type declaration, as no export of ENTSO-E has")


class _Reader:
    """Reads elements as they come; what is wrong is kept with its line."""

    def __init__(self, path: Path) -> None:
        self._path, self._tags, self._text = path, list[str](), list[str]()
        self._series: dict[str, str] = {}
        self._period: dict[str, str] = {}
        self._point: dict[str, str] = {}
        self._points: list[_Point] = []
        self._columns: tuple[list[str], ...] = ([], [], *([] for _ in ABOUT))
        self._lines: list[int] = []
        self._wrong: list[Problem] = []
        self._reason, self._line = "", 0
        self._unit, self._column = "", ""

    def begin(self, name: str, line: int) -> None:
        """An element begins."""
        tag = name.rpartition(":")[2]
        if not self._tags and tag not in (*DOCUMENTS, "Acknowledgement_MarketDocument"):
            raise _Refused(f"is {quote(tag)}, must be {' or '.join(DOCUMENTS)}")
        if len(self._tags) == DEEPEST:
            raise _Refused(f"has elements in more than {DEEPEST} others")
        self._tags.append(tag)
        self._text.clear()
        if tag == "TimeSeries":
            self._series = {}
        elif tag == "Period":
            self._period, self._points = {}, []
        elif tag == "Point":
            self._point, self._line = {}, line

    def add(self, text: str) -> None:
        """Text of the element."""
        self._text.append(text)

    def end(self, line: int) -> None:
        """The element ends."""
        tag, text = self._tags.pop(), "".join(self._text).strip()
        self._text.clear()
        if tag == "text" and "Reason" in self._tags:
            self._reason = text
        elif "Point" in self._tags:
            self._point.setdefault(tag, text)
        elif tag == "Point":
            self._end_point()
        elif "Period" in self._tags:
            self._period.setdefault(tag, text)
        elif tag == "Period":
            self._end_period(line)
        elif self._tags[-1:] == ["TimeSeries"] and tag in OF_SERIES:
            if self._points:
                raise _Refused(f"{tag} is behind the points of its TimeSeries")
            self._series[tag] = text
        elif tag == "TimeSeries":
            self._points = []

    def finish(self) -> Texts:
        """All rows as columns of text.

        Raises:
            TraceError: With all faults.
        """
        if self._wrong:
            raise TraceError(self._wrong)
        if not self._lines:
            said = f": {self._reason}" if self._reason else ""
            raise TraceError(f"has no values{said}", self._path)
        arrays = [pa.array(column, pa.string()) for column in self._columns]
        lines = np.array(self._lines, dtype=np.int64)
        return Texts(pa.table(arrays, names=["start", self._column, *ABOUT]), lines, "line")

    def _end_period(self, line: int) -> None:
        try:
            self._add_slots()
        except ValueError as error:
            self._fault(str(error), self._points[0].line if self._points else line)

    def _end_point(self) -> None:
        if len(self._points) == MOST_SLOTS:
            raise _Refused(TOO_MANY)
        self._column = self._column or (PRICE if PRICE in self._point else QUANTITY)
        position, value = (self._point.get(tag, "") for tag in ("position", self._column))
        self._points.append(_Point(self._line, position, value))

    def _fault(self, text: str, line: int) -> None:
        self._wrong.append(Problem(text, f"{self._path}, line {line}"))
        if len(self._wrong) == MOST_FAULTS:
            raise TraceError(self._wrong)

    def _add_slots(self) -> None:
        """Add the slots of a period.

        Raises:
            ValueError: If its interval, resolution or curve is wrong.
        """
        curve = self._series.get("curveType", "A01")
        if curve not in ("A01", "A03"):
            raise ValueError(f"curveType is {quote(curve)}, must be A01 or A03")
        start_s, end_s = (_seconds(self._period, name) for name in ("start", "end"))
        step_s = _step_s(self._period.get("resolution", ""))
        count = round((end_s - start_s) / step_s)
        if count < 1 or start_s + count * step_s != end_s:
            text = f"{self._period['start']} to {self._period['end']}"
            raise ValueError(f"the interval {text} is no whole number of slots of {step_s:g} s")
        if count + len(self._lines) > MOST_SLOTS:
            raise _Refused(TOO_MANY)
        values = self._values(count)
        if self._wrong:
            return
        about, held = self._about(), None
        for place in range(1, count + 1):
            held = values.get(place, held if curve == "A03" else None)
            if held is None:
                needs = "its first one" if curve == "A03" else "each one"
                raise ValueError(f"position {place} has no point; a curve {curve} needs {needs}")
            begin, end = (_moment(start_s + slot * step_s) for slot in (place - 1, place))
            texts = (begin, held.value, end, *about)
            for column, text in zip(self._columns, texts, strict=True):
                column.append(text)
            self._lines.append(held.line)

    def _values(self, count: int) -> Mapping[int, _Point]:
        """The points by position."""
        values: dict[int, _Point] = {}
        for point in self._points:
            line, text, value = point
            place = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
            if not 1 <= place <= count:
                self._fault(f"position is {quote(text)}, must be 1 to {count}", line)
            elif place in values:
                self._fault(f"repeats position {place} of line {values[place].line}", line)
            elif not value:
                self._fault(f"has no {self._column}", line)
            else:
                values[place] = point
        return values

    def _about(self) -> tuple[str, str, str]:
        """Area, sequence and unit of the series.

        Raises:
            ValueError: If the unit is not that of the series before.
        """
        said = self._series
        area = next((said[name] for name in AREAS if name in said), "")
        sequence = f"sequence {said.get(SEQUENCE, '1')}"
        if agreement := said.get("contract_MarketAgreement.type"):
            sequence = f"{agreement} {sequence}"
        measure = said.get("price_Measure_Unit.name", said.get("quantity_Measure_Unit.name", ""))
        measure = UNITS.get(measure, measure)
        currency = said.get("currency_Unit.name")
        unit = f"{currency}/{measure or 'MWh'}" if currency else measure
        if unit != (self._unit or unit):
            raise ValueError(f"is in {quote(unit)}, and series before are in {quote(self._unit)}")
        self._unit = unit
        return area, sequence, unit


def _moment(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _seconds(period: Mapping[str, str], name: str) -> float:
    text = period.get(name, "")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and 1970 <= moment.year < 2198:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name} of the interval is {quote(text)}, must be as 2024-01-31T23:00Z")


def _step_s(text: str) -> float:
    found = RESOLUTION.fullmatch(text)
    step_s = 3600.0 * int(found[1] or 0) + 60.0 * int(found[2] or 0) if found else 0.0
    if not step_s:
        must = "must be hours or minutes, as PT60M or PT15M"
        raise ValueError(f"resolution is {quote(text)}, {must}")
    return step_s
