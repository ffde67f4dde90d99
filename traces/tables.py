"""Builds tables of a schema, and checks stored ones row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools
from wattkeeper.policies.errors import Problem, TraceError, cut_message
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.schema import ALLOWED, JOBS, LARGEST, is_optional


def jobs_table(columns: Mapping[str, Any]) -> pa.Table:
    """Build a table of jobs; missing columns are null, with whole GPUs and time scale 1.

    Args:
        columns: Arrow arrays, or values convertible to them, by name.
    """
    rows = len(columns["job_id"])
    defaults = {"gpu_milli": 1000, "time_scale": 1.0}
    full = {
        name: pa.repeat(pa.scalar(default, JOBS.field(name).type), rows)
        for name, default in defaults.items()
    }
    full |= columns
    return pa.table(full | null_columns([w for w in JOBS if w.name not in full], rows), JOBS)


def build_table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of a schema; its optional columns are null where none are given."""
    lacking = [w for w in schema if is_optional(w) and w.name not in columns]
    nulls = null_columns(lacking, len(next(iter(columns.values()))))
    return pa.table({**columns, **nulls}, schema=schema)


def null_columns(fields: Sequence[pa.Field], rows: int) -> dict[str, pa.Array]:
    """Columns of nulls by name; they share a buffer of zeros, whose pages take no memory."""
    zeros = pa.py_buffer(np.zeros(rows + 1, dtype=np.int64))
    return {
        want.name: pa.Array.from_buffers(
            want.type, rows, [zeros] * (3 if want.type == pa.string() else 2), rows
        )
        for want in fields
    }


def validate(table: pa.Table, schema: pa.Schema, file: str) -> pa.Table:
    """Check a table against a canonical schema.

    `file` is the name of the table in messages.

    Returns:
        The same rows, columns in the schema's order and with its metadata, in one chunk.

    Raises:
        TraceError: If a column is missing, unknown or of another type, if there are no rows, or
            else with one problem per malformed row (1-based): a value missing or out of range, a
            repeated key.
    """
    check_types(table.schema, schema, file)
    table = add_optional(table, schema)
    if not table.num_rows:
        raise TraceError("the table has no rows; a trace needs at least one", file)
    faults = row_problems(table, schema, most=MOST_FAULTS) or find_repeated(table, schema)
    problems = [Problem(text, f"{file}, row {row + 1}") for row, text in faults.items()]
    if problems:
        raise TraceError(problems)
    columns = table.combine_chunks()
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def add_optional(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with nulls in optional columns that it lacks."""
    lacking = [w for w in schema if is_optional(w) and w.name not in table.column_names]
    for name, nulls in null_columns(lacking, table.num_rows).items():
        table = table.append_column(schema.field(name), nulls)
    return table


def drop_optional(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table without optional columns that hold no value."""
    empty = [w.name for w in schema if is_optional(w) and table[w.name].null_count == len(table)]
    return table.drop_columns(empty)


def check_types(present: pa.Schema, schema: pa.Schema, file: str) -> None:
    """Check names and types of the columns of a table against a canonical schema.

    Raises:
        TraceError: If a column is missing, unknown or of another type.
    """
    problems = []
    for want in schema:
        indices = present.get_all_field_indices(want.name)
        if not indices and is_optional(want):
            continue
        if len(indices) != 1:
            state = f"appears {len(indices)} times" if indices else "is missing"
            there = ", ".join(present.names) or "nothing"
            problems.append(f"column {want.name} {state}; found {there}")
        elif (kind := present.field(indices[0]).type) != want.type:
            problems.append(f"column {want.name} has type {kind}, must be {want.type}")
    extra = [name for name in present.names if name not in schema.names]
    if extra:
        allowed = ", ".join(schema.names)
        problems.append(f"unknown column {', '.join(extra)}; allowed are {allowed}")
    if problems:
        raise TraceError([Problem(text, file) for text in problems])


def row_problems(
    table: pa.Table,
    schema: pa.Schema,
    names: Mapping[str, str] = MappingProxyType({}),
    *,
    most: int | None = None,
) -> dict[int, str]:
    """Faults of the values of each malformed row, by 0-based row, ascending.

    Args:
        table: The rows.
        schema: Its fields, with their rules.
        names: Column names for messages, where they differ from those of the schema.
        most: Of each column, only so many malformed values count.
    """
    problems: dict[int, list[str]] = {}
    for want in schema:
        column = table[want.name]
        rule = want.metadata[b"rule"].decode()
        counts = rule in (">= 0", "> 0") and pa.types.is_integer(want.type)
        allowed = f"a whole number {rule}" if counts else ALLOWED[rule]
        violating = _find_violations(column, rule)
        if not want.nullable:
            violating |= np.asarray(column.is_null())
        for row in np.flatnonzero(violating)[:most].tolist():
            value = column[row].as_py()
            text = "absent" if value is None else repr(value)
            name = names.get(want.name, want.name)
            problems.setdefault(row, []).append(f"{name} is {text}, must be {allowed}")
    return {row: "; ".join(problems[row]) for row in sorted(problems)}


def _find_violations(column: pa.ChunkedArray, rule: str) -> Bools:
    """Which values violate a rule; missing values do not."""
    bad: Bools = np.zeros(len(column), dtype=bool)
    if not rule:
        return bad
    if rule == "not empty":
        bad |= np.asarray(pc.binary_length(column).fill_null(1)) == 0
        return bad
    values = np.asarray(column.fill_null(1))
    bad |= ~(np.abs(values) <= LARGEST)
    if rule == "> 0":
        bad |= values <= 0
    elif rule == ">= 0":
        bad |= values < 0
    elif rule == ">= 1":
        bad |= values < 1
    elif rule == "0 to 1":
        bad |= (values <= 0) | (values > 1)
    elif rule == "1 to 1000":
        bad |= (values < 1) | (values > 1000)
    return bad


def _is_increasing(texts: pa.ChunkedArray) -> bool:
    """Whether each text is longer than the one before, or equally long and greater."""
    if not pa.types.is_string(texts.type) or texts.null_count or len(texts) < 2:
        return False
    whole = texts.combine_chunks()
    length = pc.binary_length(whole).to_numpy()
    longer = np.diff(length)
    greater = pc.less(whole[:-1], whole[1:]).to_numpy(zero_copy_only=False)
    return bool(np.all((longer > 0) | ((longer == 0) & greater)))


def find_repeated(table: pa.Table, schema: pa.Schema) -> dict[int, str]:
    """The first rows that repeat the key of an earlier one, by 0-based row, ascending."""
    key = [name for name in schema.metadata[b"key"].decode().split(",") if name]
    optional = [want.name for want in schema if b"key" in want.metadata]
    key += [name for name in optional if table[name].null_count < table.num_rows]
    if not key:
        return {}
    if len(key) == 1:
        if _is_increasing(table[key[0]]):
            return {}
        different = len(pc.unique(table[key[0]]))
    else:
        different = table.select(key).group_by(key, use_threads=False).aggregate([]).num_rows
    if different == table.num_rows:
        return {}
    first: dict[tuple[object, ...], int] = {}
    problems = {}
    for row, values in enumerate(zip(*(table[name].to_pylist() for name in key), strict=True)):
        first_row = first.setdefault(values, row)
        if first_row != row:
            what = ", ".join(f"{name} {value!r}" for name, value in zip(key, values, strict=True))
            problems[row] = cut_message(f"repeats row {first_row + 1}: {what}; must be unique")
            if len(problems) == MOST_FAULTS:
                break
    return problems
