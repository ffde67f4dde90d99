"""Results of the first pass of an import, and its scratch file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import SHOWN, Problem
from wattkeeper.traces.library.uncounted import UncountedGpus
from wattkeeper.traces.readers.base import Kinds, TimeKind
from wattkeeper.traces.schema import JOBS, is_optional

ROW_GROUP: Final = 1 << 16

Place = tuple[int, int]
"""Number of a file, and line."""


@dataclass(slots=True)
class AlikeFaults:
    """A fault that rows have.

    Attributes:
        text: What is wrong.
        place: The first of these rows.
        rows: Their number.
    """

    text: str
    place: Place
    rows: int = 1

    def __str__(self) -> str:
        others = self.rows - 1
        more = f" (and {others:,} more {'row' if others == 1 else 'rows'})" if others else ""
        return self.text + more


@dataclass(slots=True)
class FirstPass:
    """Results of the first pass.

    Attributes:
        rows: Number of rows read.
        wrong: Number of malformed rows.
        faults: The first `SHOWN` different texts of them, by text.
        dropped: Number of well-formed rows that are left out, by reason.
        doubts: Suspicious rows, by reason.
        names: As in `ConvertedRows`.
        kinds: How times are written.
        durations: Number of rows with a run time.
        paths: Files in the order in which they were read.
        hashes: Of the ids of the rows in the scratch file, in parts.
        first_s: First submission, in the seconds of the log.
        absent: Optional columns without a value.
        clusters: Number of rows in the scratch file by cluster, where the log has several.
        uncounted: Jobs that may be from before GPUs were counted.
        notes: Remarks for the readers of the trace.
    """

    rows: int = 0
    wrong: int = 0
    faults: dict[str, AlikeFaults] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, AlikeFaults] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=Kinds)
    durations: int = 0
    paths: list[Path] = field(default_factory=list)
    hashes: list[Ints] = field(default_factory=list)
    first_s: float = np.inf
    absent: set[str] = field(default_factory=lambda: {w.name for w in JOBS if is_optional(w)})
    clusters: Counter[str | None] = field(default_factory=Counter)
    uncounted: UncountedGpus = field(default_factory=UncountedGpus)
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> TimeKind:
        """How times are written, where they are of one kind."""
        return next(iter(self.kinds.found), "numbers")

    def fault(self, file: int, line: int, text: str) -> None:
        """Count a malformed row."""
        self.wrong += 1
        _add(self.faults, text, (file, line), 1)
        if len(self.faults) > SHOWN:
            del self.faults[max(self.faults.values(), key=attrgetter("place")).text]

    def doubt(self, what: str, file: int, line: int, rows: int) -> None:
        """Count suspicious rows, of which one is on a line."""
        _add(self.doubts, what, (file, line), rows)

    def problems(self) -> list[Problem]:
        """The stored faults, in the order of their places."""
        return [
            Problem(str(fault), f"{self.paths[fault.place[0]]}, line {fault.place[1]}")
            for fault in self._in_order()
        ]

    def shown(self) -> int:
        """Number of malformed rows that `problems` stands for."""
        return sum(fault.rows for fault in self.faults.values())

    def examples(self) -> list[str]:
        """The stored faults without folder names."""
        return [f"{self.describe(fault.place)}: {fault}" for fault in self._in_order()]

    def describe(self, place: Place) -> str:
        """A place as in messages, without folder name."""
        return f"{self.paths[place[0]].name}, line {place[1]}"

    def _in_order(self) -> list[AlikeFaults]:
        return sorted(self.faults.values(), key=attrgetter("place"))

    def count(self, into: dict[str, int], counts: Mapping[str, int]) -> None:
        """Add counts by reason."""
        for reason, count in counts.items():
            into[reason] = into.get(reason, 0) + count


def _add(faults: dict[str, AlikeFaults], text: str, place: Place, rows: int) -> None:
    if known := faults.get(text):
        known.rows += rows
        known.place = min(known.place, place)
    else:
        faults[text] = AlikeFaults(text, place, rows)


def read_parts(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read columns of the scratch file, in parts."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for part in file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([part])
