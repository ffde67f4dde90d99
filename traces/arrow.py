"""Operations on columns of Arrow."""

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats, Ints


def to_floats(column: pa.Array | pa.ChunkedArray) -> Floats:
    """A column as 64-bit floats, NaN where it is null; it may not be writable."""
    floats = column.cast(pa.float64())
    if isinstance(floats, pa.ChunkedArray):
        floats = floats.combine_chunks()
    values: Floats = floats.to_numpy(zero_copy_only=False)
    return values


def encode(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Index of each text among the distinct values, -1 for null, and these values."""
    coded = column.combine_chunks().dictionary_encode()
    return np.asarray(coded.indices.fill_null(-1)).astype(np.int64), coded.dictionary.to_pylist()


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array, copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def replace_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with new values, of any type, in a column; the metadata of the column stay."""
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index).with_type(values.type), values)
