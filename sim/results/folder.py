"""The results folder of a run or of a sweep, and the folder of its unfinished work."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
from wattkeeper.sim.results.checksums import SUMS, write_sums
from wattkeeper.sim.results.indented import indent_json
from wattkeeper.sim.results.schemas import KEYS, TABLES
from wattkeeper.sim.results.summary import metric_values
from wattkeeper.sim.results.tables import RunResult
from wattkeeper.traces.files.atomic import (
    check_place,
    is_leftover,
    replace_folder,
    resolve,
    settle,
)

SWEEP: Final = "sweep.json"
"""File that marks the results folder of a sweep: its axes and its points."""


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    restore_folder(folder)
    return (folder / SWEEP).is_file()


def restore_folder(folder: Path) -> None:
    """Restore a results folder whose replacement was killed half-way."""
    if not folder.exists():
        whole = resolve(folder)
        settle(whole.parent, whole.name)


def work_folder(results: Path, what: Literal["live", "sweep", "trainings"]) -> Path:
    """The folder beside the results that keeps unfinished work, to resume after an interruption."""
    whole = resolve(results)
    return whole.with_name(f"{whole.name}.{what}")


ROW_GROUP = 1 << 17
"""Rows of a row group of a Parquet file."""

UNIQUE = ("job_id", "group_id")
"""Columns of mostly distinct texts, which a dictionary would only make longer."""

MOST_TEXTS = 256
"""Distinct texts of a column that is stored by index: each row group repeats them."""

SOMETIMES: Final = {"models.parquet", "nodes.parquet", "shapes.parquet"}
"""Files that are there only if the scenario has a zoo, or losses of nodes."""

CHECKED: Final = {
    *(f"{name}.parquet" for name in (*TABLES, "metrics")),
    "summary.json",
    "manifest.json",
}
"""Files of a run whose digests are in `SHA256SUMS`."""

FILES = {*CHECKED, SUMS, "report.html", "timeline.json.gz"}

PAGE_HEAD = 1 << 12
"""Bytes at the beginning of a page that say what generated it."""


def write_results(
    folder: Path,
    results: Sequence[RunResult],
    summary: Mapping[str, Any],
    manifest: Mapping[str, Any],
    page: str = "",
) -> None:
    """Write the results folder: beside it first, then renamed; older results there are replaced.

    Without a page, there is no `report.html`.

    Raises:
        InputError: If the folder holds anything but results.
    """
    check_folder(folder)
    with replace_folder(resolve(folder)) as fresh:
        for name, whole in TABLES.items():
            tables = [result.tables[name] for result in results if name in result.tables]
            if not tables:
                continue
            schema = present_columns(whole, tables)
            tables = [fill_optional(table, schema) for table in tables]
            stored = _stored_schema(schema, tables)
            with pq.ParquetWriter(
                fresh / f"{name}.parquet",
                stored,
                compression="zstd",
                use_dictionary=[want.name for want in schema if _is_dictionary(want)],
                store_schema=False,
            ) as file:
                if any(table.schema != tables[0].schema for table in tables):
                    tables = [table.cast(stored) for table in tables]
                for group in _row_groups(tables):
                    file.write_table(group.cast(stored))
                file.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize())})
        pq.write_table(metric_values(results), fresh / "metrics.parquet", compression="zstd")
        (fresh / "summary.json").write_text(to_json(summary), encoding="utf-8")
        (fresh / "manifest.json").write_text(to_json(manifest), encoding="utf-8")
        if page:
            (fresh / "report.html").write_text(page, encoding="utf-8", newline="\n")
        write_sums(fresh, {path.name for path in fresh.iterdir()} & CHECKED)


def _row_groups(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The rows of all tables, of each large one alone, of small ones together.

    A row group takes about as long as a thousand rows of it.
    """
    small: list[pa.Table] = []
    for table in tables:
        if small and sum(map(len, small)) + len(table) > ROW_GROUP:
            yield _join(small)
            small = []
        if len(table) > ROW_GROUP:
            yield from (table.slice(begin, ROW_GROUP) for begin in range(0, len(table), ROW_GROUP))
        elif len(table):
            small.append(table)
    if small:
        yield _join(small)


