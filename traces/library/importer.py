"""Import of job logs of any size into a trace's folder, in batches.

Two passes. The first converts each batch and writes the kept rows to a scratch file, with
the line of each job. The second makes times relative to the first submission, leaves out repeated
jobs and those outside of the window, fills what the options say, and writes the table. Besides a
batch, memory holds 8 bytes per job: a hash of its id, so that only ids with equal hashes are
compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.estimates import OutlivedEstimates
from wattkeeper.traces.files.atomic import replace_folder, resolve
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import check_name, derive_name
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.library.changes import Changes, leave_out
from wattkeeper.traces.library.filling import Filling
from wattkeeper.traces.library.first_pass import FirstPass, read_parts
from wattkeeper.traces.library.local_times import (
    check_zone,
    find_log_zone,
    know_utc,
    read_local_times,
)
from wattkeeper.traces.library.window import parse_window
from wattkeeper.traces.readers.base import (
    Batch,
    ImportOptions,
    JobsFormat,
    Quality,
    Rows,
    TimeKind,
)
from wattkeeper.traces.schema import JOBS, NODES, TIMES, jobs_table, row_problems, validate
from wattkeeper.traces.time_origin import describe_time

MUCH: Final = 0.1
"""Share of malformed rows above which a file is suspicious."""
YEAR_2100_S: Final = 4102444800.0
EARLY: Final = "started before they were submitted, so without a recorded start"
"""Doubt about starts."""
LATE: Final = "submitted after the year 2100 if times count seconds since 1970: milliseconds?"
"""Doubt about numeric times."""


class ImportedJobs(NamedTuple):
    """An imported trace of jobs.

    Attributes:
        fields: The fields of ``trace.json``; of each table its rows and digest.
        outlived: How many jobs ran longer than estimated.
    """

    fields: dict[str, Any]
    outlived: OutlivedEstimates


_NO_OPTIONS: Final = ImportOptions()
SCRATCH: Final = "scratch.parquet"
TABLE: Final = "jobs.parquet"
SUFFIXES: Final = (".gz", ".csv", ".tsv", ".txt", ".swf", ".json", ".trace", ".log")


class RowsMalformed(TraceError):
    """Rows of a log are malformed, few enough of them to be left out."""


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
) -> ImportedJobs:
    """Import logs into the folder of a trace, atomically.

    `folder` is made; for the other arguments see `wattkeeper.traces.library.store.add`, where
    `overwrite` is `replace`. By default the trace is named after the first path.

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

        def convert(kind: TimeKind | None) -> FirstPass:
            return _convert(form.batches(paths, options), form, scratch, kind, options.zone)

        result = convert(None)
        if len(result.kinds.found) > 1:
            result = convert(result.kind)
        check_zone(options.zone, form, result)
        where = ", ".join(map(str, paths))
        changes = leave_out(form, options, window, result, scratch)
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
    return ImportedJobs(fields, filling.outlived)


def default_name(paths: Sequence[Path]) -> str:
    """The name of a trace of these files, derived from the first."""
    name = paths[0].absolute().name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return derive_name(name)


def _convert(
    batches: Iterator[Batch],
    form: JobsFormat,
    scratch: Path,
    kind: TimeKind | None,
    zone: str | None,
) -> FirstPass:
    """First pass; `kind` as in `Batch`, `zone` as in `ImportOptions`."""
    result, clock = FirstPass(), None if zone is None else find_log_zone(zone)
    with pq.ParquetWriter(scratch, _SCRATCH, compression="zstd") as writer:
        for batch in batches:
            if batch.path not in result.paths:
                result.paths.append(batch.path)
            rows = form.convert(batch._replace(kind=kind))
            table, lines = _check(batch, rows, result, clock)
            if not table.num_rows:
                continue
            submit = np.asarray(table["submit_time_s"])
            result.first_s = min(result.first_s, float(np.min(submit)))
            result.absent -= {n for n in result.absent if table[n].null_count < table.num_rows}
            if result.kind == "numbers" and (late := int((submit > YEAR_2100_S).sum())):
                result.count(result.doubts, {LATE: late})
            ids = table["job_id"].to_pylist()
            result.hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
            file = np.full(len(lines), result.paths.index(batch.path), dtype=np.int32)
            table = table.append_column(_SCRATCH.field("file"), pa.array(file))
            table = table.append_column(_SCRATCH.field("line"), pa.array(lines))
            writer.write_table(table.replace_schema_metadata(_SCRATCH.metadata))
    return result


def _check(
    batch: Batch, rows: Rows, result: FirstPass, clock: tzinfo | None
) -> tuple[pa.Table, Ints]:
    """The valid jobs of a batch, with their lines."""
    table = jobs_table({"job_id": pa.array([], pa.string()), **rows.jobs})
    table = table.replace_schema_metadata(_UNPLACED.metadata)
    lines = batch.lines[rows.kept]
    breaking = row_problems(table, _UNPLACED, rows.names)
    result.names = rows.names
    result.kinds |= rows.kinds
    if clock is not None and rows.kinds.local:
        table, skipped, doubts = read_local_times(table, clock, rows.names)
        breaking = skipped | breaking
        result.count(result.doubts, doubts)
    faults = list(batch.wrong.items())  # several rows may be on one line
    faults += [(int(batch.lines[row]), text) for row, text in rows.wrong.items()]
    faults += [(int(lines[row]), text) for row, text in breaking.items()]
    for line, text in sorted(faults, key=lambda fault: fault[0]):
        result.fault(result.paths.index(batch.path), line, text)
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


def _list_malformed(result: FirstPass, where: str) -> list[Problem]:
    """The first malformed rows, and advice after the last of them."""
    text = f"{result.wrong} of {result.rows} rows malformed"
    *others, last = result.problems()
    if result.wrong > len(result.faults):
        text += f", the first {len(result.faults)} of them above"
    hint = f"{last.message}\n{where}: {text}; --skip-bad leaves them out and counts them"
    return [*others, Problem(hint, last.where)]


def _explain_empty(result: FirstPass) -> str:
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
    form: JobsFormat, options: ImportOptions, name: str, result: FirstPass, kept: int
) -> dict[str, Any]:
    first = f"{result.first_s:.15g} s in the file"
    if (is_utc := know_utc(form, result.kind, options.zone)) is not None:
        first = describe_time(result.first_s, is_utc=is_utc) or first
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
    result: FirstPass,
    changes: Changes,
    filling: Filling,
    fields: Mapping[str, Any],
) -> str:
    """Second pass; returns the digest of the table."""
    metadata = JOBS.metadata | folders.origin_metadata(fields)
    schema = pa.schema([f for f in JOBS if f.name not in result.absent], metadata=metadata)
    start = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in read_parts(scratch, schema.names):
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
