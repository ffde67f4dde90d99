"""The trace library: a folder of traces, found by name.

It is ``$WATTKEEPER_TRACES``, by default ``wattkeeper/traces`` in the user's cache directory
(``$XDG_CACHE_HOME``, or ``~/.cache``).
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.compute as pc

from wattkeeper.policies.errors import EnvironmentLacks, InputError, TraceError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.estimates import OutlivedEstimates
from wattkeeper.traces.files.atomic import resolve, settle
from wattkeeper.traces.files.names import check_name, is_name
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.library.folder import META, read, write
from wattkeeper.traces.schema import KINDS
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.traces.readers.base import ImportOptions


IMPORT = "wattkeeper traces import"

SHIPPED: Final = Path(__file__).with_name("shipped")
"""Traces that come with wattkeeper, a folder each."""


class Added(NamedTuple):
    """The result of an import into the library.

    Attributes:
        folder: Folder of the trace.
        name: The trace's name.
        kind: ``jobs``, ``profiles``, ``node-events``, ``networks`` or ``power-log``.
        origin: As in `Trace`.
        rows: Number of rows of each table.
        notes: As in `Trace`.
        quality: As in `Trace`; empty where the format counts nothing.
        outlived: How many jobs ran longer than estimated.
    """

    folder: Path
    name: str
    kind: str
    origin: str
    rows: Mapping[str, int]
    notes: tuple[str, ...]
    quality: Mapping[str, Any]
    outlived: OutlivedEstimates = OutlivedEstimates(0, 0)


def names() -> tuple[str, ...]:
    """The names of all traces in the library, sorted, also of those without ``trace.json``.

    Raises:
        EnvironmentLacks: If the library is there and cannot be listed.
    """
    settle(library_folder())
    try:
        with os.scandir(library_folder()) as entries:
            return tuple(sorted(e.name for e in entries if is_name(e.name) and _is_trace(Path(e))))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise EnvironmentLacks(
            f"cannot list {library_folder()}: {error.strerror or error}"
        ) from error


def _is_trace(folder: Path) -> bool:
    """Whether a folder holds a trace, or what is left of one."""
    return any(os.path.lexists(folder / name) for name in (META, *(f"{k}.parquet" for k in KINDS)))


def locate(name_or_path: str | Path, beside: Path = Path()) -> Path:
    """The folder of a trace.

    A name in the library goes before one that comes with wattkeeper, and that before a folder of
    that name (write ``./NAME`` for that one). A relative path is relative to the folder `beside`,
    by default the working directory.

    Raises:
        InputError: If there is no such trace; the message lists what is there.
        TraceError: If it is a file; the message says how to import it.
    """
    text = str(name_or_path)
    if is_name(text):
        settle(library_folder(), text)
        if (library_folder() / text).is_dir():
            return library_folder() / text
        if (SHIPPED / text).is_dir():
            return SHIPPED / text
    try:
        path = beside / Path(text).expanduser()
        whole = resolve(path)
        settle(whole.parent, whole.name)
        found = bool(text) and path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte, ~nobody
        found = False
    if found and path.is_file():
        advice = "give its folder" if _is_trace(path.parent) else advise_import(path)
        raise TraceError(f"is a file, not the folder of a trace; {advice}", path)
    if found:
        return path
    known = ", ".join(names()) or "nothing yet"
    nowhere = "" if beside == Path() else f", and {beside} holds no folder of that name"
    raise InputError(
        f"no trace named {text!r}{did_you_mean(text, names())}: in the library "
        f"({library_folder()}) there is {known}{nowhere}. {advise_source(text)}, "
        "or give the path of a trace's folder"
    )


def find(name_or_path: str | Path, beside: Path = Path()) -> Trace:
    """Read a trace by its name in the library or by the path of its folder; see `locate`.

    Raises:
        InputError: If there is no such trace; the message lists what is there.
        TraceError: If it is there and broken.
    """
    return read(locate(name_or_path, beside))


def save(trace: Trace, *, replace: bool = False, folder: Path | None = None) -> Path:
    """Put a trace into the library under its name, or into another folder.

    Returns:
        Its folder.

    Raises:
        InputError: If the name is taken and `replace` is not given.
        EnvironmentLacks: If the file system refuses.
    """
    folder = folder or library_folder() / check_name(trace.name)
    settle(folder.parent)
    write(trace, folder, overwrite=replace)
    return folder


def add(
    form: str,
    paths: Sequence[Path],
    name: str | None = None,
    *,
    replace: bool = False,
    options: ImportOptions | None = None,
    skip_bad: bool = False,
    folder: Path | None = None,
) -> Added:
    """Import files into the library; job logs are read in batches.

    Args:
        form: Name of a format, or `wattkeeper.traces.formats.AUTO`.
        paths: The paths that it takes.
        name: The trace's name; by default the format chooses.
        replace: Whether an existing trace may be replaced.
        options: What is said beyond the files.
        skip_bad: Whether malformed rows of a job log are skipped and counted.
        folder: Folder of the trace, instead of one in the library.

    Raises:
        InputError: If there is no such format, the name is taken or not allowed, or an option is
            wrong, or given for a format without it.
        TraceError: If a file is missing or wrong.
        EnvironmentLacks: If a file operation fails.
    """
    from wattkeeper.traces.formats import find_format
    from wattkeeper.traces.library.importer import default_name, write_jobs
    from wattkeeper.traces.readers.base import ImportOptions, JobsFormat

    known, options = find_format(form, paths), options or ImportOptions()
    if options.mapping and known.name != "csv":
        raise InputError(f"a mapping of columns is for format csv, not {known.name}")
    if options.columns and not (isinstance(known, JobsFormat) and known.headers):
        raise InputError(f"names of columns are for logs with a header line, not {known.name}")
    if isinstance(known, JobsFormat):
        chosen = check_name(default_name(paths) if name is None else name)
        folder = folder or library_folder() / chosen
        settle(folder.parent)
        fields, outlived = write_jobs(
            known,
            paths,
            chosen,
            folder,
            options=options,
            skip_bad=skip_bad,
            overwrite=replace,
            power_log=None if options.power is None else _find_power_log(options.power),
        )
        rows = {table: count for table, (count, _) in fields["tables"].items()}
        return Added(
            folder, chosen, "jobs", known.origin, rows, fields["notes"], fields["quality"], outlived
        )
    if options != ImportOptions():
        raise InputError(f"format {known.name} takes no options: it is not a log of jobs")
    read_it = known.read_good if skip_bad else known.read
    if read_it is None:
        raise InputError(f"format {known.name} has no rows to skip; --skip-bad is for job logs")
    trace = read_it(paths)
    trace = trace if name is None else dataclasses.replace(trace, name=name)
    rows = {table: content.num_rows for table, content in trace.tables.items()}
    folder = save(trace, replace=replace, folder=folder)
    return Added(folder, trace.name, trace.kind, trace.origin, rows, trace.notes, trace.quality)


def _find_power_log(name: str) -> Trace:
    """A power log by name or path.

    Raises:
        InputError: If it is none.
    """
    log = find(name)
    if log.kind != "power-log":
        raise InputError(f"{name} holds {log.kind}; a power log is needed", "--power")
    return log


def sizes(trace: Trace) -> dict[str, Any]:
    """The size of a trace, JSON-ready.

    Returns:
        ``tables``: rows by table; ``rows``: jobs, profiles or events; ``most_gpus``: largest number
        of GPUs of a row, None for events; ``span_s``: from the first submission or event to the
        last, s, None for profiles.
    """
    table = trace.tables[trace.kind]
    times = {"jobs": "submit_time_s", "node-events": "time_s", "power-log": "start_s"}.get(
        trace.kind
    )
    bounds = None if times is None else pc.min_max(table[times]).as_py()
    return {
        "tables": {name: content.num_rows for name, content in trace.tables.items()},
        "rows": table.num_rows,
        "most_gpus": pc.max(table["gpus"]).as_py() if "gpus" in table.column_names else None,
        "span_s": bounds["max"] - bounds["min"] if bounds else None,
    }


def list_left_out(quality: Mapping[str, Any]) -> list[str]:
    """Lines about the rows that an import dropped, doubts or skipped."""
    lines = [f"{count:8} dropped: {reason}" for reason, count in quality.get("dropped", {}).items()]
    places = quality.get("doubt_examples", {})
    for what, count in quality.get("doubts", {}).items():
        first = f" ({places[what]})" if what in places else ""
        lines.append(f"{count:8} doubtful: {what}{first}")
    if wrong := quality.get("wrong", 0):
        examples = quality["wrong_examples"]
        lines += [f"{wrong:8} malformed, skipped:", *(f"{'':9}{text}" for text in examples)]
        if (more := wrong - quality.get("wrong_shown", len(examples))) > 0:
            lines.append(f"{'':9}... and {more} more")
    return lines


def warn_left_out(quality: Mapping[str, Any]) -> str:
    """A warning if more than `MUCH` of all rows were malformed and skipped; else empty."""
    from wattkeeper.traces.library.importer import MUCH

    wrong, rows = quality.get("wrong", 0), quality.get("rows", 0)
    if wrong <= MUCH * rows:
        return ""
    return (
        f"Warning: {wrong} of {rows} rows ({100 * wrong / rows:.1f} %) are malformed and left out; "
        "this trace may not be what its file records"
    )


def advise_import(path: Path) -> str:
    """How a file becomes a trace; names the format if exactly one recognises the file."""
    from wattkeeper.traces.formats import recognise

    fits = recognise([path])
    form = fits[0].name if len(fits) == 1 else "FORMAT"
    return f"import it first with `{IMPORT} {form} {shlex.quote(str(path))} --name NAME`"


def advise_source(name: str) -> str:
    """Where the trace of a name comes from, if it is well known or has the name of a format."""
    from wattkeeper.traces.formats import registry
    from wattkeeper.traces.library.catalogue import WELL_KNOWN

    if f"{name}-csv" in WELL_KNOWN:  # the smaller one, which shipped scenarios are about
        return f"Download it with `wattkeeper traces fetch {name}-csv --name {name}`"
    if name in WELL_KNOWN:
        return f"Download it with `wattkeeper traces fetch {name}`"
    form = registry().get(name)
    if form is None:
        return f"Import one with `{IMPORT} FORMAT PATH...`"
    return f"Import one with `{IMPORT} {name} PATH --name {name}` ({form.takes}; {form.summary})"