def _join(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one, in one piece; texts by index have the same index in all."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def present_columns(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Schema:
    """The columns of a schema that any of the tables has."""
    present = set().union(*(table.column_names for table in tables))
    return pa.schema([want for want in schema if want.name in present])


def fill_optional(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, with nulls in those that the table lacks, as others have them."""
    if table.column_names == schema.names:
        return table
    columns = [
        table[want.name] if want.name in table.column_names else pa.nulls(len(table), want.type)
        for want in schema
    ]
    return pa.table(columns, names=schema.names)


def _stored_schema(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Schema:
    """The schema with dictionary types for columns of few distinct texts, as they are in memory.

    Parquet stores them by index in any case; this way no text is looked up again.
    """
    for at, want in enumerate(schema):
        columns = [table[want.name] for table in tables]
        chunks = [chunk for column in columns for chunk in column.chunks]
        if pa.types.is_dictionary(columns[0].type) and all(
            len(chunk.dictionary) <= MOST_TEXTS for chunk in chunks
        ):
            schema = schema.set(at, want.with_type(columns[0].type))
    return schema


def _is_dictionary(column: pa.Field) -> bool:
    return column in KEYS or (pa.types.is_string(column.type) and column.name not in UNIQUE)


def check_folder(folder: Path, *, sweep: bool = False) -> None:
    """Refuse a results folder that cannot be made, or would lose something else.

    Args:
        folder: Where results are to be stored.
        sweep: Whether they are of a sweep, which takes no run's place, nor does a run take its.

    Raises:
        InputError: If it holds anything but results of that kind, lies in a file, or is the root
            of a file system.
        EnvironmentLacks: If the file system refuses it.
    """
    whole = resolve(folder)
    if whole.is_mount():
        text = f"{folder} is the root of a file system: name a folder in it (--out)"
        raise InputError(text)
    parent = next(path for path in whole.parents if path.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is a file: name another folder (--out)")
    check_place(whole)
    if not whole.exists():
        return
    if not whole.is_dir():
        raise InputError(f"{folder} is a file: name another folder (--out)")
    strange = _find_strange(whole)
    if strange:
        raise InputError(
            f"{folder} holds {strange!r}, which is no result of wattkeeper: name another "
            "folder (--out)"
        )
    other, kind = ("manifest.json", "run") if sweep else (SWEEP, "sweep")
    if (whole / other).exists():
        raise InputError(f"{folder} holds the results of a {kind}: name another folder (--out)")


def _find_strange(folder: Path, within: str = "") -> str:
    """An entry of a folder that `run` did not write; empty if there is none.

    Without a manifest of wattkeeper, or its `sweep.json`, that is any entry.
    """
    entries = sorted(path for path in folder.iterdir() if not is_leftover(path.name))
    marks = [mark for mark in (SWEEP, "manifest.json") if _is_mark(folder / mark)]
    for path in entries:
        name = within + path.name
        if path.name == "points" and marks == [SWEEP] and path.is_dir():
            for point in sorted(path.iterdir()):
                below = f"{name}/{point.name}"
                if strange := _find_strange(point, f"{below}/") if point.is_dir() else below:
                    return strange
        elif not (marks and path.is_file() and path.name in FILES | {SWEEP} and _may_be_page(path)):
            return name
    return ""


def _is_mark(path: Path) -> bool:
    """Whether a file is a manifest or a `sweep.json`."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"scenario", "versions"} <= content.keys()


def _may_be_page(path: Path) -> bool:
    """Whether a file is a page of wattkeeper, unless it has another name than a page's."""
    if path.name != "report.html":
        return True
    with path.open("rb") as file:
        return b'<meta name="generator" content="wattkeeper">' in file.read(PAGE_HEAD)


def to_json(content: Mapping[str, Any]) -> str:
    """JSON as result files hold it."""
    return indent_json(content) + "\n"


def digest_results(results: Sequence[RunResult], summary: Mapping[str, Any]) -> str:
    """SHA-256 of all result tables and the summary, whatever library wrote them."""
    state = sha256()
    for result in results:
        state.update(result.digest.encode())
    state.update(to_json(summary).encode())
    return state.hexdigest()
