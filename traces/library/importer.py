"""Import of job logs of any size into a trace's folder, in batches.

Two passes. The first converts each batch and writes the kept rows to a scratch file, with
the line of each job. The second makes times relative to the first submission, leaves out repeated
jobs and those outside of the window, fills what the options say, and writes the table. Besides a
batch, memory holds 8 bytes per job: a hash of its id, so that only ids with equal hashes are
compared.
"""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.errors import SHOWN, Problem, TraceError
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.files.atomic import replace_folder, resolve
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import check_name, derive_name
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.library.filling import Filling
from wattkeeper.traces.library.repeats import (
    TRY_COLUMNS,
    Tries,
    find_repeats,
    refuse_repeats,
    unite_tries,
)
from wattkeeper.traces.library.window import (
    COLUMNS,
    Window,
    check_kind,
    measure_carryover,
    parse_window,
)
from wattkeeper.traces.readers.base import Batch, ImportOptions, JobsFormat, Quality, Rows
from wattkeeper.traces.schema import JOBS, NODES, is_optional, jobs_table, row_problems, validate

MUCH: Final = 0.1
"""Share of malformed rows above which a file is suspicious."""
ROW_GROUP: Final = 1 << 16
LAST_DATE_S: Final = 2.5e11
YEAR_2100_S: Final = 4102444800.0
EARLY: Final = "started before they were submitted, so without a recorded start"
"""Doubt about starts."""
LATE: Final = "submitted after the year 2100 if times count seconds since 1970: milliseconds?"
"""Doubt about numeric times."""

_NO_OPTIONS: Final = ImportOptions()
SCRATCH: Final = "scratch.parquet"
TABLE: Final = "jobs.parquet"
SUFFIXES: Final = (".gz", ".csv", ".tsv", ".txt", ".swf", ".json", ".trace", ".log")


class RowsMalformed(TraceError):
    """Rows of a log are malformed, few enough of them to be left out."""


