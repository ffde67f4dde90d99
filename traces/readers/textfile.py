"""Logs of any size, read in batches of lines with their line numbers.

One line is one row: values must not span lines. No known log needs that, and a malformed
line can be reported and skipped without affecting those after it.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from wattkeeper.policies.errors import Problem, TraceError, cut_message
from wattkeeper.traces.limits import LONGEST_LINE_BYTES
from wattkeeper.traces.readers.base import Batch, ImportOptions
from wattkeeper.traces.readers.csvfile import (
    check_columns,
    describe_odd_byte,
    find_odd_byte,
    open_plain,
)

BLOCK_BYTES: Final = 1 << 21
SNIFFED_BYTES: Final = 1 << 16
REPEATED: Final = "repeats the header, as where files were joined: import them one beside the other"
BOM: Final = b"\xef\xbb\xbf"


class Layout(NamedTuple):
    """How lines are split into values.

    Attributes:
        delimiter: Between values; empty: any white space.
        columns: Column names of a log without header line; otherwise None.
        quotes: Whether values may be in double quotes, as in CSV.
        comment: Prefix of comment lines; empty: there are none.
        nameable: Whether the caller of an import may name the columns instead of a header.
        listing: The only column whose values may be lists of ``NAME=VALUE`` or ``NAME:VALUE`` with
            the delimiter between, without quotes; empty: there is none.
        trailing: Whether a line may end with one delimiter more.
    """

    delimiter: str = ","
    columns: tuple[str, ...] | None = None
    quotes: bool = True
    comment: str = ""
    nameable: bool = False
    listing: str = ""
    trailing: bool = False


COMMAS: Final = Layout()
"""Of a CSV file with a header."""


def text_batches(
    path: Path, layout: Layout, needed: Sequence[str] = (), block_bytes: int = BLOCK_BYTES
) -> Iterator[Batch]:
    """Read a log, plain or gzip (detected by content), UTF-8 with or without byte order mark.

    The header must have the `needed` columns; the text of a batch has about `block_bytes`.

    Yields:
        Batches whose ``rows`` is a table of strings and whose ``wrong`` has the malformed lines: of
        wrong length, not UTF-8, with an unclosed quotation mark, or the header again.

    Raises:
        TraceError: If the file cannot be read, is damaged, or lacks a needed column.
    """
    header, head = layout.columns, b""
    if header is not None:
        head = layout.delimiter.join(header).encode()
        _check_header(header, layout, needed, path, None)
    for start, lines in _blocks(path, block_bytes):
        numbers = np.arange(start, start + len(lines))
        full = np.array([_is_row(line, layout.comment) for line in lines], dtype=bool)
        if not full.all():
            lines = [line for line, is_row in zip(lines, full, strict=True) if is_row]
            numbers = numbers[full]
        if header is None and lines:
            header = _header(lines[0], layout, path, int(numbers[0]))
            _check_header(header, layout, needed, path, int(numbers[0]))
            head, lines, numbers = lines[0], lines[1:], numbers[1:]
        wrong = dict[int, str]()
        if head in lines:
            again = np.array([line == head for line in lines], dtype=bool)
            wrong = dict.fromkeys(numbers[again].tolist(), REPEATED)
            lines, numbers = [line for line in lines if line != head], numbers[~again]
        if header is not None and (lines or wrong):
            batch = _batch(path, header, layout, lines, numbers)
            yield batch._replace(wrong={**batch.wrong, **wrong})
    if header is None:
        raise TraceError("is empty; a header and rows are needed", path)


def head_lines(path: Path, comment: str = "") -> Iterator[tuple[int, str]]:
    """The rows or header lines at the beginning of a file, with their numbers, for sniffing.

    A line that is no text is empty; the last one may be cut.
    """
    try:
        with open_plain(path) as file:
            data = file.read(SNIFFED_BYTES).removeprefix(BOM)
    except TraceError:
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if _is_row(line, comment):
            line = line.removesuffix(b"\r")
            yield number, "" if _find_fault(line, quotes=False) else line.decode()


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """All lines of a file, plain or gzip, with their numbers; what is not UTF-8 is replaced.

    Raises:
        TraceError: If the file cannot be read, or is damaged.
    """
    for start, lines in _blocks(path, BLOCK_BYTES):
        for number, line in enumerate(lines, start):
            yield number, line.decode("utf-8", "replace")


def first_line(path: Path, comment: str = "") -> str:
    """The first row or header line, for sniffing; empty if there is none."""
    return next((line for _, line in head_lines(path, comment)), "")


def check_text(path: Path) -> None:
    """Check that a file exists and begins as text; folders pass.

    Raises:
        TraceError: If it cannot be read, is empty, or is not text.
    """
    if path.is_dir():
        return
    with open_plain(path) as file:
        data = file.read(SNIFFED_BYTES)
    if not data.removeprefix(BOM).strip():
        raise TraceError("is empty; a header and rows are needed", path)
    whole = data[: data.rfind(b"\n") + 1] or data  # the last line may end within a letter
    if (index := find_odd_byte(whole)) is not None:
        raise TraceError(describe_odd_byte(whole, index), path)


def has_header(*names: str, delimiter: str = ",") -> Callable[[Path], bool]:
    """Make a sniffer: whether the first line of a file has these columns."""

    def sniff(path: Path) -> bool:
        header = {name.strip().strip('"') for name in first_line(path).split(delimiter)}
        return header.issuperset(names)

    return sniff


def one_log(
    what: str, layout: Layout = COMMAS, needed: Sequence[str] = ()
) -> Callable[[Sequence[Path], ImportOptions], Iterator[Batch]]:
    """Make the `batches` of a format that reads one file; see `text_batches`.

    `what` names the file in the message where there is not exactly one.
    """

    def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
        return text_batches(one_path(paths, what), name_columns(layout, options), needed)

    return batches


def name_columns(layout: Layout, options: ImportOptions) -> Layout:
    """The layout of files without header line, if the options name their columns."""
    return layout._replace(columns=options.columns or layout.columns, nameable=True)


def one_path(paths: Sequence[Path], what: str = "file") -> Path:
    """The only path.

    Raises:
        TraceError: If there is not exactly one.
    """
    if len(paths) != 1:
        raise TraceError(f"one {what} is needed, not {len(paths)}", ", ".join(map(str, paths)))
    return paths[0]


def _blocks(path: Path, block_bytes: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield complete lines without line ends, with the number of the first."""
    number, rest, first = 1, b"", True
    with open_plain(path) as file:
        while True:
            data = file.read(block_bytes)
            block = rest + data
            if first:
                block, first = block.removeprefix(BOM), False
            if not data:
                if block:
                    yield number, [block.removesuffix(b"\r")]
                return
            *lines, rest = block.split(b"\n")
            if len(rest) > LONGEST_LINE_BYTES:
                text = f"is longer than {LONGEST_LINE_BYTES:,} bytes, as no line of a log is"
                raise TraceError(text, f"{path}, line {number + len(lines)}")
            if b"\r" in block:
                lines = [line.removesuffix(b"\r") for line in lines]
            if lines:
                yield number, lines
            number += len(lines)


