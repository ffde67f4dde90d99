"""Any CSV file with one row a job: its columns are named on the command line.

A column of the file stands for a canonical one if it bears its name or is mapped to it. Needed are
``submit_time_s`` (seconds, or ISO dates) and ``gpus``; other columns of the file are left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import InputError, Problem, TraceError, cut_message
from wattkeeper.traces.readers.base import Batch, ImportOptions, JobsFormat, Rows
from wattkeeper.traces.readers.columns import (
    Wrong,
    add_fault,
    keep_rows,
    number_jobs,
    parse_numbers,
    parse_texts,
    parse_times,
)
from wattkeeper.traces.readers.textfile import (
    Layout,
    find_other_delimiter,
    first_line,
    has_header,
    name_columns,
    one_path,
    text_batches,
)
from wattkeeper.traces.schema import JOBS

NEEDED: Final = ("submit_time_s", "gpus")
TIMES: Final = ("submit_time_s", "start_time_s", "deadline_s")
UNITS: Final = {b"s": "seconds"}


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read one CSV file.

    Raises:
        InputError: If the mapping names no canonical column.
        TraceError: If the file is wrong, or has not the columns that are needed or mapped.
    """
    path, mapping = one_path(paths, "CSV file"), options.mapping
    for name in mapping:
        if name not in JOBS.names:
            allowed = ", ".join(JOBS.names)
            raise InputError(
                f"--map {name}={mapping[name]}: no canonical name {name!r}; allowed: {allowed}"
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
    needed = (*mapping.values(), *(name for name in NEEDED if name not in mapping))
    for batch in text_batches(path, name_columns(Layout(), options), needed=needed):
        yield batch._replace(context=options)


def convert(batch: Batch) -> Rows:
    """Columns by mapping, or else by name."""
    table: pa.Table = batch.rows
    options: ImportOptions = batch.context
    mapping = options.mapping
    wrong: Wrong = {}
    columns: dict[str, Any] = {}
    kinds = (0, 0)
    for want in JOBS:
        name = mapping.get(want.name, want.name)
        if name not in table.column_names:
            continue
        needed = not want.nullable
        if want.name in TIMES:
            columns[want.name], of_column = parse_times(
                table, name, wrong, batch.dates, needed=needed
            )
            kinds = kinds[0] + of_column[0], kinds[1] + of_column[1]
        elif pa.types.is_string(want.type):
            columns[want.name] = parse_texts(table, name)
        else:
            whole = pa.types.is_integer(want.type)
            unit = UNITS.get(want.metadata[b"unit"], "")
            columns[want.name] = parse_numbers(
                table, name, wrong, whole=whole, needed=needed, unit=unit
            )
    if "deadline_s" in columns:
        late = np.flatnonzero(columns["deadline_s"] < columns["submit_time_s"]).tolist()
        due, submit = (mapping.get(name, name) for name in ("deadline_s", "submit_time_s"))
        for row in late:
            add_fault(wrong, row, f"{due} is before {submit}: a deadline is a time on the clock of "
                      "the submissions")  # fmt: skip
    if "job_id" not in columns:
        columns["job_id"] = number_jobs(batch.lines, header_lines=0 if options.columns else 1)
    drops = [("asks for no GPU", columns["gpus"] == 0)]
    return keep_rows(
        table.num_rows,
        columns,
        wrong,
        drops,
        absolute=kinds[1] > 0,
        kinds=kinds,
        names=mapping,
    )


FORMAT: Final = JobsFormat(
    name="csv",
    summary="jobs with columns by their canonical names, or mapped by --map",
    takes="one CSV file, plain or gzip",
    source="A CSV file of jobs",
    licence="as the imported file",
    time_unit="s, or ISO 8601 dates",
    cannot_tell=("Whatever its columns do not say; columns that are not mapped are left out.",),
    sniff=has_header(*NEEDED),
    batches=batches,
    convert=convert,
    clock="the file's clock; UTC where it gives offsets",
    headers=True,
)
