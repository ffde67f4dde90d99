"""Results of the first pass of an import, and its scratch file."""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import SHOWN, Problem
from wattkeeper.traces.readers.base import Kinds, TimeKind
from wattkeeper.traces.schema import JOBS, is_optional

ROW_GROUP: Final = 1 << 16


@dataclass(slots=True)
class FirstPass:
    """Results of the first pass.

    Attributes:
        rows: Number of rows read.
        wrong: Number of malformed rows.
        faults: The first of them: file, line and text.
        dropped: Number of well-formed rows that are left out, by reason.
        doubts: Number of suspicious rows, by reason.
        names: As in `Rows`.
        kinds: How times are written.
        paths: Files in the order in which they were read.
        hashes: Of the ids of the rows in the scratch file, in parts.
        first_s: First submission, in the seconds of the log.
        absent: Optional columns without a value.
        notes: Remarks for the readers of the trace.
    """

    rows: int = 0
    wrong: int = 0
    faults: list[tuple[int, int, str]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=Kinds)
    paths: list[Path] = field(default_factory=list)
    hashes: list[Ints] = field(default_factory=list)
    first_s: float = np.inf
    absent: set[str] = field(default_factory=lambda: {w.name for w in JOBS if is_optional(w)})
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> TimeKind:
        """How times are written, where they are of one kind."""
        return next(iter(self.kinds.found), "numbers")

    def fault(self, file: int, line: int, text: str) -> None:
        """Count a malformed row; the first ones by file and line are stored."""
        self.wrong += 1
        insort(self.faults, (file, line, text))
        del self.faults[SHOWN:]

    def problems(self) -> list[Problem]:
        """The stored faults."""
        return [
            Problem(text, f"{self.paths[index]}, line {line}") for index, line, text in self.faults
        ]

    def examples(self) -> list[str]:
        """The stored faults without folder names."""
        return [
            f"{self.paths[index].name}, line {line}: {text}" for index, line, text in self.faults
        ]

    def count(self, into: dict[str, int], counts: Mapping[str, int]) -> None:
        """Add counts by reason."""
        for reason, count in counts.items():
            into[reason] = into.get(reason, 0) + count


def read_parts(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read columns of the scratch file, in parts."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for part in file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([part])
