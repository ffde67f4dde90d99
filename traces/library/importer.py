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

from wattkeeper.policies.arrays import Bools
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
from wattkeeper.traces.library.uncounted import UNCOUNTED
from wattkeeper.traces.library.window import parse_window
from wattkeeper.traces.power.join import COLUMNS as PLACES
from wattkeeper.traces.power.join import PowerJoin
from wattkeeper.traces.readers.base import (
    Batch,
    ConvertedRows,
    ImportOptions,
    JobsFormat,
    Quality,
    TimeKind,
)
from wattkeeper.traces.schema import JOBS, NODES, TIMES
from wattkeeper.traces.tables import jobs_table, row_problems, validate
from wattkeeper.traces.times.origin import describe_time
from wattkeeper.traces.times.zones import to_instants
from wattkeeper.traces.trace import Trace

MUCH: Final = 0.1
"""Share of malformed rows above which a file is suspicious."""
YEAR_2100_S: Final = 4102444800.0
EARLY: Final = "started before they were submitted, so without a recorded start"
"""Doubt about starts."""
INELIGIBLE: Final = "Start before Eligible, so Submit counts as its arrival"
"""Doubt about the time from which on a job could start."""
LONG_S: Final = 30 * 86400.0
LONG: Final = "ran longer than 30 days, most of all: milliseconds?"
"""Doubt about durations."""
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
_IDENTITY: Final = [
    pa.field("cluster", pa.string()),
    pa.field("eligible_s", pa.float64()),
    pa.field("ended_s", pa.float64()),
    *(pa.field(name, pa.string()) for name in PLACES),
]
"""What a format may say of a job besides `JOBS`."""
_SCRATCH: Final = pa.schema(
    [
        *_UNPLACED,
        pa.field("file", pa.int32()),
        pa.field("line", pa.int64()),
        pa.field("cluster", pa.string()),
        pa.field("ended_s", pa.float64()),
        pa.field("submitted_s", pa.float64()),
        *(pa.field(name, pa.string()) for name in PLACES),
    ]
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
    power_log: Trace | None = None,
) -> ImportedJobs:
    """Import logs into the folder of a trace, atomically.

    `folder` is made; `power_log` is that of the options; for the other arguments see
    `wattkeeper.traces.library.store.add`, where `overwrite` is `replace`. By default the trace is
    named after the first path.

    Raises:
        InputError: If the name or the folder is not free or not allowed.
        TraceError: If a file is missing or wrong, or no job is left.
        EnvironmentLacks: If a file operation fails.
    """
    chosen = check_name(default_name(paths) if name is None else name)
    batches = form.batches(paths, options)  # first of all, for it may refuse the files
    folders.check_free(folder, overwrite=overwrite)
    window, filling = parse_window(options), Filling(options)
    with replace_folder(resolve(folder)) as fresh:
        scratch = fresh / SCRATCH

        def convert(kind: TimeKind | None, batches: Iterator[Batch]) -> FirstPass:
            return _convert(batches, form, scratch, kind, options.zone)

        result = convert(None, batches)
        if len(result.kinds.found) > 1:
            result = convert(result.kind, form.batches(paths, options))
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
        power = _join_power(form, options, power_log, result)
        digest = _write_table(scratch, fresh / TABLE, result, changes, filling, power, fields)
        tables = {"jobs": (kept, digest)}
        fields["notes"] = (
            *result.notes,
            *filling.notes(),
            *(() if power is None else power.notes()),
            *note_services(fresh / TABLE),
        )
        scratch.unlink()
        if form.nodes is not None and (nodes := form.nodes(paths)) is not None:
            tables["nodes"] = _write_nodes(nodes, fresh / "nodes.parquet", fields)
        given = [*paths, *([options.partitions] if options.partitions else [])]
        fields["inputs"] = _inputs([*result.paths, *(path for path in given if path.is_file())])
        fields["inputs"] |= {} if power_log is None else dict(power_log.inputs)
        fields["tables"] = tables
        (fresh / folders.META).write_bytes(folders.meta_bytes(fields))
    return ImportedJobs(fields, filling.outlived)


