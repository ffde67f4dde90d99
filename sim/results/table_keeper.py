"""Makes the tables of a run from columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wattkeeper.sim.results.parquet import (
    ROW_GROUP,
    AnyTable,
    ScratchFolder,
    make_folder,
    store_table,
)
from wattkeeper.traces.schema import is_optional

ALL_ROWS: Final = 1 << 62
"""Rows of the only part of a table."""


class TableKeeper:
    """Keeps the tables of a run: the long ones in a folder of their own, or in memory.

    Args:
        schemas: By name, as `ResultKind.tables`.
        variant: Of the run.
        seed: Of the run.
        scratch: For long tables; None: they are in memory.

    Attributes:
        rows: Rows of the parts that long tables are made in, but for the last part of each.
    """

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        variant: str,
        seed: int,
        scratch: ScratchFolder | None = None,
    ) -> None:
        self._schemas = schemas
        self._tables: dict[str, AnyTable] = {}
        self.rows = ALL_ROWS if scratch is None else ROW_GROUP
        self._keys = variant, seed
        self._final = scratch is not None and scratch.final
        self._folder = None if scratch is None else make_folder(scratch.folder)

    @property
    def tables(self) -> dict[str, AnyTable]:
        """The tables by name, in the order of the schemas."""
        return {name: self._tables[name] for name in self._schemas if name in self._tables}

    def keep(self, name: str, columns: Mapping[str, Any]) -> None:
        """Keep a table, given its columns without variant and seed."""
        self._tables[name] = _table(self._schemas[name], *self._keys, columns)

    def keep_parts(self, name: str, parts: Iterable[Mapping[str, Any]]) -> AnyTable:
        """Keep a long table, given its columns likewise, in parts."""
        schema = self._schemas[name]
        groups = (_table(schema, *self._keys, columns) for columns in parts)
        if self._folder is None:
            (table,) = groups
        else:
            path = self._folder / f"{name}.parquet"
            table = store_table(path, schema, groups, self._final)
        self._tables[name] = table
        return table


def _table(schema: pa.Schema, variant: str, seed: int, columns: Mapping[str, Any]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    keys = {"variant": encode([variant], np.zeros(rows, np.int8)), "seed": np.full(rows, seed)}
    filled = keys | dict(columns)
    fields = [want for want in schema if want.name in filled or not is_optional(want)]
    arrays = [_array(filled[want.name], want.type) for want in fields]
    fields = [want.with_type(array.type) for want, array in zip(fields, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == kind or pa.types.is_dictionary(array.type) else array.cast(kind)


def encode(texts: Sequence[str] | pa.Array, codes: npt.ArrayLike) -> pa.DictionaryArray:
    """A column of few distinct texts, stored by index."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts)
