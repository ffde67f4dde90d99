"""Result tables in Parquet files: written in row groups, read by columns."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.arrow import one_chunk
from wattkeeper.traces.schema import field

ROW_GROUP: Final = 1 << 17
"""Rows of a row group of a Parquet file."""

KEYS: Final = (
    field("variant", pa.string(), "", "variant of the scenario"),
    field("seed", pa.int64(), "", "seed of the run"),
)
"""The columns that tell the runs of a table apart."""
MOST_TEXTS: Final = 256
"""Distinct texts of a column that is stored by index: each row group repeats them."""


class ScratchFolder(NamedTuple):
    """Where the rows and tables of large runs are while results are made.

    Attributes:
        folder: The folder.
        final: Whether the tables are stored as in a results folder, which those of several runs are
            not: they are put together later.
    """

    folder: Path
    final: bool


class StoredTable:
    """A table in a Parquet file. A column is read anew whenever it is asked for.

    Attributes:
        path: The file.
        schema: Its columns, texts as such.
        final: Whether it is stored as in a results folder.
    """

    def __init__(self, path: Path, schema: pa.Schema, final: bool) -> None:
        self.path = path
        self.schema = schema
        self.final = final
        self._rows: int = pq.read_metadata(path).num_rows

    def __len__(self) -> int:
        return self._rows

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self.schema.names
        return names

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.select([name])[name]

    def select(self, names: Sequence[str]) -> pa.Table:
        """Some columns; those of few distinct texts by index."""
        with self._open() as file:
            return file.read(list(names), use_threads=False)

    def read_whole(self, name: str) -> pa.Array:
        """A column in one piece; numbers are put together group by group, in half the memory."""
        if self.schema.field(name).type != pa.float64():
            return one_chunk(self[name])
        values, begin = np.empty(len(self)), 0
        for part in self.read_parts(name):
            if part.null_count:
                return one_chunk(self[name])
            values[begin : begin + len(part)] = part.to_numpy()
            begin += len(part)
        return pa.array(values)

    def read_parts(self, name: str) -> Iterator[pa.Array]:
        """A column by row groups: each is read into memory that the next one uses again."""
        with self._open() as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group, [name], use_threads=False)[name].chunks

    def count_nulls(self, name: str) -> int:
        """Nulls of a column of numbers, by the statistics that `store_table` writes."""
        metadata = pq.read_metadata(self.path)
        at = [column.name for column in metadata.schema].index(name)
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        return sum(group.column(at).statistics.null_count for group in groups)

    def slice(self, begin: int, length: int) -> pa.Table:
        """Some rows."""
        with self._open() as file:
            first, last = begin // ROW_GROUP, (begin + length - 1) // ROW_GROUP
            groups = file.read_row_groups(range(first, last + 1), use_threads=False)
        return groups.slice(begin - first * ROW_GROUP, length)

    def _open(self) -> pq.ParquetFile:
        texts = [want.name for want in self.schema if _is_dictionary(want)]
        return pq.ParquetFile(self.path, read_dictionary=texts, pre_buffer=False)


AnyTable: TypeAlias = pa.Table | StoredTable


def run_schema(*columns: pa.Field) -> pa.Schema:
    """The schema of a table of several runs."""
    return pa.schema([*KEYS, *columns])


def present_columns(schema: pa.Schema, tables: Sequence[AnyTable]) -> pa.Schema:
    """The columns of a schema that any of the tables has."""
    present = set().union(*(table.column_names for table in tables))
    return pa.schema([want for want in schema if want.name in present])


def fill_optional(table: AnyTable, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, with nulls in those that the table lacks, as others have them."""
    if isinstance(table, pa.Table) and table.column_names == schema.names:
        return table
    columns = [
        table[want.name] if want.name in table.column_names else pa.nulls(len(table), want.type)
        for want in schema
    ]
    return pa.table(columns, names=schema.names)


def write_tables(path: Path, whole: pa.Schema, tables: Sequence[AnyTable]) -> None:
    """Write tables of one kind into a file, one after the other.

    `whole`: the schema of that kind.
    """
    schema = present_columns(whole, tables)
    first = tables[0]
    if len(tables) == 1 and isinstance(first, StoredTable) and first.final:
        _link(first.path, path)
        return
    stored = _stored_schema(schema, tables)
    _write_groups(path, schema, stored, _row_groups(tables, schema, stored))


