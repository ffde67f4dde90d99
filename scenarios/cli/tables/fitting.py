"""Tables that are shown whole on narrow terminals."""

from typing import Final

from rich.console import Console
from rich.table import Column, Table

NARROWEST_NAMES: Final = 12
"""Names fold to this width before figures wrap."""


def print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting its cells.

    Columns that wrap, such as names, get narrower first; if that does not suffice, those that do
    not wrap (`no_wrap`) wrap, too.
    """
    frame = 3 * len(table.columns) + 1
    widths = [(column, _measure(console, column)) for column in table.columns]
    least = frame + sum(
        width if column.no_wrap else min(NARROWEST_NAMES, width) for column, width in widths
    )
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.no_wrap and least <= console.width
    console.print(table)


def _measure(console: Console, column: Column) -> int:
    return max(console.measure(cell).maximum for cell in (column.header, *column.cells))