def _join_power(
    form: JobsFormat, options: ImportOptions, log: Trace | None, result: FirstPass
) -> PowerJoin | None:
    """What gives jobs the samples of a power log, if there is one."""
    if log is None:
        return None
    zone = None if options.zone is None else find_log_zone(options.zone)
    result.absent -= {"energy_j", "measured_share"}
    return PowerJoin(log, know_utc(form, result.kind, options.zone), zone)


def note_services(path: Path) -> Iterator[str]:
    """What a reader of a table of jobs must know of services in it."""
    if "serves" not in pq.read_schema(path).names:
        return
    jobs = pq.read_table(path, columns=["serves", "gpus", "gpu_milli"])
    served = jobs.filter(pc.is_valid(jobs["serves"]))
    gpus = pc.sum(pc.multiply(served["gpus"], served["gpu_milli"])).as_py() / 1000
    yield (
        f"{served.num_rows:,} parts of services, which still run when the log ends, hold {gpus:,g} "
        "GPUs from their start (at the earliest from the first other job) to the last time of the "
        "log. They are simulated as jobs of that length; their waits do not count."
    )


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
            table = _check(batch, rows, result, clock)
            if not table.num_rows:
                continue
            submit = np.asarray(table["submit_time_s"])
            result.first_s = min(result.first_s, float(np.min(submit)))
            result.absent -= {n for n in result.absent if table[n].null_count < table.num_rows}
            result.clusters.update(table["cluster"].to_pylist())
            if result.kind == "numbers":
                _doubt(result, LATE, table, submit > YEAR_2100_S)
            duration = np.asarray(table["duration_s"])
            result.durations += int(np.isfinite(duration).sum())
            _doubt(result, LONG, table, duration > LONG_S)
            ids = table["job_id"].to_pylist()
            result.hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
            writer.write_table(table)
    if (long := result.doubts.get(LONG)) and 2 * long.rows <= result.durations:
        del result.doubts[LONG]
    if uncounted := result.uncounted.find():
        result.doubt(UNCOUNTED, *uncounted.place, uncounted.rows)
    return result


def _check(batch: Batch, rows: ConvertedRows, result: FirstPass, clock: tzinfo | None) -> pa.Table:
    """The valid jobs of a batch, as in the scratch file."""
    table = jobs_table({"job_id": pa.array([], pa.string()), **rows.jobs})
    table = table.replace_schema_metadata(_UNPLACED.metadata)
    file, lines = result.paths.index(batch.path), batch.lines[rows.kept]
    breaking = row_problems(table, _UNPLACED, rows.names)
    result.names = rows.names
    result.kinds |= rows.kinds
    nulls = {f.name: pa.nulls(table.num_rows, f.type) for f in _IDENTITY}
    for want in _IDENTITY:
        values = {**nulls, **rows.identity}[want.name]
        table = table.append_column(want, values.cast(want.type))
    others = rows.without_gpus
    if clock is not None and rows.kinds.local:
        if others is not None:
            submit = to_instants(others.submit_time_s, clock).first_s
            others = others._replace(submit_time_s=submit)
        table, skipped, doubts = read_local_times(table, clock, rows.names)
        breaking = skipped | breaking
        for what, odd in doubts.items():
            result.doubt(what, file, int(lines[odd].min()), len(odd))
    faults = list(batch.wrong.items())  # several rows may be on one line
    faults += [(int(batch.lines[row]), text) for row, text in rows.wrong.items()]
    faults += [(int(lines[row]), text) for row, text in breaking.items()]
    for line, text in sorted(faults, key=lambda fault: fault[0]):
        result.fault(file, line, text)
    result.rows += len(batch.lines) + len(batch.wrong)
    result.count(result.dropped, rows.dropped)
    for what, odd in rows.doubts.items():
        result.doubt(what, file, int(batch.lines[odd].min()), len(odd))
    more = {"file": np.full(len(lines), file), "line": lines}
    for name, numbers in more.items():
        table = table.append_column(want := _SCRATCH.field(name), pa.array(numbers).cast(want.type))
    table = table.append_column(_SCRATCH.field("submitted_s"), table["submit_time_s"])
    table = _remove_early_starts(_await_eligibility(table, result), result)
    table = table.select(_SCRATCH.names)
    if breaking:
        good = np.setdiff1d(np.arange(table.num_rows), list(breaking))
        table = table.take(pa.array(good))
    if others is not None:
        cluster, queue = (table[name].combine_chunks() for name in ("cluster", "queue"))
        submit = np.asarray(table["submit_time_s"])
        result.uncounted.add(cluster, queue, submit, others, file, batch.lines[others.rows])
    return table


