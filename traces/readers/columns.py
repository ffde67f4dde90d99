"""From columns of text to canonical columns of numbers, times and texts.

Each function adds the rows that it cannot read to ``wrong`` (fault by 0-based row) and
continues, so that all faults of a batch are found at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.traces.readers.base import ConvertedRows, Kinds, TimeKind
from wattkeeper.traces.readers.csvfile import ABSENT, NUMBER, quote
from wattkeeper.traces.schema import JOBS

Wrong = dict[int, str]

DATE: Final = (
    r"^(?P<time>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?)"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?$"
)
WHOLE_BELOW: Final = 2.0**31
NO_TIMES: Final = Kinds()
WRITTEN: Final[Mapping[TimeKind, str]] = {
    "numbers": "numbers of seconds",
    "local": "dates without an offset from UTC",
    "offset": "dates with their offset from UTC",
}


def add_fault(wrong: Wrong, row: int, text: str) -> None:
    """Add a fault to those of a row."""
    wrong[row] = f"{wrong[row]}; {text}" if row in wrong else text


def add_faults(wrong: Wrong, rows: Bools, text: str) -> None:
    """Add a fault to those of several rows, given by a mask."""
    for row in np.flatnonzero(rows).tolist():
        add_fault(wrong, row, text)


def add_coded_faults(wrong: Wrong, codes: Ints, faults: Mapping[int, str]) -> None:
    """Add the fault of each code, where it has one, to those of the rows that have the code."""
    for row in np.flatnonzero(np.isin(codes, list(faults))).tolist():
        add_fault(wrong, row, faults[int(codes[row])])


def _add_values(wrong: Wrong, rows: Bools, cells: pa.Array, name: str, must: str) -> None:
    """Add a fault that quotes the cell to those of several rows."""
    for row in np.flatnonzero(rows).tolist():
        add_fault(wrong, row, f"{name} is {quote(cells[row].as_py())}, {must}")


def strip_cells(table: pa.Table, name: str) -> pa.Array:
    """A column of texts, surrounding white space removed."""
    column = table.column(name)
    chunk = (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.chunked_array(column.chunks, pa.string()).combine_chunks()
    )
    return pc.utf8_trim_whitespace(chunk)


def parse_texts(table: pa.Table, name: str, absent: Sequence[str] = ABSENT) -> pa.Array:
    """A column of texts; null where missing, or if there is no such column."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.string())
    cells = strip_cells(table, name)
    missing = pc.is_in(cells, value_set=pa.array(absent, pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), cells)


def parse_numbers(
    table: pa.Table,
    name: str,
    wrong: Wrong,
    *,
    whole: bool = False,
    needed: bool = False,
    absent: Sequence[str] = ABSENT,
    unit: str = "",
) -> Floats:
    """A column of numbers; NaN where missing, malformed, or if there is no such column.

    Args:
        table: Columns of text.
        name: The column.
        wrong: Receives the faults.
        whole: Whether values must be whole numbers that fit 32 bits.
        needed: Whether a missing value is a fault.
        absent: Texts that stand for a missing value.
        unit: Unit of the numbers, for messages.
    """
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    cells = strip_cells(table, name)
    missing = pc.is_in(cells, value_set=pa.array(absent, pa.string()))
    try:
        values = pc.if_else(missing, pa.scalar(None, pa.string()), cells).cast(pa.float64())
        bad: Bools = np.zeros(len(cells), dtype=bool)
    except pa.ArrowInvalid:
        readable = pc.match_substring_regex(cells, NUMBER)
        values = pc.if_else(readable, cells, pa.scalar(None, pa.string())).cast(pa.float64())
        bad = ~np.asarray(readable) & ~np.asarray(missing)
    result: Floats = np.array(values.fill_null(math.nan), dtype=float)
    if needed:
        bad |= np.asarray(missing)
    present = ~np.asarray(missing)
    with np.errstate(invalid="ignore"):
        bad |= present & ~np.isfinite(result)
        if whole:
            fits = (np.floor(result) == result) & (np.abs(result) < WHOLE_BELOW)
            bad |= present & ~fits
    must = "a whole number below 2147483648" if whole else "a finite number"
    must += f" of {unit}" if unit else ""
    _add_values(wrong, bad, cells, name, f"must be {must}")
    result[bad] = np.nan
    return result


class Times(NamedTuple):
    """A column of times.

    Attributes:
        seconds: Of each row; for dates since 1970-01-01 00:00:00. NaN as in `parse_numbers`.
        kinds: How they are written.
    """

    seconds: Floats
    kinds: Kinds


