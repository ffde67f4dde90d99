"""Tables of text from CSV, JSON and Parquet files of series."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.electricity.answers import read_answers
from wattkeeper.traces.electricity.entsoe_xml import read_document
from wattkeeper.traces.electricity.texts import Texts, number_rows
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS, MOST_SLOTS, MOST_TABLE_BYTES
from wattkeeper.traces.readers.csvfile import check_columns, open_plain
from wattkeeper.traces.readers.textfile import BOM, Layout, first_line, text_batches


def read_texts(path: Path) -> Texts:
    """Read CSV (comma, semicolon or tab; plain or gzip), JSON, XML of ENTSO-E's API, or Parquet.

    Raises:
        TraceError: If it cannot be read, has no rows, or is beyond the limits.
    """
    with open_plain(path) as file:
        head = file.read(1 << 12)
    if head.startswith(b"PAR1"):
        return number_rows(_read_parquet(path), path)
    mark = head.removeprefix(BOM).lstrip()[:1]
    if mark in (b"{", b"["):
        return number_rows(read_answers(path), path)
    if mark == b"<":
        return read_document(path)
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
    texts = Texts(pa.concat_tables(tables), np.concatenate(numbers), "line")
    is_wrapped = texts.table.num_columns == 1 and delimiter in texts.table.column_names[0]
    return _unwrap(texts, delimiter, path) if is_wrapped else texts


def _check_size(rows: int, size: int, path: Path) -> None:
    if rows > MOST_SLOTS or size > MOST_BYTES:
        text = f"has more than {MOST_SLOTS:,} rows or {MOST_BYTES:,} bytes, more than are read"
        raise TraceError(text, path)


def _unwrap(texts: Texts, delimiter: str, path: Path) -> Texts:
    """The values of lines that are each one quoted value, as some exports of ENTSO-E have them."""
    (line,) = texts.table.column_names
    header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    rows, wrong = [], []
    for number, text in zip(texts.numbers.tolist(), texts.table[line].to_pylist(), strict=True):
        values = next(csv.reader([text], delimiter=delimiter), [])
        rows.append(values)
        if len(values) != len(header):
            fault = f"has {len(values)} values, must have {len(header)}"
            wrong.append(Problem(fault, f"{path}, line {number}"))
    if wrong:
        raise TraceError(wrong[:MOST_FAULTS])
    check_columns(len(header), f"{path}, header")
    columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
    table = number_rows(pa.table(columns, names=header), path).table
    return texts._replace(table=table)


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
        types.is_timestamp,
        types.is_date,
        types.is_integer,
        types.is_floating,
        types.is_decimal,
    )
    return any(is_it(kind) for is_it in readable)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as in a CSV file; times that have a zone are written in UTC."""
    if not pa.types.is_timestamp(column.type):
        return pc.fill_null(column.cast(pa.string()), "")
    stamps = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    texts = stamps.cast(pa.timestamp("us")).cast(pa.string())
    mark = "Z" if column.type.tz else ""
    return pc.fill_null(pc.binary_join_element_wise(texts, mark, ""), "")