def _doubt(result: FirstPass, what: str, table: pa.Table, rows: Bools) -> None:
    """Count suspicious rows of the scratch file."""
    if len(found := np.flatnonzero(rows)):
        file, line = (table[name][int(found[0])].as_py() for name in ("file", "line"))
        result.doubt(what, file, line, len(found))


def _await_eligibility(table: pa.Table, result: FirstPass) -> pa.Table:
    """The jobs, of which those that had to wait until they were eligible arrive then."""
    eligible = table["eligible_s"]
    if eligible.null_count == table.num_rows:
        return table
    ineligible = pc.less(table["start_time_s"], eligible).fill_null(False)
    _doubt(result, INELIGIBLE, table, np.asarray(ineligible))
    later = pc.and_not(pc.greater(eligible, table["submit_time_s"]).fill_null(False), ineligible)
    arrival = pc.if_else(later, eligible, table["submit_time_s"])
    return replace_column(table, "submit_time_s", arrival)


def _remove_early_starts(table: pa.Table, result: FirstPass) -> pa.Table:
    """The jobs without recorded starts that lie before the submission, which is a doubt."""
    starts = table["start_time_s"]
    if starts.null_count == table.num_rows:
        return table
    early = pc.less(starts, table["submit_time_s"]).fill_null(False)
    if not pc.any(early).as_py():
        return table
    _doubt(result, EARLY, table, np.asarray(early))
    kept = pc.if_else(early, pa.scalar(None, pa.float64()), starts)
    return replace_column(table, "start_time_s", kept)


def _list_malformed(result: FirstPass, where: str) -> list[Problem]:
    """The first malformed rows, and advice after the last of them."""
    text = f"{result.wrong} of {result.rows} rows malformed"
    *others, last = result.problems()
    if result.wrong > (shown := result.shown()):
        text += f", the first {shown} of them above"
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
        wrong_shown=result.shown(),
        dropped=dict(sorted(result.dropped.items())),
        doubts={what: each.rows for what, each in sorted(result.doubts.items())},
        doubt_examples={
            what: result.describe(each.place) for what, each in sorted(result.doubts.items())
        },
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
    power: PowerJoin | None,
    fields: Mapping[str, Any],
) -> str:
    """Second pass; returns the digest of the table."""
    metadata = JOBS.metadata | folders.origin_metadata(fields)
    schema = pa.schema([f for f in JOBS if f.name not in result.absent], metadata=metadata)
    start = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        places = () if power is None else PLACES
        for part in read_parts(scratch, [*schema.names, "cluster", *places]):
            table, keep = changes.apply(part, start)
            if changes.values.get("tries"):
                table = replace_column(table, "tries", table["tries"].fill_null(1))
            start += part.num_rows
            if not keep.all():
                table = table.filter(pa.array(keep))
            if power is not None:
                table = power.apply(table)
            for name in set(TIMES) - result.absent:
                table = replace_column(table, name, pc.subtract(table[name], result.first_s))
            table = filling.fill(table.select(schema.names))
            writer.write_table(table.cast(schema))
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