def _is_row(line: bytes, comment: str) -> bool:
    if comment and line.startswith(comment.encode()):
        return False
    return bool(line) and not line.isspace()


def _header(line: bytes, layout: Layout, path: Path, number: int) -> tuple[str, ...]:
    if text := _find_fault(line, layout.quotes):
        raise TraceError(text, f"{path}, line {number}")
    values = _values(line, layout)
    if isinstance(values, str):
        raise TraceError(values, f"{path}, line {number}")
    check_columns(len(values), f"{path}, line {number}")
    return tuple(name.strip() for name in values)


def find_other_delimiter(header: Sequence[str], delimiter: str) -> str:
    """What is wrong with a header of one name that holds another delimiter; empty if nothing is."""
    if len(header) != 1 or not delimiter:
        return ""
    mark = max("|,;\t^", key=header[0].count)
    if header[0].count(mark) < 2:
        return ""
    return f"its values are separated by {mark!r}, must be by {delimiter!r}"


def _check_header(
    header: Sequence[str], layout: Layout, needed: Sequence[str], path: Path, number: int | None
) -> None:
    """Check that columns are there once; `number`: line of the header, None if it was given."""
    problems, found = [], cut_message(", ".join(header), 500)
    where = f"{path}, names of its columns" if number is None else f"{path}, line {number}"
    for name in dict.fromkeys([*header, *needed]):
        if (count := header.count(name)) != 1:
            state = f"appears {count} times" if count else "is missing"
            text = f"column {name} {state}; found {found}"
            problems.append(Problem(text, where))
    if layout.nameable and needed and number is not None and not set(needed) & set(header):
        text = (
            f"is no header: it names none of {', '.join(needed)}; found {found}. "
            f"Name the columns of a file without header: --columns {','.join(needed)},..."
        )
        if wrong := find_other_delimiter(header, layout.delimiter):
            text = f"{wrong}; found {found}"
        problems = [Problem(text, where)]
    if problems:
        raise TraceError(problems)


