"""Reader of CSV files from untrusted sources.

For any input, the result is a table or a `TraceError` that names file and row. A row is a
data row, 1-based: neither the header nor empty lines count. Extra columns are allowed.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.regular import open_file
from wattkeeper.traces.limits import (
    LONGEST_LINE_BYTES,
    MOST_BYTES,
    MOST_CELLS,
    MOST_COLUMNS,
    MOST_FAULTS,
    MOST_RATIO,
    is_oversized,
)
from wattkeeper.traces.schema import is_optional
from wattkeeper.traces.tables import add_optional, find_repeated, row_problems

ABSENT: Final = ("", "nan", "NaN", "NA", "null", "NULL", "None")
"""Texts that stand for a missing value in a nullable column."""

NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
BLOCK_BYTES: Final = 1 << 28
SHOWN_CELL: Final = 40


def quote(text: str) -> str:
    """A value as shown in messages."""
    if not text:
        return "empty"
    return repr(text if len(text) <= SHOWN_CELL else text[:SHOWN_CELL] + "...")


class CsvFile(NamedTuple):
    """The content of a CSV file.

    Attributes:
        table: The columns of the schema, with its types and metadata, in file order.
        extra: Names of columns that the schema does not have.
        sha256: Digest (hex) of the file on disk.
    """

    table: pa.Table
    extra: tuple[str, ...]
    sha256: str


def read_csv(path: Path, schema: pa.Schema) -> CsvFile:
    """Read the columns of a schema from a CSV file.

    Comma-separated, UTF-8 with or without byte order mark, any line ends, quotes, plain or gzip
    (detected by content). Its limits are those of `wattkeeper.traces.limits`.

    Args:
        path: The file.
        schema: Fields by `schema.field`: strings, float64 or int32, each with the rule of its
            values. `ABSENT` texts are missing values of nullable fields.

    Raises:
        TraceError: If the file cannot be read or is not such a table; else one problem for each
            of the first malformed rows.
    """
    file = parse_csv(read_whole(path, MOST_BYTES), path, schema)
    return file._replace(sha256=digest_file(path))


def parse_csv(data: bytes, path: Path, schema: pa.Schema) -> CsvFile:
    """As `read_csv`, from the bytes of a file; the digest is that of `data`.

    Raises:
        TraceError: As `read_csv`.
    """
    texts, broken, header = _split(_text(data, path), path)
    _check_header(header, schema, path)
    numbers = np.arange(1, texts.num_rows + len(broken) + 1)
    lines = np.setdiff1d(numbers, list(broken))
    arrays: list[pa.Array] = []
    wrong: dict[int, str] = {}
    present = [want for want in schema if not is_optional(want) or want.name in header]
    for want in present:
        array, bad = _convert(texts.column(header.index(want.name)), want)
        arrays.append(array)
        for row, text in bad.items():
            wrong[row] = f"{wrong[row]}; {text}" if row in wrong else text
    table = pa.Table.from_arrays(arrays, schema=pa.schema([f.with_nullable(True) for f in present]))
    table = add_optional(table, schema).select(schema.names)
    if not broken and not wrong and not table.num_rows:
        raise TraceError("has a header and no rows", path)
    for row, text in row_problems(table, schema, most=MOST_FAULTS).items():
        wrong.setdefault(row, text)
    if not wrong and not broken:
        wrong = find_repeated(table, schema)
    problems_by_row = broken | {int(lines[row]): text for row, text in wrong.items()}
    if problems_by_row:
        first = sorted(problems_by_row)[:MOST_FAULTS]
        raise TraceError([Problem(problems_by_row[n], f"{path}, row {n}") for n in first])
    extra = tuple(name for name in header if name not in schema.names)
    return CsvFile(table.cast(schema), extra, sha256(data).hexdigest())


def read_whole(path: Path, most: int) -> bytes:
    """The content of a file, decompressed if it is gzip.

    Raises:
        TraceError: As `open_plain`, or if it has more than `most` bytes.
    """
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TraceError(f"is larger than {most:,} bytes, more than are read at once", path)
    return data


class _Unpacked(io.BufferedIOBase):
    """The content of a gzip file, refused once it is out of proportion to the file."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._plain, self._bytes = packed, gzip.GzipFile(fileobj=packed), 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._plain.read(size)
        self._bytes += len(data)
        if is_oversized(self._bytes, self._packed.tell()):
            raise TraceError(
                f"decompresses to more than {MOST_RATIO} times its size, as no log does; "
                "if it is to be trusted, decompress it first",
                self._packed.name,
            )
        return data


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its content is gzip.

    Raises:
        TraceError: If the file does not exist, cannot be read, or is a damaged gzip file, or one
            out of all proportion to its content; also while it is read.
    """
    try:
        with open_file(path) as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield cast("IO[bytes]", _Unpacked(file)) if is_gzip else file
    except UnicodeDecodeError:  # a ValueError too, of the caller that decodes the content
        raise
    except FileNotFoundError as error:
        raise TraceError("no such file", path) from error
    except IsADirectoryError as error:
        raise TraceError("is a directory, not a file", path) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"is a truncated or damaged gzip file: {error}", path) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"cannot be read: {reason}", path) from error


def _text(data: bytes, path: Path) -> bytes:
    """The file's text as UTF-8 without byte order mark."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise TraceError("is empty; a header and rows are needed", path)
    if (index := find_odd_byte(data)) is not None:
        raise TraceError(describe_odd_byte(data, index), _locate(path, data, index))
    return data.lstrip(b"\r\n") + b"\n"