def parse_times(
    table: pa.Table,
    name: str,
    wrong: Wrong,
    kind: TimeKind | None = None,
    *,
    numbers: bool = True,
    needed: bool = False,
    absent: Sequence[str] = ABSENT,
    advice: str = "",
) -> Times:
    """A column of numbers (s) or ISO 8601 dates; arguments as in `parse_numbers`.

    An offset from UTC is applied; a date without one is used as written. `kind` says, as in
    `Batch`, how all times must be written; `numbers`, whether they may be numbers. `advice` ends
    the message about a time that is neither.
    """
    if name not in table.column_names:
        return Times(np.full(table.num_rows, np.nan), Kinds())
    cells = strip_cells(table, name)
    missing = np.asarray(pc.is_in(cells, value_set=pa.array(absent, pa.string())))
    (stamps, has_offset), values = _stamps(cells), np.full(len(cells), np.nan)
    if numbers and not (~np.isnan(stamps) | missing).all():
        readable = pc.match_substring_regex(cells, NUMBER)
        plain = pc.if_else(readable, cells, pa.scalar(None, pa.string())).cast(pa.float64())
        values = np.array(plain.fill_null(math.nan), dtype=float)
    dated, counted = ~np.isnan(stamps) & ~missing, np.isfinite(values) & ~missing
    written: dict[TimeKind, Bools] = {
        "numbers": counted,
        "local": dated & ~has_offset,
        "offset": dated & has_offset,
    }
    bad = ~dated & ~counted & (~missing | needed)
    must = "must be a " + "number of seconds or a " * numbers + "time as 2020-01-31 23:59:59"
    _add_values(wrong, bad, cells, name, must + advice)
    seconds = np.where(dated, stamps, np.where(counted, values, np.nan))
    if kind is not None:
        other = (counted | dated) & ~written[kind]
        text = f"the others are {WRITTEN[kind]}; all must be of one kind"
        _add_values(wrong, other, cells, name, text)
        seconds[other] = np.nan
        return Times(seconds, Kinds(**{kind: int(written[kind].sum())}))
    return Times(seconds, Kinds(*(int(mask.sum()) for mask in written.values())))


def parse_each(table: pa.Table, name: str, parse: Callable[[str], float], wrong: Wrong) -> Floats:
    """Parse a column of few distinct texts to numbers; NaN if there is no such column.

    `parse` returns a number or NaN; the text of its `ValueError` says what a value must be.
    """
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    coded = strip_cells(table, name).dictionary_encode()
    codes, values, faults = np.asarray(coded.indices), [], {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values.append(parse(text))
        except ValueError as error:
            values.append(math.nan)
            faults[code] = f"{name} is {quote(text)}, must be {error}"
    add_coded_faults(wrong, codes, faults)
    return np.array(values, dtype=float)[codes] if values else np.full(len(codes), np.nan)


def _stamps(cells: pa.Array) -> tuple[Floats, Bools]:
    """Seconds since 1970 of each text that is a date, NaN of others, and which have an offset."""
    if not pc.any(pc.match_substring_regex(cells, r"^\d{4}-")).as_py():
        return np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    parts = pc.extract_regex(cells, DATE)
    zones = pc.struct_field(parts, "zone")
    has_offset = np.asarray(pc.greater(pc.utf8_length(zones), 0).fill_null(False))
    return _seconds(pc.struct_field(parts, "time")) - _offsets(zones), has_offset


def _seconds(times: pa.Array) -> Floats:
    """Seconds since 1970 of each time, NaN where there is none."""
    kind = pa.timestamp("us")
    try:
        stamps = pc.cast(times, kind)
    except pa.ArrowInvalid:  # one of them is no day of the calendar
        stamps = pa.array([_stamp(text) for text in times.to_pylist()], kind)
    values: Floats = np.array(stamps.cast(pa.int64()).fill_null(0), dtype=float) / 1e6
    values[np.asarray(stamps.is_null())] = np.nan
    return values


def _stamp(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None


def _offsets(zones: pa.Array) -> Floats:
    """Seconds that each offset is ahead of UTC; 0 where there is none."""
    known = {text: _offset(text) for text in zones.unique().to_pylist()}
    if set(known.values()) == {0.0}:
        return np.zeros(len(zones))
    return np.array([known[text] for text in zones.to_pylist()])


def _offset(text: str | None) -> float:
    if not text or text == "Z":
        return 0.0
    sign = -1 if text[0] == "-" else 1
    return sign * (int(text[1:3]) * 3600.0 + int(text[-2:]) * 60.0)


def keep_rows(
    count: int,
    columns: Mapping[str, Any],
    wrong: Mapping[int, str],
    drops: Sequence[tuple[str, Bools]] = (),
    *,
    doubts: Sequence[tuple[str, Bools]] = (),
    kinds: Kinds = NO_TIMES,
    names: Mapping[str, str] = MappingProxyType({}),
) -> ConvertedRows:
    """Put a batch together.

    Args:
        count: Rows of the batch.
        columns: Canonical columns of all its rows: Arrow arrays, or numbers with NaN for absent.
        wrong: Rows that could not be read.
        drops: Reasons with the rows that they drop; the first that fits counts. A row that is
            wrong is not dropped.
        doubts: What is odd, with the rows; only kept ones count.
        kinds: As in `ConvertedRows`.
        names: As in `ConvertedRows`.
    """
    keep: Bools = np.ones(count, dtype=bool)
    keep[list(wrong)] = False
    dropped = {}
    for reason, mask in drops:
        if hits := int((keep & mask).sum()):
            dropped[reason] = hits
        keep &= ~mask
    kept = np.flatnonzero(keep).astype(np.int64)
    jobs = {name: _take(values, kept, JOBS.field(name).type) for name, values in columns.items()}
    odd = {what: np.flatnonzero(keep & mask).astype(np.int64) for what, mask in doubts}
    odd = {what: rows for what, rows in odd.items() if len(rows)}
    return ConvertedRows(jobs, kept, wrong, dropped, odd, kinds, names)


def _take(values: Any, kept: Ints, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.take(pa.array(kept))
    chosen = np.asarray(values, dtype=float)[kept]
    missing = np.isnan(chosen)
    if pa.types.is_integer(kind):
        return pa.array(np.where(missing, 0, chosen).astype(np.int32), kind, mask=missing)
    return pa.array(chosen, kind, mask=missing)


def number_jobs(lines: Ints, header_lines: int = 1) -> pa.Array:
    """Job ids for a log that has none: the number of the line, not counting the header."""
    return pa.array(lines - header_lines).cast(pa.string())