def _row_groups(
    tables: Sequence[AnyTable], schema: pa.Schema, stored: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of all tables, of each large one alone, of small ones together.

    A row group takes about as long as a thousand rows of it.
    """
    small: list[pa.Table] = []
    rows = 0
    for table in tables:
        if small and rows + len(table) > ROW_GROUP:
            yield _join(small, stored)
            small, rows = [], 0
        for begin in range(0, len(table), ROW_GROUP):
            length = min(ROW_GROUP, len(table) - begin)
            group = fill_optional(table.slice(begin, length), schema)
            if len(table) > ROW_GROUP:
                yield group
            else:
                small.append(group)
                rows += length
    if small:
        yield _join(small, stored)


def _join(tables: Sequence[pa.Table], stored: pa.Schema) -> pa.Table:
    """Tables as one, in one piece; texts by index have the same index in all."""
    if len(tables) == 1:
        return tables[0]
    if any(table.schema != tables[0].schema for table in tables):
        tables = [table.cast(stored) for table in tables]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def make_folder(scratch: Path) -> Path:
    """A folder of its own in a folder for tables.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    try:
        return Path(mkdtemp(dir=scratch))
    except OSError as error:
        text = f"cannot keep results in {scratch}: {error.strerror or error}"
        raise EnvironmentLacks(text) from error


def store_table(
    path: Path, whole: pa.Schema, groups: Iterator[pa.Table], final: bool
) -> StoredTable:
    """Write a table into a file as its row groups come.

    Args:
        path: The file.
        whole: The schema of its kind.
        groups: Of `ROW_GROUP` rows each, but for the last one; at least one.
        final: Whether it is stored as in a results folder.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    first = next(groups)
    schema = present_columns(whole, [first])
    try:
        stored, compression = _stored_schema(schema, [first]), "zstd" if final else "none"
        _write_groups(path, schema, stored, chain([first], groups), compression)
    except OSError as error:
        text = f"cannot keep results in {path.parent}: {error.strerror or error}"
        raise EnvironmentLacks(text) from error
    return StoredTable(path, schema, final)


def _write_groups(
    path: Path,
    schema: pa.Schema,
    stored: pa.Schema,
    groups: Iterable[pa.Table],
    compression: str = "zstd",
) -> None:
    with pq.ParquetWriter(
        path,
        stored,
        compression=compression,
        use_dictionary=[want.name for want in schema if _is_dictionary(want)],
        store_schema=False,
    ) as file:
        for group in groups:
            if len(group):
                file.write_table(group.cast(stored))
        file.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize())})


def _stored_schema(schema: pa.Schema, tables: Sequence[AnyTable]) -> pa.Schema:
    """The schema with dictionary types for columns of few distinct texts, as they are in memory.

    Parquet stores them by index in any case; this way no text is looked up again.
    """
    in_memory = [table for table in tables if isinstance(table, pa.Table)]
    if len(in_memory) < len(tables):
        return schema
    kinds: dict[str, pa.DataType] = {}
    long: set[str] = set()
    for table in in_memory:
        for at, want in enumerate(table.schema):
            if pa.types.is_dictionary(want.type):
                kinds.setdefault(want.name, want.type)
                if any(len(chunk.dictionary) > MOST_TEXTS for chunk in table.column(at).chunks):
                    long.add(want.name)
    return pa.schema(
        [
            want.with_type(kinds[want.name]) if want.name in kinds.keys() - long else want
            for want in schema
        ]
    )


def _is_dictionary(column: pa.Field) -> bool:
    """Whether a column is stored by index, which would only make distinct texts longer."""
    is_few = pa.types.is_string(column.type) and b"distinct" not in column.metadata
    return is_few or column in KEYS


def _link(source: Path, path: Path) -> None:
    """Give a file another name; a copy where the file system has no links."""
    try:
        os.link(source, path)
    except OSError:
        copyfile(source, path)


class TableColumns(Mapping[str, pa.Array]):
    """The columns of a table by name, each in one piece.

    Args:
        table: The table.
        schema: The columns, with their types; null where the table lacks them. None: those of the
            table, as they are.
    """

    def __init__(self, table: AnyTable, schema: pa.Schema | None = None) -> None:
        self._table = table
        self._present = frozenset(table.column_names)
        self._names = self._present if schema is None else frozenset(schema.names)
        self._schema = schema

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._names:
            raise KeyError(name)
        kind = None if self._schema is None else self._schema.field(name).type
        if name not in self._present:
            return pa.nulls(len(self._table), kind)
        if isinstance(self._table, StoredTable):
            column = self._table.read_whole(name)
        else:
            column = one_chunk(self._table[name])
        return column if kind in (None, column.type) else column.cast(kind)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)