def find_odd_byte(data: bytes) -> int | None:
    """0-based position of the first byte that is NUL or not UTF-8; None if there is none."""
    nul = data.find(b"\0")
    try:
        data[: nul if nul >= 0 else None].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return nul if nul >= 0 else None


def describe_odd_byte(data: bytes, index: int) -> str:
    """Error message for an odd byte."""
    byte = data[index]
    text = f"is not text (UTF-8): byte 0x{byte:02x} at byte {index + 1}"
    if byte in (0xFE, 0xFF) and index < 2:
        return f"{text}; if it is UTF-16, convert it: iconv -f UTF-16 -t UTF-8"
    return (
        text if byte < 0xA0 else f"{text}; if it is Latin-1, convert it: iconv -f LATIN1 -t UTF-8"
    )


def _locate(path: Path, data: bytes, index: int) -> str:
    start = max(data.rfind(b"\n", 0, index), data.rfind(b"\r", 0, index)) + 1
    row = sum(1 for line in data[:start].splitlines() if line)
    return f"{path}, row {row}" if row else f"{path}, header"


def _split(data: bytes, path: Path) -> tuple[pa.Table, dict[int, str], list[str]]:
    """Cells as text, rows of wrong length by row number, and the header."""
    if data.count(b'"') % 2:
        raise TraceError("a quotation mark is never closed", path)
    if (cells := sum(map(data.count, (b",", b"\n", b"\r")))) > MOST_CELLS:
        raise TraceError(f"has about {cells:,} cells; up to {MOST_CELLS:,} are read", path)
    broken: dict[int, str] = {}

    def note(row: pacsv.InvalidRow) -> str:
        text = f"has {row.actual_columns} values, the header has {row.expected_columns}"
        broken[row.number - 1] = text
        return "skip" if len(broken) < MOST_FAULTS else "error"

    width = _width(data, path)
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                use_threads=False,
                autogenerate_column_names=True,
                block_size=min(len(data) + 1, BLOCK_BYTES),
            ),
            parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            convert_options=pacsv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(width)}, strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        if len(broken) >= MOST_FAULTS:
            rows = [Problem(text, f"{path}, row {row}") for row, text in broken.items()]
            raise TraceError(rows) from error
        raise TraceError(f"is no CSV file: {error}", path) from error
    header = [str(column[0].as_py()).strip() for column in table.columns]
    return table.slice(1), broken, header


def _width(data: bytes, path: Path) -> int:
    """The number of columns of the header."""
    text = io.StringIO(data[: LONGEST_LINE_BYTES + 1].decode("utf-8", "ignore"), newline="")
    try:
        width = len(next(csv.reader(text)))
    except (csv.Error, StopIteration) as error:
        raise TraceError(f"is no CSV file: {error}", path) from error
    check_columns(width, f"{path}, header")
    if len(data) > LONGEST_LINE_BYTES and not text.read(1):
        raise TraceError(f"is longer than {LONGEST_LINE_BYTES:,} bytes", f"{path}, header")
    return width


def check_columns(count: int, where: object) -> None:
    """Refuse a header of too many columns.

    Raises:
        TraceError: If there are more than `MOST_COLUMNS`.
    """
    if count > MOST_COLUMNS:
        raise TraceError(f"has {count:,} columns; up to {MOST_COLUMNS:,} are read", where)


def _check_header(header: list[str], schema: pa.Schema, path: Path) -> None:
    problems = []
    needed = ", ".join(want.name for want in schema if not is_optional(want))
    for want in schema:
        name = want.name
        if header.count(name) != 1 and not (is_optional(want) and name not in header):
            state = f"appears {header.count(name)} times" if name in header else "is missing"
            text = f"column {name} {state}; found {', '.join(header)}; needed are {needed}"
            problems.append(Problem(text, f"{path}, header"))
    if problems:
        raise TraceError(problems)


def _convert(texts: pa.ChunkedArray, want: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """A column in its type, with 1 in place of malformed numbers, and the faults by row."""
    cells = pc.utf8_trim_whitespace(texts.cast(pa.string()).combine_chunks())
    absent = pc.is_in(cells, value_set=pa.array(ABSENT if want.nullable else [], pa.string()))
    if pa.types.is_string(want.type):
        return pc.if_else(absent, pa.scalar(None, pa.string()), cells), {}
    number = pc.match_substring_regex(cells, NUMBER)
    values = pc.if_else(number, cells, "1").cast(pa.float64())
    wrong = ~np.asarray(number)
    if whole := pa.types.is_integer(want.type):
        wrong |= _not_int32(np.asarray(values))
    wrong &= ~np.asarray(absent)
    values = pc.if_else(pa.array(wrong), 1.0, values)
    values = pc.if_else(absent, pa.scalar(None, pa.float64()), values)
    must = "a whole number below 2147483648" if whole else "a number"
    faults = {}
    for row in np.flatnonzero(wrong)[:MOST_FAULTS].tolist():
        faults[row] = f"{want.name} is {quote(cells[row].as_py())}, must be {must}"
    return values.cast(want.type), faults


def _not_int32(values: Floats) -> Bools:
    with np.errstate(invalid="ignore"):
        fits: Bools = (np.abs(values) < 2.0**31) & (np.floor(values) == values)
    return ~fits
