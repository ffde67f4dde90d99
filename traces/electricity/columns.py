"""Tables of text from CSV, JSON and Parquet files of series."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import (
    MOST_BYTES,
    MOST_FAULTS,
    MOST_JSON_BYTES,
    MOST_SLOTS,
    MOST_TABLE_BYTES,
)
from wattkeeper.traces.readers.csvfile import open_plain, read_whole
from wattkeeper.traces.readers.textfile import BOM, Layout, first_line, text_batches

POINT: Final = ("point_time", "value")
META: Final = ("signal_type", "units", "region")


class Texts(NamedTuple):
    """Columns of text, the number of each row in the file, and what a row is called there."""

    table: pa.Table
    numbers: Ints
    row: str

    def keep(self, mask: Bools) -> "Texts":
        """Only some of the rows."""
        return Texts(self.table.filter(pa.array(mask)), self.numbers[mask], self.row)


def read_texts(path: Path) -> Texts:
    """Read CSV (comma, semicolon or tab; plain or gzip), JSON of WattTime's API, or Parquet.

    Raises:
        TraceError: If it cannot be read, has no rows, or is beyond the limits.
    """
    with open_plain(path) as file:
        head = file.read(1 << 12)
    if head.startswith(b"PAR1"):
        return _number_rows(_read_parquet(path), path)
    if head.removeprefix(BOM).lstrip()[:1] in (b"{", b"["):
        return _number_rows(_read_json(path), path)
    delimiter = max(",;\t", key=first_line(path).count)
    tables, numbers, size, rows = [], [np.zeros(0, dtype=np.int64)], 0, 0
    for batch in text_batches(path, Layout(delimiter)):
        if batch.wrong:
            first = sorted(batch.wrong)[:MOST_FAULTS]
            raise TraceError([Problem(batch.wrong[n], f"{path}, line {n}") for n in first])
        tables.append(batch.rows)
        numbers.append(batch.lines)
        size, rows = size + batch.rows.nbytes, rows + len(batch.lines)
        _check_size(rows, size, path)
    if not rows:
        raise TraceError("has a header and no rows", path)
    return Texts(pa.concat_tables(tables), np.concatenate(numbers), "line")


def _check_size(rows: int, size: int, path: Path) -> None:
    if rows > MOST_SLOTS or size > MOST_BYTES:
        text = f"has more than {MOST_SLOTS:,} rows or {MOST_BYTES:,} bytes, more than are read"
        raise TraceError(text, path)


def _number_rows(table: pa.Table, path: Path) -> Texts:
    if not table.num_rows or not table.num_columns:
        raise TraceError("has no rows with times and numbers", path)
    if len(set(table.column_names)) < table.num_columns:
        raise TraceError(f"has columns of the same name: {', '.join(table.column_names)}", path)
    return Texts(table, np.arange(1, table.num_rows + 1), "row")


def _read_json(path: Path) -> pa.Table:
    """Answers of WattTime's v3 API, one or a list: ``data``, and what ``meta`` says of it."""
    try:
        content: Any = json.loads(read_whole(path, MOST_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is no JSON file: {error}", path) from error
    columns: dict[str, list[str]] = {name: [] for name in (*POINT, *META)}
    for answer in content if isinstance(content, list) else [content]:
        points = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
            text = 'is no answer of WattTime: {"data": [{"point_time": ..., "value": ...}, ...]}'
            raise TraceError(text, path)
        meta = answer["meta"] if isinstance(answer.get("meta"), dict) else {}
        for name in POINT:
            columns[name] += [_text(point.get(name)) for point in points]
        for name in META:
            columns[name] += [_text(meta.get(name))] * len(points)
    return pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()})


def _text(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "replace").decode("utf-8")


def _read_parquet(path: Path) -> pa.Table:
    """The columns of times and of numbers; others are left out."""
    with path.open("rb") as opened:
        data = opened.read(MOST_TABLE_BYTES + 1)
    _check_size(0, max(0, len(data) - MOST_TABLE_BYTES + MOST_BYTES), path)
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        names = [want.name for want in file.schema_arrow if _is_readable(want.type)]
        rows = file.metadata.num_rows
        _check_size(rows, 8 * rows * len(names), path)
        # One thread: Arrow's pools can abort a process that ends while they start.
        table = file.read(names, use_threads=False)
        return pa.table([_as_text(column) for column in table.columns], names=table.column_names)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise TraceError(f"is no valid Parquet file: {error}", path) from error


def _is_readable(kind: pa.DataType) -> bool:
    types = pa.types
    readable = (
        types.is_timestamp, types.is_date, types.is_integer, types.is_floating, types.is_decimal
    )  # fmt: skip
    return any(is_it(kind) for is_it in readable)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as in a CSV file; times that have a zone are written in UTC."""
    if not pa.types.is_timestamp(column.type):
        return pc.fill_null(column.cast(pa.string()), "")
    stamps = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    texts = stamps.cast(pa.timestamp("us")).cast(pa.string())
    mark = "Z" if column.type.tz else ""
    return pc.fill_null(pc.binary_join_element_wise(texts, mark, ""), "")
