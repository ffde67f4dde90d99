"""Limits of what is read from files, the same for every reader.

They bound the memory and the time that a file of any content takes. The number of rows of a log is
not limited: it is read in batches.
"""

from typing import Final

LONGEST_LINE_BYTES: Final = 1 << 20
"""Of a line of text; also of a header over several lines."""
MOST_COLUMNS: Final = 1000
"""Of a table of text."""
MOST_BYTES: Final = 1 << 27
"""Of a CSV file that is read as a whole, decompressed."""
MOST_CELLS: Final = 20_000_000
"""Of a CSV file that is read as a whole: its delimiters and line ends."""
MOST_JSON_BYTES: Final = 1 << 24
"""Of a JSON document: a graph of a model, or throughputs."""
MOST_DETAILS_BYTES: Final = 1 << 20
"""Of ``trace.json`` or a fit."""
MOST_TABLE_BYTES: Final = 1 << 30
"""Of a Parquet file."""
MOST_SLOTS: Final = 1 << 21
"""Of a series of prices or carbon intensities: twenty years, each five minutes."""
MOST_RATIO: Final = 100
"""Decompressed bytes of a file by compressed byte, once they are more than `UNLIMITED_BYTES`."""
UNLIMITED_BYTES: Final = 1 << 24
"""A text may decompress to so much whatever the size of its file."""
UNLIMITED_TABLE_BYTES: Final = 1 << 28
"""A Parquet file may do so."""
MOST_FAULTS: Final = 1000
"""Malformed rows after which a file that is read as a whole is given up."""


def is_oversized(
    plain_bytes: int, stored_bytes: int, unlimited_bytes: int = UNLIMITED_BYTES
) -> bool:
    """Whether content is out of proportion to the compressed bytes that it comes from."""
    return plain_bytes > max(unlimited_bytes, MOST_RATIO * stored_bytes)
