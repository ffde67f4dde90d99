"""Tables of measurements in CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.files.names import is_name
from wattkeeper.traces.formats.profiles.rows import ABOUT, CHOICES, Row
from wattkeeper.traces.limits import MOST_BYTES, MOST_CELLS, MOST_FAULTS
from wattkeeper.traces.readers.csvfile import CsvFile, parse_csv, read_whole
from wattkeeper.traces.schema import is_optional
from wattkeeper.traces.tables import add_optional, row_problems


class MeasuredTable(NamedTuple):
    """A table that was read.

    Attributes:
        path: Its file.
        rows: By column.
        about: What it says of itself.
        sha256: Digest (hex) of the file.
    """

    path: Path
    rows: Sequence[Row]
    about: Mapping[str, str]
    sha256: str

    def where(self, number: int) -> str:
        """The place of a row, by its index."""
        return f"{self.path}, row {number + 1}"


def read_table(path: Path, schema: pa.Schema) -> MeasuredTable:
    """Read a table.

    Raises:
        TraceError: If the file is wrong; the message names the row.
    """
    data = read_whole(path, MOST_BYTES)
    if data.startswith(b"PAR1"):
        file, about = _read_parquet(data, path, schema)
    else:
        about, rest = _split_head(data, path)
        file = parse_csv(rest, path, schema)
        if file.extra:
            raise TraceError(_explain_unknown(file.extra, schema), f"{path}, header")
    name = about.get("name")
    if name is not None and not is_name(name):
        raise TraceError(f"name {name!r}: allowed are letters, digits, '.', '_' and '-'", path)
    return MeasuredTable(path, file.table.to_pylist(), about, file.sha256)


def _split_head(data: bytes, path: Path) -> tuple[dict[str, str], bytes]:
    """What a CSV file says of itself in lines that begin with ``#``, and the rest of it."""
    about: dict[str, str] = {}
    rest = data.removeprefix(b"\xef\xbb\xbf")
    number = 0
    while rest.startswith(b"#"):
        number += 1
        line, _, rest = rest.partition(b"\n")
        key, colon, text = line[1:].decode("utf-8", "replace").partition(":")
        key, text = key.strip(), text.strip()
        where = f"{path}, line {number}"
        if key not in ABOUT or not colon or not text:
            meant = did_you_mean(key, ABOUT)
            text = f"# {key}: must be `# KEY: TEXT`{meant}; keys are {', '.join(ABOUT)}"
            raise TraceError(text, where)
        if key in about:
            raise TraceError(f"states {key} a second time", where)
        about[key] = text
    return about, rest


def _read_parquet(data: bytes, path: Path, schema: pa.Schema) -> tuple[CsvFile, dict[str, str]]:
    """The columns of a schema from a Parquet file, and what it says of itself.

    Raises:
        TraceError: As `wattkeeper.traces.readers.csvfile.read_csv`.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        present, rows = file.schema_arrow, file.metadata.num_rows
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        size = max(sum(group.total_byte_size for group in groups), rows * len(present.names))
        if size > MOST_BYTES or rows * len(present.names) > MOST_CELLS:
            raise TraceError(f"holds {size:,} bytes of tables; up to {MOST_BYTES:,} are read", path)
        table = file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"is no valid Parquet file: {error}", path) from error
    if extra := [name for name in present.names if name not in schema.names]:
        raise TraceError(_explain_unknown(extra, schema), path)
    columns = {}
    for want in schema:
        if present.names.count(want.name) != 1:
            if is_optional(want) and want.name not in present.names:
                continue
            raise TraceError(f"column {want.name} is missing or there twice", path)
        columns[want.name] = _cast(table[want.name], want, path)
    typed = pa.table(
        columns, pa.schema([schema.field(name).with_nullable(True) for name in columns])
    )
    typed = add_optional(typed, schema).select(schema.names)
    if not rows:
        raise TraceError("has no rows", path)
    faults = row_problems(typed, schema, most=MOST_FAULTS)
    if faults:
        raise TraceError([Problem(text, f"{path}, row {n + 1}") for n, text in faults.items()])
    stated = {k.decode("utf-8", "replace"): v for k, v in (present.metadata or {}).items()}
    about = {key: stated[key].decode("utf-8", "replace") for key in ABOUT if stated.get(key)}
    return CsvFile(typed.cast(schema), (), sha256(data).hexdigest()), about


def _cast(column: pa.ChunkedArray, want: pa.Field, path: Path) -> pa.ChunkedArray:
    """A column of a Parquet file in the type of its field; booleans are yes and no."""
    if pa.types.is_boolean(column.type) and want.name in CHOICES:
        return pc.if_else(column, "yes", "no")
    try:
        return column.cast(want.type)
    except (pa.ArrowException, ValueError) as error:
        text = f"column {want.name} has type {column.type}, must be {want.type}: {error}"
        raise TraceError(text, path) from error


def _explain_unknown(extra: Sequence[str], schema: pa.Schema) -> str:
    meant = did_you_mean(extra[0], schema.names)
    return f"unknown column {', '.join(extra)}{meant}; allowed are {', '.join(schema.names)}"
