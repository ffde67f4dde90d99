"""Digests of results, independent of the library versions that wrote the files."""

from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.sim.results.parquet import AnyTable, StoredTable

SLICE = 1 << 17
"""Rows of a column of texts that are decoded at a time."""


def digest_tables(tables: Mapping[str, AnyTable]) -> str:
    """SHA-256 of the values of tables; chunks, offsets and padding do not count."""
    state = sha256()
    for name, table in tables.items():
        state.update(name.encode())
        for column in table.column_names:
            for part in _value_bytes(table, column):
                state.update(part)
    return state.hexdigest()


def _value_bytes(table: AnyTable, name: str) -> Iterator[Any]:
    """Bytes of a column's values, independent of its chunks, their offsets and padding."""
    kind = table.schema.field(name).type
    is_number = not (
        pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_string(kind)
    )
    if isinstance(table, StoredTable) and is_number:
        nulls, read = table.count_nulls(name), partial(table.read_parts, name)
    else:
        column = table[name]
        nulls, kind, read = column.null_count, column.type, partial(iter, column.chunks)
    if nulls:
        absent = [chunk.is_null().to_numpy(zero_copy_only=False) for chunk in read()]
        yield np.packbits(np.concatenate(absent))
    else:
        yield np.zeros((len(table) + 7) // 8, np.uint8)
    if is_number:
        zero = pa.scalar(0).cast(kind) if nulls else None
        for chunk in read():
            filled = chunk.fill_null(zero) if chunk.null_count else chunk
            yield np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))
    elif pa.types.is_list(kind):
        for chunk in read():
            yield pc.list_value_length(chunk).to_numpy(zero_copy_only=False)
        for chunk in read():
            yield chunk.flatten().to_numpy()
    else:
        for chunk in read():
            yield _text_lengths(chunk)
        for chunk in read():
            for begin in range(0, len(chunk), SLICE):
                yield _text_bytes(chunk.slice(begin, SLICE))


def _text_lengths(texts: pa.Array) -> Any:
    """Bytes of each text; 0 for null."""
    if pa.types.is_dictionary(texts.type):
        lengths = pc.binary_length(texts.dictionary).take(texts.indices)
    else:
        lengths = pc.binary_length(texts)
    return lengths.fill_null(0).to_numpy()


def _text_bytes(texts: pa.Array) -> Any:
    """All texts, concatenated."""
    plain = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
    inside = (plain.fill_null("") if plain.null_count else plain).cast(pa.binary())
    offsets = np.frombuffer(inside.buffers()[1], dtype=np.int32)
    start, end = (int(offsets[at]) for at in (inside.offset, inside.offset + len(inside)))
    data = inside.buffers()[2]
    return b"" if data is None else data[start:end]
