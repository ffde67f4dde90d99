"""Columns of text of a file of series, with the places of their rows."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.errors import TraceError


class Texts(NamedTuple):
    """Columns of text, the number of each row in the file, and what a row is called there."""

    table: pa.Table
    numbers: Ints
    row: str

    def keep(self, mask: Bools) -> "Texts":
        """Only some of the rows."""
        return Texts(self.table.filter(pa.array(mask)), self.numbers[mask], self.row)

    def take(self, places: Ints) -> "Texts":
        """Rows by their places, in this order."""
        return Texts(self.table.take(pa.array(places)), self.numbers[places], self.row)


def number_rows(table: pa.Table, path: object) -> Texts:
    """The rows of a table, numbered from 1.

    Raises:
        TraceError: If there are none, or two columns have one name.
    """
    if not table.num_rows or not table.num_columns:
        raise TraceError("has no rows with times and numbers", path)
    if len(set(table.column_names)) < table.num_columns:
        raise TraceError(f"has columns of the same name: {', '.join(table.column_names)}", path)
    return Texts(table, np.arange(1, table.num_rows + 1), "row")
