"""Tables that grow by rows of numbers and are read by columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from wattkeeper.sim.kernel.packed import BytesWriter
from wattkeeper.sim.kernel.spool import Spool, SpooledBlock

ABSENT: Final = -1

BUFFER_BYTES = 1 << 18
"""Size from which written rows are put aside."""

RowT = TypeVar("RowT", bound=NamedTuple)

CODES: Final = {"int": "q", "float": "d", "i32": "i", "u8": "B"}
"""The code of numbers of each type, by its name; NumPy and `struct` share these."""


class Rows(Generic[RowT]):
    """A table that grows by rows of numbers and is read by columns.

    Args:
        kind: The rows' type: a named tuple of `int` and `float`, of 64 bits, `i32` and `u8`. Its
            module is not compiled: mypyc does not keep the last two.
        spool: Takes complete rows.
        keys: Columns of integers that precede the fields of `kind`.

    Attributes:
        writer: Takes the numbers of a row, then `end_row` is called: in compiled code an order of
            magnitude faster than `add`, since no object is made of a row.
    """

    def __init__(self, kind: type[RowT], spool: Spool, keys: tuple[str, ...] = ()) -> None:
        types = dict.fromkeys(keys, int) | get_type_hints(kind)
        codes = {name: CODES[each.__name__] for name, each in types.items()}
        self._type = np.dtype([(name, f"<{code}") for name, code in codes.items()])
        self._row_bytes: int = self._type.itemsize
        self._pack: Callable[..., bytes] = Struct(f"<{''.join(codes.values())}").pack
        self.writer = BytesWriter()
        self._spool = spool
        self._blocks: list[SpooledBlock] = []
        self._begins: list[int] = [0]

    def __len__(self) -> int:
        return self._begins[-1] + len(self.writer) // self._row_bytes

    def add(self, row: RowT) -> None:
        """Add a row."""
        self.writer.write(self._pack(*row))
        self.end_row()

    def end_row(self) -> None:
        """Complete a row."""
        if len(self.writer) >= BUFFER_BYTES:
            self._move()

    def _move(self) -> None:
        rows = np.frombuffer(self.writer.getvalue(), self._type)
        self.writer = BytesWriter()
        self._blocks.append(self._spool.keep(rows))
        self._begins.append(self._begins[-1] + len(rows))

    def blocks(self) -> list[SpooledBlock]:
        """All rows, in blocks that a processor's cache holds; at least one."""
        if len(self.writer) or not self._blocks:
            self._move()
        return self._blocks

    def column(self, name: str, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """A column of some rows, by default of all, shape (rows,)."""
        blocks, begins = self.blocks(), self._begins
        end = len(self) if end is None else end
        values = np.empty(end - begin, self._type[name])
        index = bisect_right(begins, begin) - 1
        while index < len(blocks) and begins[index] < end:
            first = begins[index]
            part = blocks[index][name][max(begin - first, 0) : end - first]
            at = max(first - begin, 0)
            values[at : at + len(part)] = part
            index += 1
        return values

    def columns(self) -> list[npt.NDArray[Any]]:
        """All columns, in order, shapes (rows,)."""
        return [self.column(name) for name in self._type.names or ()]
