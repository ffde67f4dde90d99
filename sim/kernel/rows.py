"""Rows of numbers, appended one by one and read as columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from wattkeeper.sim.kernel.packed import BytesWriter
from wattkeeper.sim.kernel.spool import Spool, SpooledBlock

ABSENT: Final = -1

BUFFER_BYTES = 1 << 18
"""Size from which written rows are put aside."""

MOST_ROWS: Final = 2**62


class Rows:
    """Rows of numbers, appended one by one, read as columns.

    Args:
        codes: Name and type of each column, in the order in which `writer` is given them; as NumPy
            codes them, little-endian. `row`: the number of the attempt that a row is about.
        spool: Takes complete rows.

    Attributes:
        writer: Takes the numbers of a row, then `end_row` is called; compiled code writes numbers
            without making objects of them.
    """

    def __init__(self, codes: Mapping[str, str], spool: Spool) -> None:
        self.writer = BytesWriter()
        self._spool = spool
        self._blocks: list[SpooledBlock] = []
        self._begins: list[int] = [0]
        self._about: list[tuple[int, int]] = []
        self._type = np.dtype([(name, f"<{code}") for name, code in codes.items()])
        self._row_bytes: int = self._type.itemsize

    def __len__(self) -> int:
        return self._begins[-1] + len(self.writer) // self._row_bytes

    def end_row(self) -> None:
        """Complete a row."""
        if len(self.writer) >= BUFFER_BYTES:
            self._move()

    def _move(self) -> None:
        rows = np.frombuffer(self.writer.getvalue(), self._type)
        self.writer = BytesWriter()
        self._blocks.append(self._spool.keep(rows))
        self._begins.append(self._begins[-1] + len(rows))
        if "row" in self:
            about = rows["row"]
            self._about.append((int(about.min(initial=MOST_ROWS)), int(about.max(initial=ABSENT))))

    def __contains__(self, name: str) -> bool:
        return name in (self._type.names or ())

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

    def among(self, begin: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """The rows about some attempts, as columns."""
        names = self._type.names or ()
        parts = {name: [np.empty(0, self._type[name])] for name in names}
        for block, (first, last) in zip(self.blocks(), self._about, strict=True):
            if last >= begin and first < end:
                row = block["row"]
                inside = (row >= begin) & (row < end)
                for name in names:
                    parts[name].append(block[name][inside])
        return {name: np.concatenate(part) for name, part in parts.items()}

    def spread(self, name: str, values: npt.NDArray[Any], begin: int) -> None:
        """Put a column where its rows belong in `values`: of the attempts from `begin` on."""
        columns = self.among(begin, begin + len(values))
        values[columns["row"] - begin] = columns[name]
