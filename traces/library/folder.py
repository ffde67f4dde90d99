"""A trace as a folder: ``trace.json`` and one Parquet file a table.

``trace.json`` says where the data comes from and holds a digest of each table, so that a truncated
or changed file is noticed before it is read. The same trace always gives the same bytes.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from wattkeeper.policies.errors import InputError, Problem, TraceError
from wattkeeper.traces.arrow import one_chunk
from wattkeeper.traces.files.atomic import (
    is_leftover,
    replace_file,
    replace_folder,
    resolve,
    settle,
)
from wattkeeper.traces.files.regular import open_file
from wattkeeper.traces.limits import (
    MOST_DETAILS_BYTES,
    MOST_RATIO,
    MOST_TABLE_BYTES,
    UNLIMITED_TABLE_BYTES,
    is_oversized,
)
from wattkeeper.traces.schema import KINDS, OPTIONAL
from wattkeeper.traces.tables import check_types, drop_optional, null_columns
from wattkeeper.traces.trace import Kind, Origin, Trace

META = "trace.json"
TABLES: Final = frozenset[str]().union(*KINDS.values(), *OPTIONAL.values())
FILES: Final = {META, *(f"{table}.parquet" for table in TABLES)}
VERSION: Final = 2
ABOUT: Final = ("format", "origin", "source", "licence")
KEPT: Final = 8

_kept: ContextVar[dict[Path, Trace] | None] = ContextVar("kept", default=None)
"""Traces by their folders, the one that was used last at the end."""


class _TableMeta(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    rows: int
    sha256: str


class _Meta(BaseModel):
    """The content of ``trace.json``."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    version: Literal[2]
    name: str
    kind: Kind
    format: str
    origin: Origin
    source: str
    licence: str
    inputs: dict[str, str]
    notes: tuple[str, ...]
    parameters: dict[str, Any]
    quality: dict[str, Any]
    tables: dict[str, _TableMeta]
    digest: str | None = None
    """SHA-256 of the other keys; None in traces of earlier versions."""

    def content_digest(self) -> str:
        """What `digest` has to be."""
        content = json.dumps(self.model_dump(mode="json", exclude={"digest"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of the file, with its digest."""
        meta = self.model_copy(update={"digest": self.content_digest()})
        dump = meta.model_dump(mode="json")
        return (json.dumps(dump, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def files(trace: Trace) -> dict[str, bytes]:
    """The files of a trace: bytes by file name. Equal traces give equal bytes."""
    content: dict[str, bytes] = {}
    tables = {}
    for name, table in trace.tables.items():
        sink = pa.BufferOutputStream()
        extra = origin_metadata({key: getattr(trace, key) for key in ABOUT})
        filled = drop_optional(table, table.schema)
        pq.write_table(
            filled.replace_schema_metadata(table.schema.metadata | extra), sink, compression="zstd"
        )
        data = sink.getvalue().to_pybytes()
        content[f"{name}.parquet"] = data
        tables[name] = (table.num_rows, hashlib.sha256(data).hexdigest())
    fields = {key: getattr(trace, key) for key in _Meta.model_fields if hasattr(trace, key)}
    return {META: meta_bytes(fields | {"tables": tables}), **content}


def origin_metadata(fields: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Metadata about the origin for every table's Parquet file."""
    return {key.encode(): str(fields[key]).encode() for key in ABOUT}


def meta_bytes(fields: Mapping[str, Any]) -> bytes:
    """The content of ``trace.json``.

    Args:
        fields: What a `Trace` has; instead of each table, its number of rows and its digest.
    """
    tables = {
        name: _TableMeta(rows=rows, sha256=digest)
        for name, (rows, digest) in fields["tables"].items()
    }
    plain = {key: dict(fields[key]) for key in ("inputs", "parameters", "quality")}
    return _Meta(**{**fields, **plain, "version": VERSION, "tables": tables}).to_bytes()


def amend(folder: Path, inputs: Mapping[str, str], notes: Sequence[str]) -> None:
    """Add inputs and notes to the ``trace.json`` of a trace."""
    path = folder / META
    meta = _parse_meta(_bytes(path, MOST_DETAILS_BYTES), path)
    more = {"inputs": meta.inputs | dict(inputs), "notes": (*meta.notes, *notes)}
    with replace_file(path) as fresh:
        fresh.write_bytes(meta.model_copy(update=more).to_bytes())


def check_free(folder: Path, *, overwrite: bool = False) -> None:
    """Check that a trace may be written to a folder.

    Raises:
        InputError: If something exists there that must not be replaced.
    """
    whole = resolve(folder)
    settle(whole.parent, whole.name)
    if folder.exists() or folder.is_symlink():
        if not (folder / META).is_file():
            raise InputError("is there and is no trace; choose another name", folder)
        strange = {path.name for path in whole.iterdir()} - FILES
        if foreign := sorted(name for name in strange if not is_leftover(name)):
            text = f"holds {foreign[0]!r}, which is no part of a trace; choose another name"
            raise InputError(text, folder)
        if not overwrite:
            raise InputError("exists; replace it (--replace) or choose another name", folder)


def write(trace: Trace, folder: Path, *, overwrite: bool = False) -> None:
    """Write a trace as a folder, atomically.

    Args:
        trace: The trace.
        folder: The folder to create, with its parents.
        overwrite: Whether an existing trace may be replaced. Other content is never replaced.

    Raises:
        InputError: If something exists there that must not be replaced.
        EnvironmentLacks: If a file operation fails.
    """
    check_free(folder, overwrite=overwrite)
    content = files(trace)
    folder = resolve(folder)
    with replace_folder(folder) as fresh:
        for name, data in content.items():
            (fresh / name).write_bytes(data)


@contextmanager
def keep_traces() -> Iterator[None]:
    """Inside, a trace that was read is not read again: the last `KEPT` are kept in memory."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def read(folder: Path) -> Trace:
    """Read a trace from its folder, unless it is kept; see `keep_traces`.

    Raises:
        TraceError: If the folder, ``trace.json`` or a table is missing, broken, truncated, changed
            or invalid; the problem names the file.
    """
    kept = _kept.get()
    if kept is None:
        return _read(folder)
    place = folder.resolve()
    trace = kept.pop(place, None) or _read(folder)
    kept[place] = trace
    if len(kept) > KEPT:
        del kept[next(iter(kept))]
    return trace


def _read(folder: Path) -> Trace:
    if not folder.is_dir():
        state = "is not the folder of a trace" if folder.exists() else "does not exist"
        raise TraceError(state, folder)
    path = folder / META
    meta = _parse_meta(_bytes(path, MOST_DETAILS_BYTES), path)
    tables = {name: _read_table(folder / f"{name}.parquet", meta, name) for name in meta.tables}
    fields = {key: getattr(meta, key) for key in _Meta.model_fields if key in Trace.__slots__}
    try:
        trace = Trace(**(fields | {"tables": tables}))
    except TraceError:
        raise
    except InputError as error:
        raise TraceError([Problem(p.message, str(path)) for p in error.problems]) from error
    pa.default_memory_pool().release_unused()
    return trace


def _bytes(path: Path, most: int) -> bytes:
    try:
        with open_file(path) as file:
            data = file.read(most + 1)
    except FileNotFoundError as error:
        raise TraceError(f"is missing; a trace needs {path.name}", path) from error
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror or error}", path) from error
    if len(data) > most:
        raise TraceError(f"is larger than {most:,} bytes, more than are read", path)
    return data


def _parse_meta(data: bytes, path: Path) -> _Meta:
    if re.search(rb'"version": 1\b', data):
        raise TraceError("was made by an earlier version; import it again", path)
    try:
        meta = _Meta.model_validate_json(data)
    except ValidationError as error:
        problems = [
            Problem(".".join(map(str, e["loc"])) + (": " if e["loc"] else "") + e["msg"], str(path))
            for e in error.errors(include_url=False)
        ]
        raise TraceError(problems) from error
    if meta.digest not in (None, digest := meta.content_digest()):
        text = f"its content has the SHA-256 {digest}, but states {meta.digest}"
        raise TraceError(f"was changed: {text}; import the trace again", path)
    return meta


def _read_table(path: Path, meta: _Meta, name: str) -> pa.Table:
    schema = (KINDS[meta.kind] | OPTIONAL[meta.kind]).get(name)
    if schema is None:
        need = ", ".join(KINDS[meta.kind])
        raise TraceError(f"a {meta.kind} trace has {need}, not {name!r}", path)
    data = _bytes(path, MOST_TABLE_BYTES)
    if hashlib.sha256(data).hexdigest() != meta.tables[name].sha256:
        text = f"is truncated or was changed: it does not fit {META}; import the trace again"
        raise TraceError(text, path)
    try:
        return _decode(data, schema, path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"is no valid Parquet file: {error}", path) from error


def _decode(data: bytes, schema: pa.Schema, path: Path) -> pa.Table:
    """The table in a Parquet file, whose size is known before each text of it has its own bytes.

    It is read column by column, each in one piece; absent values alone take no memory.
    """
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    present = file.schema_arrow
    check_types(present, schema, str(path))
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    rows = file.metadata.num_rows
    size = max(rows * 8 * len(present), sum(group.total_byte_size for group in groups))
    _check_size(size, data, path)
    columns: dict[str, pa.Array] = {}
    for want in (schema.field(name) for name in present.names):
        if pa.types.is_string(want.type):
            size += _longest_indexed(data, want.name) * rows
            if is_oversized(size, len(data), UNLIMITED_TABLE_BYTES):
                size -= _longest_indexed(data, want.name) * rows
                size += _indexed_bytes(data, want.name)
                _check_size(size, data, path)
        # One thread: Arrow's pools can abort a process that ends while they start.
        column = file.read([want.name], use_threads=False)[want.name].cast(want.type)
        if column.null_count == rows:
            columns |= null_columns([want], rows)
        else:
            columns[want.name] = one_chunk(column)
    return pa.table(columns, pa.schema([schema.field(name) for name in present.names]))


def _longest_indexed(data: bytes, name: str) -> int:
    """Bytes of the longest text of a column that is stored by index; other texts are as stored."""
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, read_dictionary=[name])
    longest = 0
    for group in range(file.metadata.num_row_groups):
        first = next(file.iter_batches(1, [group], [name], use_threads=False), None)
        if first is not None:  # its dictionary has all texts that are stored by index
            longest = max(longest, pc.max(pc.binary_length(first[0].dictionary)).as_py() or 0)
    return longest


def _indexed_bytes(data: bytes, name: str) -> int:
    """Bytes of all texts of a column, which is read by index."""
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, read_dictionary=[name])
    size = 0
    for chunk in file.read([name], use_threads=False)[name].chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        size += pc.sum(lengths).as_py() or 0
    return size


def _check_size(size: int, data: bytes, path: Path) -> None:
    if is_oversized(size, len(data), UNLIMITED_TABLE_BYTES):
        raise TraceError(f"decompresses to more than {MOST_RATIO} times its size", path)
