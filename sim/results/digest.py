"""Digests of results, independent of the library versions that wrote the files."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SLICE = 1 << 17
"""Rows of a column of texts that are decoded at a time."""


def digest_tables(tables: Mapping[str, pa.Table]) -> str:
    """SHA-256 of the values of tables; chunks, offsets and padding do not count."""
    state = sha256()
    for name, table in tables.items():
        state.update(name.encode())
        for column in table.columns:
            for part in _value_bytes(one_chunk(column)):
                state.update(part)
    return state.hexdigest()


def _value_bytes(column: pa.Array) -> Iterator[Any]:
    """Bytes of a column's values, independent of its offset and padding."""
    if column.null_count:
        yield np.packbits(column.is_null().to_numpy(zero_copy_only=False))
    else:
        yield np.zeros((len(column) + 7) // 8, np.uint8)
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        yield lengths.fill_null(0).to_numpy()
        for begin in range(0, len(column), SLICE):
            yield _text_bytes(column.slice(begin, SLICE).dictionary_decode())
    elif pa.types.is_string(column.type):
        yield pc.binary_length(column).fill_null(0).to_numpy()
        yield _text_bytes(column)
    elif pa.types.is_list(column.type):
        yield pc.list_value_length(column).to_numpy(zero_copy_only=False)
        yield column.flatten().to_numpy()
    else:
        zero = pa.scalar(0).cast(column.type) if column.null_count else None
        filled = column.fill_null(zero) if column.null_count else column
        yield np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))


def _text_bytes(texts: pa.Array) -> Any:
    """All texts, concatenated."""
    inside = (texts.fill_null("") if texts.null_count else texts).cast(pa.binary())
    offsets = np.frombuffer(inside.buffers()[1], dtype=np.int32)
    start, end = (int(offsets[at]) for at in (inside.offset, inside.offset + len(inside)))
    data = inside.buffers()[2]
    return b"" if data is None else data[start:end]


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array, copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