@dataclass(slots=True)
class _FirstPass:
    """Results of the first pass."""

    rows: int = 0
    wrong: int = 0
    faults: list[tuple[int, int, str]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    numbers: int = 0
    dates: int = 0
    paths: list[Path] = field(default_factory=list)
    hashes: list[Ints] = field(default_factory=list)
    first_s: float = np.inf
    absent: set[str] = field(default_factory=lambda: {w.name for w in JOBS if is_optional(w)})
    absolute: bool = False
    notes: tuple[str, ...] = ()

    def fault(self, file: int, line: int, text: str) -> None:
        """Count a malformed row; the first ones by file and line are stored."""
        self.wrong += 1
        insort(self.faults, (file, line, text))
        del self.faults[SHOWN:]

    def problems(self) -> list[Problem]:
        """The stored faults."""
        return [
            Problem(text, f"{self.paths[index]}, line {line}") for index, line, text in self.faults
        ]

    def examples(self) -> list[str]:
        """The stored faults without folder names."""
        return [
            f"{self.paths[index].name}, line {line}: {text}" for index, line, text in self.faults
        ]

    def count(self, into: dict[str, int], counts: Mapping[str, int]) -> None:
        """Add counts by reason."""
        for reason, count in counts.items():
            into[reason] = into.get(reason, 0) + count


TIMES: Final = ("submit_time_s", "start_time_s")
"""Columns of points in time, which count from the first submission in the end."""


class _Changes(NamedTuple):
    """What the second pass changes, by row of the scratch file.

    Attributes:
        skip: Rows that are left out, ascending.
        submit_s: Submissions of jobs with several tries.
        tries: Their numbers of tries.
    """

    skip: Ints
    submit_s: Mapping[int, float]
    tries: Mapping[int, int]

    def apply(self, submit: Floats, start: int) -> tuple[Floats, Bools]:
        """Submissions of rows from `start` on, and which rows are kept."""
        keep = np.ones(len(submit), dtype=bool)
        keep[self.skip[(self.skip >= start) & (self.skip < start + len(submit))] - start] = False
        submit = submit.copy()
        for row, time_s in self.submit_s.items():
            if start <= row < start + len(submit):
                submit[row - start] = time_s
        return submit, keep


# Before they are made relative, they may be any time.
_UNPLACED: Final = pa.schema(
    [f.with_metadata({**f.metadata, b"rule": b"finite"}) if f.name in TIMES else f for f in JOBS],
    metadata=JOBS.metadata,
)
_SCRATCH: Final = _UNPLACED.append(pa.field("file", pa.int32())).append(
    pa.field("line", pa.int64())
)


def write_jobs(
    form: JobsFormat,
    paths: Sequence[Path],
    name: str | None,
    folder: Path,
    *,
    options: ImportOptions = _NO_OPTIONS,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Import logs into the folder of a trace, atomically.

    `folder` is made; for the other arguments see `wattkeeper.traces.library.store.add`, where
    `overwrite` is `replace`. By default the trace is named after the first path.

    Returns:
        The fields of ``trace.json``; of each table its rows and digest.

    Raises:
        InputError: If the name or the folder is not free or not allowed.
        TraceError: If a file is missing or wrong, or no job is left.
        EnvironmentLacks: If a file operation fails.
    """
    chosen = check_name(default_name(paths) if name is None else name)
    folders.check_free(folder, overwrite=overwrite)
    window, filling = parse_window(options), Filling(options)
    with replace_folder(resolve(folder)) as fresh:
        scratch = fresh / SCRATCH
        result = _convert(form.batches(paths, options), form, scratch, None)
        if result.numbers and result.dates:
            mostly_dates = result.dates > result.numbers
            result = _convert(form.batches(paths, options), form, scratch, mostly_dates)
        where = ", ".join(map(str, paths))
        changes = _leave_out(form, options, window, result, scratch)
        if result.wrong and not skip_bad:
            few = result.wrong <= MUCH * result.rows
            raise (RowsMalformed if few else TraceError)(_list_malformed(result, where))
        kept = result.rows - result.wrong - sum(result.dropped.values())
        if not kept:
            raise TraceError(_explain_empty(result), where)
        fields = _fields(form, options, chosen, result, kept)
        digest = _write_table(scratch, fresh / TABLE, result, changes, filling, fields)
        tables = {"jobs": (kept, digest)}
        fields["notes"] = (*result.notes, *filling.notes())
        scratch.unlink()
        if form.nodes is not None and (nodes := form.nodes(paths)) is not None:
            tables["nodes"] = _write_nodes(nodes, fresh / "nodes.parquet", fields)
        given = [*paths, *([options.partitions] if options.partitions else [])]
        fields["inputs"] = _inputs([*result.paths, *(path for path in given if path.is_file())])
        fields["tables"] = tables
        (fresh / folders.META).write_bytes(folders.meta_bytes(fields))
    return fields


def default_name(paths: Sequence[Path]) -> str:
    """The name of a trace of these files, derived from the first."""
    name = paths[0].absolute().name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return derive_name(name)


def _convert(
    batches: Iterator[Batch], form: JobsFormat, scratch: Path, dates: bool | None
) -> _FirstPass:
    """First pass; `dates` as in `Batch`."""
    result = _FirstPass()
    with pq.ParquetWriter(scratch, _SCRATCH, compression="zstd") as writer:
        for batch in batches:
            if batch.path not in result.paths:
                result.paths.append(batch.path)
            rows = form.convert(batch._replace(dates=dates))
            table, lines = _check(batch, rows, result)
            if not table.num_rows:
                continue
            result.absolute |= rows.absolute
            submit = np.asarray(table["submit_time_s"])
            result.first_s = min(result.first_s, float(np.min(submit)))
            result.absent -= {n for n in result.absent if table[n].null_count < table.num_rows}
            if not rows.absolute and (late := int((submit > YEAR_2100_S).sum())):
                result.count(result.doubts, {LATE: late})
            ids = table["job_id"].to_pylist()
            result.hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
            file = np.full(len(lines), result.paths.index(batch.path), dtype=np.int32)
            table = table.append_column(_SCRATCH.field("file"), pa.array(file))
            table = table.append_column(_SCRATCH.field("line"), pa.array(lines))
            writer.write_table(table.replace_schema_metadata(_SCRATCH.metadata))
    return result


def _check(batch: Batch, rows: Rows, result: _FirstPass) -> tuple[pa.Table, Ints]:
    """The valid jobs of a batch, with their lines."""
    table = jobs_table({"job_id": pa.array([], pa.string()), **rows.jobs})
    table = table.replace_schema_metadata(_UNPLACED.metadata)
    lines = batch.lines[rows.kept]
    breaking = row_problems(table, _UNPLACED, rows.names)
    result.names = rows.names
    result.numbers += rows.kinds[0]
    result.dates += rows.kinds[1]
    faults = dict(batch.wrong)
    faults |= {int(batch.lines[row]): text for row, text in rows.wrong.items()}
    faults |= {int(lines[row]): text for row, text in breaking.items()}
    for line in sorted(faults):
        result.fault(result.paths.index(batch.path), line, faults[line])
    result.rows += len(batch.lines) + len(batch.wrong)
    result.count(result.dropped, rows.dropped)
    result.count(result.doubts, rows.doubts)
    table, early = _remove_early_starts(table)
    if early:
        result.count(result.doubts, {EARLY: early})
    if breaking:
        good = np.setdiff1d(np.arange(table.num_rows), list(breaking))
        table, lines = table.take(pa.array(good)), lines[good]
    return table, lines


def _remove_early_starts(table: pa.Table) -> tuple[pa.Table, int]:
    """The jobs without recorded starts that lie before the submission, and their number."""
    starts = table["start_time_s"]
    if starts.null_count == table.num_rows:
        return table, 0
    early = pc.less(starts, table["submit_time_s"]).fill_null(False)
    number = pc.sum(early).as_py() or 0
    if not number:
        return table, 0
    kept = pc.if_else(early, pa.scalar(None, pa.float64()), starts)
    return replace_column(table, "start_time_s", kept), number


def _leave_out(
    form: JobsFormat,
    options: ImportOptions,
    window: Window,
    result: _FirstPass,
    scratch: Path,
) -> _Changes:
    """Repeated rows, tries that do not count, and jobs outside of the window."""
    files = [path.name for path in result.paths]
    name = result.names.get("job_id", "job_id")
    columns = TRY_COLUMNS if form.requeues else ()
    repeats = find_repeats(result.hashes, lambda names: _parts(scratch, names), columns)
    if form.requeues:
        tries, faults = unite_tries(repeats, name, files)
    else:
        tries, faults = Tries((), {}, {}, {}, 0.0), refuse_repeats(repeats, name, files)
    for fault in faults:
        result.fault(fault.file, fault.line, fault.text)
    result.count(result.dropped, tries.dropped)
    notes = []
    if tries.tries:
        result.absent.discard("tries")
        notes.append(
            f"{len(tries.tries)} jobs were tried several times; the last try that started counts, "
            "submission is that of the first. The other tries held "
            f"{tries.held_gpu_s / 3600:,.1f} GPU hours, which are left out."
        )
    skip = np.array(sorted((*tries.skip, *(fault.row for fault in faults))), dtype=np.int64)
    changes = _Changes(skip, tries.submit_s, tries.tries)
    if len(skip) or window.dates is not None:
        more = _apply_window(options, window, result, changes, scratch)
        changes = changes._replace(skip=more)
    if window.since_s > -np.inf:
        count, gpu_s = measure_carryover(window, _parts(scratch, COLUMNS))
        if count:
            notes.append(
                f"{count} jobs that were submitted before {options.since} ran after it, and held "
                f"{gpu_s / 3600:,.1f} GPU hours then; they are left out, so that the trace begins "
                "with an empty cluster."
            )
    result.notes = (*result.notes, *notes)
    return changes


def _apply_window(
    options: ImportOptions, window: Window, result: _FirstPass, changes: _Changes, scratch: Path
) -> Ints:
    """The rows that are left out in the end; the first submission of the others is set."""
    if np.isfinite(result.first_s):
        check_kind(window, result.absolute)
    skip, start = [], 0
    result.first_s = np.inf
    for part in _parts(scratch, ["submit_time_s"]):
        submit, keep = changes.apply(np.asarray(part["submit_time_s"]), start)
        for reason, outside in window.reasons(options, submit).items():
            if hits := int((keep & outside).sum()):
                result.count(result.dropped, {reason: hits})
                keep &= ~outside
        if keep.any():
            result.first_s = min(result.first_s, float(submit[keep].min()))
        skip.append(start + np.flatnonzero(~keep))
        start += part.num_rows
    return np.concatenate(skip).astype(np.int64) if skip else changes.skip


def _list_malformed(result: _FirstPass, where: str) -> list[Problem]:
    """The first malformed rows, and advice after the last of them."""
    text = f"{result.wrong} of {result.rows} rows malformed"
    *others, last = result.problems()
    if result.wrong > len(result.faults):
        text += f", the first {len(result.faults)} of them above"
    hint = f"{last.message}\n{where}: {text}; --skip-bad leaves them out and counts them"
    return [*others, Problem(hint, last.where)]


def _explain_empty(result: _FirstPass) -> str:
    if not result.rows:
        return "has no rows"
    reasons = [f"{count} {reason}" for reason, count in sorted(result.dropped.items())]
    reasons += [f"{result.wrong} malformed"] if result.wrong else []
    return f"has no GPU job: of {result.rows} rows {', '.join(reasons)}"


def _parameters(options: ImportOptions) -> dict[str, Any]:
    """What an import was asked for, JSON-ready; empty if nothing."""
    given = options._replace(mapping=dict(options.mapping), columns=options.columns)._asdict()
    partitions = options.partitions and options.partitions.name
    return {key: value for key, value in {**given, "partitions": partitions}.items() if value}


def _fields(
    form: JobsFormat, options: ImportOptions, name: str, result: _FirstPass, kept: int
) -> dict[str, Any]:
    first = f"{result.first_s:.15g} s in the file"
    if result.absolute and abs(result.first_s) < LAST_DATE_S:
        moment = datetime.fromtimestamp(result.first_s, UTC).replace(tzinfo=None)
        first = f"{moment.isoformat(' ')} ({form.clock})"
    quality = Quality(
        rows=result.rows,
        kept=kept,
        wrong=result.wrong,
        wrong_examples=result.examples(),
        dropped=dict(sorted(result.dropped.items())),
        doubts=dict(sorted(result.doubts.items())),
        time_origin=f"the first submission, {first}",
        time_unit=form.time_unit,
        cannot_tell=list(form.cannot_tell),
    )
    return {
        "name": name,
        "kind": "jobs",
        "format": form.name,
        "origin": form.origin,
        "source": form.source,
        "licence": form.licence,
        "notes": (),
        "parameters": _parameters(options),
        "quality": quality,
    }


def _write_table(
    scratch: Path,
    path: Path,
    result: _FirstPass,
    changes: _Changes,
    filling: Filling,
    fields: Mapping[str, Any],
) -> str:
    """Second pass; returns the digest of the table."""
    metadata = JOBS.metadata | folders.origin_metadata(fields)
    schema = pa.schema([f for f in JOBS if f.name not in result.absent], metadata=metadata)
    start = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in _parts(scratch, schema.names):
            submit, keep = changes.apply(np.asarray(part["submit_time_s"]), start)
            table = replace_column(part, "submit_time_s", pa.array(submit))
            if changes.tries:
                counts = np.ones(part.num_rows, dtype=np.int32)
                for row, count in changes.tries.items():
                    if start <= row < start + part.num_rows:
                        counts[row - start] = count
                table = replace_column(table, "tries", pa.array(counts))
            start += part.num_rows
            for name in set(TIMES) - result.absent:
                table = replace_column(table, name, pc.subtract(table[name], result.first_s))
            if not keep.all():
                table = table.filter(pa.array(keep))
            writer.write_table(filling.fill(table).cast(schema))
    return digest_file(path)


def _parts(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for part in file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([part])


def _write_nodes(table: pa.Table, path: Path, fields: Mapping[str, Any]) -> tuple[int, str]:
    table = validate(table, NODES, path.name)
    extra = folders.origin_metadata(fields)
    pq.write_table(table.replace_schema_metadata(NODES.metadata | extra), path, compression="zstd")
    return table.num_rows, digest_file(path)


def _inputs(paths: Sequence[Path]) -> dict[str, str]:
    """Digests by file name; a second file of one name gets a number."""
    digests: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        name, count = path.name, 1
        while name in digests:
            count += 1
            name = f"{path.name} ({count})"
        digests[name] = digest_file(path)
    return digests
