"""Rows of numbers put aside while a run continues: in memory, or in a file without a name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.errors import EnvironmentLacks

MOST_HELD_BYTES: Final = 1 << 25
"""Bytes of rows of a run that are in memory in any case."""


class SpooledBlock:
    """Some rows that were put aside, column after column.

    Attributes:
        rows: Their number.
    """

    def __init__(self, rows: npt.NDArray[Any], spool: Spool, kept: bytes | int) -> None:
        self.rows = len(rows)
        self._type = rows.dtype
        self._spool = spool
        self._kept = kept

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """A column, shape (rows,)."""
        assert self._type.fields is not None
        kind, begin = self._type.fields[name][:2]
        begin *= self.rows
        if isinstance(self._kept, bytes):
            return np.frombuffer(self._kept, kind, self.rows, begin)
        data = self._spool.read(self._kept + begin, self.rows * kind.itemsize)
        return np.frombuffer(data, kind)


class Spool:
    """Takes rows; with a folder, those beyond `MOST_HELD_BYTES` lie in a file there.

    The file has no name: it is gone with the process, however that ends.

    Attributes:
        folder: The folder; None: all rows are in memory.
        held_bytes: Bytes of rows that it took into memory.
        filed_bytes: Bytes of rows that it wrote into the file.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.held_bytes = 0
        self.filed_bytes = 0
        self._file: IO[bytes] | None = None

    def keep(self, rows: npt.NDArray[Any]) -> SpooledBlock:
        """Put rows of a structured type aside.

        Raises:
            EnvironmentLacks: If the file system refuses.
        """
        data = b"".join([rows[name].tobytes() for name in rows.dtype.names or ()])
        if self.folder is None or self.held_bytes + len(data) <= MOST_HELD_BYTES:
            self.held_bytes += len(data)
            return SpooledBlock(rows, self, data)
        begin, self.filed_bytes = self.filed_bytes, self.filed_bytes + len(data)
        with self._explain():
            if self._file is None:
                self._file = TemporaryFile(dir=self.folder)  # noqa: SIM115, it stays open
            self._file.write(data)
            self._file.flush()
        return SpooledBlock(rows, self, begin)

    def read(self, begin: int, size: int) -> bytes:
        """Bytes of the file.

        Raises:
            EnvironmentLacks: If the file system refuses.
        """
        assert self._file is not None
        with self._explain():
            return os.pread(self._file.fileno(), size, begin)

    @contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"cannot keep rows of the run in {self.folder}: {error.strerror or error}"
            raise EnvironmentLacks(text) from error