def _batch(
    path: Path,
    header: tuple[str, ...],
    layout: Layout,
    lines: list[bytes],
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Batch:
    """Split lines into a table: most of them by Arrow, those with quotes individually."""
    width, wrong, quoted, plain = len(header), {}, {}, []
    suspect = _has_faults(lines, layout.quotes)
    delimiter = layout.delimiter.encode()
    for row, line in enumerate(lines):
        if suspect and (text := _find_fault(line, layout.quotes)):
            wrong[int(numbers[row])] = text
            continue
        if layout.quotes and b'"' in line:
            values = _values(line, layout)
            if isinstance(values, str):
                wrong[int(numbers[row])] = values
                continue
            quoted[row] = values
            count = len(values)
        elif delimiter:
            count = line.count(delimiter) + 1
        else:
            parts = line.split()
            lines[row], count = b" ".join(parts), len(parts)
        if layout.trailing and count == width + 1 and line.endswith(delimiter):
            line, count = line.removesuffix(delimiter), width
            lines[row] = line
            if row in quoted:
                quoted[row] = quoted[row][:-1]
        if count > width and layout.listing and row not in quoted:
            values = _join_list(line.decode().split(layout.delimiter), header, layout)
            quoted[row], count = values, len(values)
        if count != width:
            quoted.pop(row, None)
            text = f"has {count} values, must have {width}"
            wrong[int(numbers[row])] = text
        elif row not in quoted:
            plain.append(row)
    table = _parse([lines[row] for row in plain], header, layout.delimiter or " ")
    rows = np.array(plain, dtype=np.int64)
    if quoted:
        columns = list(zip(*quoted.values(), strict=True))
        more = pa.table([pa.array(c, pa.string()) for c in columns], names=list(header))
        rows = np.concatenate([rows, np.array(list(quoted), dtype=np.int64)])
        order = np.argsort(rows)
        rows = rows[order]
        table = pa.concat_tables([table, more]).combine_chunks().take(pa.array(order))
    return Batch(path, numbers[rows], table, wrong)


def _join_list(values: list[str], header: tuple[str, ...], layout: Layout) -> list[str]:
    """The values of a line with those too many joined in the column that may be a list.

    They stay apart if one of them is no part of such a list.
    """
    start = header.index(layout.listing)
    stop = start + len(values) - len(header) + 1
    if not all("=" in value or ":" in value for value in values[start:stop]):
        return values
    return [*values[:start], layout.delimiter.join(values[start:stop]), *values[stop:]]


def _has_faults(lines: list[bytes], quotes: bool) -> bool:
    """Whether any line may be malformed, checked for all lines at once."""
    block = b"\n".join(lines)
    if b"\r" in block or b"\0" in block or (quotes and b'"' in block):
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _find_fault(line: bytes, quotes: bool) -> str:
    """Why a line cannot be split; empty if it can."""
    if (index := find_odd_byte(line)) is not None:
        return describe_odd_byte(line, index)
    if b"\r" in line:
        return "holds a carriage return; lines must end with LF or CR LF"
    if quotes and line.count(b'"') % 2:
        return "has a quotation mark that is not closed on this line"
    return ""


def _values(line: bytes, layout: Layout) -> list[str] | str:
    """The values of a line, or its fault."""
    text = line.decode("utf-8")
    if not layout.delimiter:
        return text.split()
    if not layout.quotes:
        return text.split(layout.delimiter)
    try:
        return next(csv.reader([text], delimiter=layout.delimiter, strict=True))
    except (csv.Error, StopIteration) as error:
        return f"is no CSV line: {error}"


def _parse(lines: list[bytes], header: tuple[str, ...], delimiter: str) -> pa.Table:
    """A table of texts from lines without quotes, all of the right length."""
    if not lines:
        return pa.table({name: pa.array([], pa.string()) for name in header})
    data = b"\n".join(lines) + b"\n"
    return pacsv.read_csv(
        pa.BufferReader(data),
        read_options=pacsv.ReadOptions(
            use_threads=False, column_names=list(header), block_size=len(data) + 1
        ),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
        ),
    )
