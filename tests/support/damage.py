"""Random alterations of files: bytes, JSON values, Parquet, SQLite, tables of text, encodings."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ODD_VALUES: list[Any] = [
    None,
    "",
    "x",
    "x" * 5000,
    "\x1b[31mred",
    "../../up",
    "\ud800",
    -1,
    0,
    1,
    2.5,
    10**30,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
    True,
    False,
    [],
    {},
    [[[]]],
    {"a": [1]},
    "1",
    "NaN",
]
"""Values of other types and sizes than those in any file."""

Alter = Callable[[Path, Random], str]


def alter_bytes(path: Path, rng: Random) -> str:
    """Truncate, empty, extend, or change some bytes of a file."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(("truncated", "emptied", "extended", "bits", "bits", "zeroed", "doubled"))
    if kind == "emptied" or not data:
        data = bytearray()
    elif kind == "truncated":
        data = data[: rng.randrange(len(data))]
    elif kind == "extended":
        data += rng.randbytes(rng.choice((1, 100, 5000)))
    elif kind == "bits":
        for _ in range(rng.choice((1, 1, 10))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "zeroed":
        begin = rng.randrange(len(data))
        end = min(len(data), begin + rng.choice((8, 512)))
        data[begin:end] = bytes(end - begin)
    else:
        data *= 2
    path.write_bytes(data)
    return kind


def alter_place(path: Path, rng: Random) -> str:
    """Delete a file, put a folder in its place, or swap it with another file."""
    root = path.parent
    others = sorted(other for other in root.rglob("*") if other.is_file() and other != path)
    kind = rng.choice(("deleted", "folder", "swapped", "copied over", "dangling link"))
    if kind in ("swapped", "copied over") and others:
        other = rng.choice(others)
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        if kind == "swapped":
            other.write_bytes(content)
        return f"{kind} with {other.name}"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    return kind


def alter_json(path: Path, rng: Random) -> str:
    """Change, remove or add a value somewhere in a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    holder: Any = content
    trail = []
    while True:
        keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return "unchanged"
        key = rng.choice(keys)
        trail.append(str(key))
        if not isinstance(holder[key], dict | list) or not holder[key] or rng.random() < 0.2:
            break
        holder = holder[key]
    kind = rng.choice(("removed", "changed", "changed", "changed", "nudged"))
    if kind == "removed":
        del holder[key]
    elif kind == "nudged" and isinstance(holder[key], int | float):
        holder[key] = holder[key] + 1
    else:
        holder[key] = rng.choice(ODD_VALUES)
    path.write_text(json.dumps(content), encoding="utf-8")
    return f"{'.'.join(trail)} {kind}"


def alter_parquet(path: Path, rng: Random) -> str:
    """Change columns, types, rows or values of a Parquet file."""
    table = pq.read_table(path)
    index = rng.randrange(table.num_columns)
    name = table.column_names[index]
    column = table.column(index)
    rows = len(table)
    kind = rng.choice(
        ("dropped", "renamed", "typed", "values", "values", "emptied", "sliced", "doubled", "order")
    )
    if kind == "dropped":
        table = table.remove_column(index)
    elif kind == "renamed":
        table = table.rename_columns([f"{n}_" if n == name else n for n in table.column_names])
    elif kind == "typed":
        new = rng.choice((pa.string(), pa.float32(), pa.int8(), pa.bool_(), pa.list_(pa.int64())))
        table = table.set_column(index, name, pa.nulls(rows, new))
    elif kind == "values":
        value = rng.choice((None, math.nan, math.inf, 1e308, -1, 0, 2**62))
        try:
            values = pa.array([value] * rows, column.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            values = pa.nulls(rows, column.type)
        table = table.set_column(index, name, values)
    elif kind == "emptied":
        table = table.slice(0, 0)
    elif kind == "sliced":
        table = table.slice(0, rng.randrange(max(rows, 1)))
    elif kind == "doubled":
        table = pa.concat_tables([table, table])
    else:
        order = list(range(rows))
        rng.shuffle(order)
        table = table.take(order)
    pq.write_table(table, path)
    return f"{name} {kind}"


def alter_sqlite(path: Path, rng: Random) -> str:
    """Change a value, remove rows or a table, or change the header of an SQLite file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = [name for (name,) in db.execute(query)]
        table = rng.choice(tables)
        kind = rng.choice(("value", "value", "value", "rows", "table", "version", "application"))
        if kind == "value":
            column = rng.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
            keys = db.execute(f"SELECT {column} FROM {table}").fetchall()
            if not keys:
                return "unchanged"
            values = (None, "", "x", -1, 10**12, 1e308, b"\xff\x00", "x" * 5000, "{}", "[]", "1.5")
            try:
                sql = f"UPDATE {table} SET {column} = ? WHERE {column} IS ?"
                db.execute(sql, (rng.choice(values), rng.choice(keys)[0]))
            except sqlite3.DatabaseError as error:
                return f"unchanged: {error}"
            kind = f"{column}"
        elif kind == "rows":
            db.execute(f"DELETE FROM {table}")
        elif kind == "table":
            db.execute(f"DROP TABLE {table}")
        elif kind == "version":
            db.execute("PRAGMA user_version = 77")
        else:
            db.execute("PRAGMA application_id = 77")
    return f"{table} {kind}"


ODD_CELLS = [
    "",
    " ",
    "x",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e308",
    "1e999",
    "-1",
    "0",
    "-0.0",
    "0.5",
    "1e-320",
    "9" * 25,
    "9" * 5000,
    str(2**31),
    str(2**63),
    str(2**64),
    "0x10",
    "1_000",
    "1,5",
    "True",
    "null",
    "\0",
    "\x1b[31mred",
    "\ufeff",
    "\u202e",
    "\u0661",
    "\U0001f600",
    "'",
    '"',
    '""',
    '"\n"',
    "\n",
    "\r",
    "\t",
    ",",
    ";",
    "|",
    "#",
    "../../up",
    "x" * 5000,
    "[" * 3000,
    "{}",
    "1" + "(" * 500,
    "1970-01-01",
    "0000-00-00 00:00:00",
    "9999-12-31 23:59:59",
    "10000-01-01",
    "2024-02-30T25:61:61",
    "None",
    "2024-01-05T10:00:00+99:99",
    "2024-01-05T10:00:00Z",
    "-1 day",
    "1-00:00:00",
    "99999999-00:00:00",
    "gres/gpu=-1",
    "gres/gpu=1e9",
    "gres/gpu:a100=99999999999999999999",
    "Unknown",
    "UNLIMITED",
]
"""Cells of tables and of logs that are no number, too large a one, no time, or more than a cell."""

ENCODINGS = ("utf-8-sig", "utf-16", "utf-32-le", "latin-1", "cp037", "utf-7")


def alter_table(path: Path, rng: Random) -> str:
    """Change cells, rows or columns of a text with a row a line."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    separator = max(",|\t ", key=text.count)
    rows = [line.split(separator) for line in lines]
    kind = rng.choice(
        (
            "cells",
            "cells",
            "cells",
            "cells",
            "column",
            "column order",
            "row twice",
            "row lost",
            "row order",
            "ragged",
            "header",
            "many rows",
            "many columns",
            "separator",
            "one value",
        )
    )
    index = rng.randrange(len(rows))
    column = rng.randrange(max(map(len, rows)))
    if kind == "cells":
        for _ in range(rng.choice((1, 1, 2, 5))):
            row = rng.choice(rows)
            row[rng.randrange(len(row))] = rng.choice(ODD_CELLS)
    elif kind == "one value":
        value = rng.choice(ODD_CELLS)
        for row in rows[rng.choice((0, 1, 1)) :]:
            row[column : column + 1] = [value] * (column < len(row))
    elif kind == "column":
        for row in rows:
            del row[column : column + 1]
    elif kind == "column order":
        order = Random(column)
        for row in rows:
            order.seed(column)
            order.shuffle(row)
    elif kind == "row twice":
        rows[index:index] = [rows[index]] * rng.choice((1, 3))
    elif kind == "row lost":
        del rows[index]
    elif kind == "row order":
        rng.shuffle(rows)
    elif kind == "ragged":
        rows[index] += [rng.choice(ODD_CELLS)] * rng.choice((1, 30))
    elif kind == "header":
        rows[0][rng.randrange(len(rows[0]))] = rng.choice((*rows[0], "", "x", "\x1b[1m", "job_id"))
    elif kind == "many rows":
        rows += [rng.choice(rows) for _ in range(3000)]
    elif kind == "many columns":
        rows = [row + row[-1:] * 1200 for row in rows]
    else:
        separator = rng.choice(",;|\t ")
    changed = "\n".join(separator.join(row) for row in rows)
    path.write_bytes(changed.encode("utf-8", "surrogatepass"))
    return kind


def alter_encoding(path: Path, rng: Random) -> str:
    """Write a text in another encoding, with other ends of lines, or compressed."""
    data = path.read_bytes()
    kind = rng.choice((*ENCODINGS, "crlf", "cr", "gzip", "gzip twice", "gzip damaged", "gzip cut"))
    if kind in ENCODINGS:
        data = data.decode("utf-8", "replace").encode(kind, "replace")
    elif kind in ("crlf", "cr"):
        data = data.replace(b"\n", b"\r\n" if kind == "crlf" else b"\r")
    else:
        data = gzip.compress(data, mtime=0)
        if kind == "gzip twice":
            data *= 2
        elif kind == "gzip cut":
            data = data[: rng.randrange(len(data))]
        elif kind == "gzip damaged":
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            data = bytes(changed)
    path.write_bytes(data)
    return kind


def alter(root: Path, rng: Random) -> str:
    """Alter one file below a folder; says which one and how."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    suffix = rng.choice(sorted({path.suffix for path in paths}))
    path = rng.choice([path for path in paths if path.suffix == suffix])
    ways: list[Alter] = [alter_bytes, alter_place]
    own: dict[str, Alter] = {
        ".json": alter_json,
        ".parquet": alter_parquet,
        ".sqlite": alter_sqlite,
    }
    if path.suffix in own:
        ways += [own[path.suffix]] * 3
    what = rng.choice(ways)(path, rng)
    return f"{path.relative_to(root)}: {what}"


def restore(root: Path, pristine: Path) -> None:
    """Make a folder a copy of another one."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)
