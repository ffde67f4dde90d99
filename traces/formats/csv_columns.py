"""Any CSV file with one row a job: its columns are named on the command line.

A column of the file stands for a canonical one if it bears its name or is mapped to it. Needed are
``submit_time_s`` (seconds, or ISO dates) and ``gpus``; other columns of the file are left out.
``nodes`` (a list of hosts) and ``gpu_ids`` (``0,1``, or ``HOST:0,1;HOST:2``) say where a job ran,
for the join with a power log. Durations and estimates are seconds or spans (``D-HH:MM:SS``); a
mapping as ``COLUMN:min`` states another unit of times.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import InputError, Problem, TraceError, cut_message
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.power.join import COLUMNS as PLACES
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat, Kinds
from wattkeeper.traces.readers.columns import (
    Wrong,
    add_fault,
    keep_rows,
    number_jobs,
    parse_numbers,
    parse_texts,
    parse_times,
)
from wattkeeper.traces.readers.csvfile import ABSENT
from wattkeeper.traces.readers.spans import NO_LIMIT, parse_seconds
from wattkeeper.traces.readers.textfile import (
    Layout,
    find_other_delimiter,
    first_line,
    has_header,
    name_columns,
    one_path,
    text_batches,
)
from wattkeeper.traces.schema import JOBS, TIMES

NEEDED: Final = ("submit_time_s", "gpus")
NAMES: Final = (*JOBS.names, *PLACES)
"""Canonical names; the last ones say where jobs ran, for a power log."""
UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units that a mapping may state for times, in seconds."""


class _Source(NamedTuple):
    """The column of the file that stands for a canonical one.

    Attributes:
        column: Its name.
        unit: Unit of its numbers, of `UNITS`; empty if it was not stated.
    """

    column: str
    unit: str = ""


class _Reading(NamedTuple):
    """How the rows of a file are read.

    Attributes:
        sources: By canonical column.
        header_lines: Number of lines before the first row.
    """

    sources: Mapping[str, _Source]
    header_lines: int


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read one CSV file.

    Raises:
        InputError: If the mapping names no canonical column.
        TraceError: If the file is wrong, or has not the columns that are needed or mapped.
    """
    path, mapping = one_path(paths, "CSV file"), options.mapping
    for name in mapping:
        if name not in NAMES:
            raise InputError(
                f"--map {name}={mapping[name]}: no canonical name {name!r}"
                f"{did_you_mean(name, NAMES)}; allowed: {', '.join(NAMES)}"
            )
    header = options.columns or tuple(
        name.strip().strip('"') for name in first_line(path).split(",")
    )
    wrong = find_other_delimiter(header, Layout().delimiter)
    if wrong:
        raise TraceError(f"{wrong}; found {cut_message(header[0], 500)}", f"{path}, line 1")
    problems = [
        Problem(
            f"column {name} is missing; found {cut_message(', '.join(header), 500)}; "
            f"say which one it is: --map {name}=COLUMN, or name the columns of a file without "
            "header: --columns NAME,NAME,...",
            f"{path}, header",
        )
        for name in NEEDED
        if header != ("",) and name not in header and name not in mapping
    ]
    if problems:
        raise TraceError(problems)
    sources = {name: _find_source(name, text, header) for name, text in mapping.items()}
    mapped = (source.column for source in sources.values())
    needed = (*mapped, *(name for name in NEEDED if name not in mapping))
    reading = _Reading(sources, header_lines=0 if options.columns else 1)
    for batch in text_batches(path, name_columns(Layout(), options), needed=needed):
        yield batch._replace(context=reading)


def _find_source(name: str, text: str, header: Sequence[str]) -> _Source:
    """The column that a mapping names, with its unit."""
    column, colon, unit = text.rpartition(":")
    if not colon or text in header or (unit not in UNITS and column not in header):
        return _Source(text)
    if unit not in UNITS:
        allowed = ", ".join(UNITS)
        raise InputError(f"--map {name}={text}: no unit {unit!r}; allowed: {allowed}")
    if name in PLACES or JOBS.field(name).metadata[b"unit"] != b"s":
        raise InputError(f"--map {name}={text}: {name} is no time, and has no unit {unit}")
    return _Source(column, unit)


def _absent(name: str) -> Sequence[str]:
    """Texts that stand for a missing value of a canonical column."""
    return NO_LIMIT if name == "estimate_s" else ABSENT


def convert(batch: Batch) -> ConvertedRows:
    """Columns by mapping, or else by name."""
    table: pa.Table = batch.rows
    reading: _Reading = batch.context
    wrong: Wrong = {}
    columns: dict[str, Any] = {}
    kinds = Kinds()
    for want in JOBS:
        name, unit = reading.sources.get(want.name, _Source(want.name))
        if name not in table.column_names:
            continue
        needed = not want.nullable
        if want.name in TIMES and not unit:
            columns[want.name], of_column = parse_times(
                table, name, wrong, batch.kind, needed=needed
            )
            kinds |= of_column
        elif pa.types.is_string(want.type):
            columns[want.name] = parse_texts(table, name)
        elif want.metadata[b"unit"] == b"s" and not unit:
            columns[want.name] = parse_seconds(
                table, name, wrong, needed=needed, absent=_absent(want.name)
            )
        else:
            whole = pa.types.is_integer(want.type)
            numbers = parse_numbers(
                table, name, wrong, whole=whole, needed=needed, absent=_absent(want.name), unit=unit
            )
            columns[want.name] = numbers * UNITS[unit or "s"]
            if want.name in TIMES:
                kinds |= Kinds(numbers=int(np.isfinite(numbers).sum()))
    if "deadline_s" in columns:
        late = np.flatnonzero(columns["deadline_s"] < columns["submit_time_s"]).tolist()
        due, submit = (
            reading.sources.get(name, _Source(name)).column
            for name in ("deadline_s", "submit_time_s")
        )
        for row in late:
            add_fault(
                wrong,
                row,
                f"{due} is before {submit}: a deadline is a time on the clock of the submissions",
            )
    if "job_id" not in columns:
        columns["job_id"] = number_jobs(batch.lines, reading.header_lines)
    drops = [("asks for no GPU", columns["gpus"] == 0)]
    rows = keep_rows(
        table.num_rows,
        columns,
        wrong,
        drops,
        kinds=kinds,
        names={name: source.column for name, source in reading.sources.items()},
    )
    places = {
        name: parse_texts(table, reading.sources.get(name, _Source(name)).column) for name in PLACES
    }
    return rows._replace(
        identity={name: texts.take(pa.array(rows.kept)) for name, texts in places.items()}
    )


FORMAT: Final = JobsFormat(
    name="csv",
    summary="jobs with columns by their canonical names, or mapped by --map",
    takes="one CSV file, plain or gzip",
    source="A CSV file of jobs",
    licence="as the imported file",
    time_unit="s, or ISO 8601 dates; spans as D-HH:MM:SS; other units where --map states them",
    cannot_tell=("Whatever its columns do not say; columns that are not mapped are left out.",),
    sniff=has_header(*NEEDED),
    batches=batches,
    convert=convert,
    times=("relative", "local", "offset"),
    headers=True,
)
