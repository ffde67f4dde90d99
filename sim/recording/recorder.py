"""What a run of the cluster engine records: attempts, decisions, and rows of further kinds."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.sim.kernel.packed import write_f64_le, write_i32_le, write_i64_le
from wattkeeper.sim.kernel.rows import Rows, RowT
from wattkeeper.sim.kernel.spool import Spool
from wattkeeper.sim.recording.cluster_journal import ClusterJournal
from wattkeeper.sim.recording.row_types import (
    DETAILS,
    AttemptRow,
    LossRow,
    NodeRow,
    PauseRow,
    PowerChangeRow,
    ShapeRow,
)

UNITS_PER_WATT: Final = 2**32
"""Power is counted in whole parts of a watt, so that sums of changes are exact up to 1 GW."""

MOST_UNITS: Final = 2**62

_EXACT: Final = 2.0**51

_ROUNDING: Final = 1.5 * 2.0**52
"""A double of this size has no fraction: adding it rounds to the nearest whole number, half to
even, as `round` does, below `_EXACT`."""


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt.

    Raises:
        InputError: If it is more than can be summed exactly.
    """
    units = power_w * UNITS_PER_WATT
    if -_EXACT < units < _EXACT:
        return int(units + _ROUNDING - _ROUNDING)
    if not units <= MOST_UNITS:  # it may be infinite
        raise power_too_large()
    return round(units)


def power_too_large() -> InputError:
    """The error for power that cannot be summed exactly."""
    most_gw = MOST_UNITS / UNITS_PER_WATT / 1e9
    return InputError(
        f"GPUs draw more than {most_gw:.2f} GW: check their power, the profiles and, with "
        "occupancy: recorded, the durations of jobs with a workload"
    )


def waits_between_attempts(
    number: Ints, attempt: Ints, begun_s: Floats, ended_s: Floats
) -> tuple[Ints, Floats, Floats]:
    """The waits of jobs from the end of an attempt to the start of the next one.

    Args:
        number: `Job.number` of each attempt's job, shape (attempts,).
        attempt: Number of each attempt, likewise.
        begun_s: When each began, s, likewise.
        ended_s: When each ended, s, likewise.

    Returns:
        Job number, begin and end (s) of each wait, shapes (waits,).
    """
    order = np.lexsort((attempt, number))
    later = np.flatnonzero(number[order][1:] == number[order][:-1]) + 1
    return number[order][later], ended_s[order[later - 1]], begun_s[order[later]]


class Details(Rows[RowT]):
    """Rows about attempts, which are the rows of `attempts`."""

    def __init__(self, kind: type[RowT], spool: Spool, attempts: Rows[AttemptRow]) -> None:
        super().__init__(kind, spool, ("about",))
        self._attempts = attempts
        self._defaults: dict[str, float] = kind._field_defaults
        self._ranges: list[tuple[int, int]] = []

    def add_about(self, attempt: int, row: RowT) -> None:
        """Add a row about an attempt, by the attempt's row; it replaces one that is there."""
        self.writer.write(self._pack(attempt, *row))
        self.end_row()

    def among(self, begin: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """The rows about some attempts, as columns; `about`: the attempt, from 0 at `begin`."""
        names = self._type.names or ()
        parts = {name: [np.empty(0, self._type[name])] for name in names}
        blocks = self.blocks()
        for block in blocks[len(self._ranges) :]:
            about = block["about"]
            self._ranges.append((int(about.min()), int(about.max())) if len(about) else (0, -1))
        for block, (first, last) in zip(blocks, self._ranges, strict=True):
            if last >= begin and first < end:
                about = block["about"]
                inside = (about >= begin) & (about < end)
                for name in names:
                    parts[name].append(block[name][inside])
        columns = {name: np.concatenate(part) for name, part in parts.items()}
        columns["about"] -= begin
        return columns

    def replace(self, name: str, values: npt.NDArray[Any], begin: int = 0) -> npt.NDArray[Any]:
        """`values`, of the attempts from `begin` on, with a column in the place of its rows."""
        if not len(self):
            return values
        values, columns = values.copy(), self.among(begin, begin + len(values))
        values[columns["about"]] = columns[name]
        return values

    def of_attempts(self, name: str, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """A column of some attempts, by default of all; the default where there is no row."""
        number = (len(self._attempts) if end is None else end) - begin
        return self.replace(name, np.full(number, self._defaults[name], self._type[name]), begin)


class Recorder:
    """What a run did: its attempts, its decisions, and rows of further kinds.

    A feature adds rows of its own kind, and what makes the results asks for the kind; a run without
    the feature has no such rows.

    Attributes:
        spool: Takes all rows of numbers.
        journal: Decisions.
        parents: Parents of attempts, by the attempt's row.
        node_changes: What happened to nodes: rows of `NODES`, in order.
        unable: Numbers of jobs that never ended, for want of nodes.
        follows_nodes: Whether nodes may be lost.
        shapes: What elastic jobs did in each shape: rows of `SHAPES`, in order.
        finished_elastic: Numbers of elastic jobs that trained all their samples.
        booting_losses: Losses of nodes that came back, on which no job could start yet.
    """

    def __init__(self) -> None:
        self.spool = Spool()
        self.journal = ClusterJournal(self.spool)
        self.node_changes: list[NodeRow] = []
        self.unable: list[int] = []
        self.follows_nodes = False
        self.shapes: list[ShapeRow] = []
        self.finished_elastic: set[int] = set()
        self.booting_losses = 0
        self.clear()

    def clear(self) -> None:
        """Forget all but the journal, nodes, shapes and what jobs came to."""
        self.parents: dict[int, str] = {}
        self._attempts = Rows(AttemptRow, self.spool)
        self._changes = Rows(PowerChangeRow, self.spool)
        self._pauses = Rows(PauseRow, self.spool)
        self._events: dict[type, Any] = {PowerChangeRow: self._changes, PauseRow: self._pauses}
        self._details: dict[type, Any] = {}

    @property
    def attempts(self) -> int:
        """Number of added attempts."""
        return len(self._attempts)

    def add_attempt(
        self,
        number: int,
        begun_s: float,
        ended_s: float,
        energy_j: float,
        time_s: float,
        cost: float,
        where: int,
        power: int,
    ) -> None:
        """Add an `AttemptRow`."""
        row = self._attempts.writer
        write_i64_le(row, number)
        write_f64_le(row, begun_s)
        write_f64_le(row, ended_s)
        write_f64_le(row, energy_j)
        write_f64_le(row, time_s)
        write_f64_le(row, cost)
        write_i64_le(row, power)
        write_i32_le(row, where)
        self._attempts.end_row()

    def add_power_change(self, number: int, now_s: float, change: int) -> None:
        """Add a `PowerChangeRow`."""
        row = self._changes.writer
        write_i64_le(row, number)
        write_f64_le(row, now_s)
        write_i64_le(row, change)
        self._changes.end_row()

    def add_pause(self, number: int, from_s: float, to_s: float) -> None:
        """Add a `PauseRow`."""
        row = self._pauses.writer
        write_i64_le(row, number)
        write_f64_le(row, from_s)
        write_f64_le(row, to_s)
        self._pauses.end_row()

    def add_event(self, row: NamedTuple) -> None:
        """Add a row that is not about an attempt."""
        self._events_of(type(row)).add(row)

    def add_detail(self, row: NamedTuple, attempt: int | None = None) -> None:
        """Add a row about an attempt, by the attempt's row; by default about the last one.

        What was added of its kind to that attempt before is replaced.
        """
        about = len(self._attempts) - 1 if attempt is None else attempt
        self.details(type(row)).add_about(about, row)

    def events(self, kind: type[RowT]) -> list[npt.NDArray[Any]]:
        """The columns of rows that are not about attempts, shapes (rows,)."""
        return self._events_of(kind).columns()

    def _events_of(self, kind: type[RowT]) -> Rows[RowT]:
        rows: Rows[RowT] | None = self._events.get(kind)
        if rows is None:
            rows = self._events[kind] = Rows(kind, self.spool)
        return rows

    def details(self, kind: type[RowT]) -> Details[RowT]:
        """The rows of a kind about attempts."""
        details: Details[RowT] | None = self._details.get(kind)
        if details is None:
            details = self._details[kind] = Details(kind, self.spool, self._attempts)
        return details

    def has(self, kind: type[NamedTuple]) -> bool:
        """Whether any attempt has a row of a kind."""
        return len(self.details(kind)) > 0

    def column(self, name: str, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """A column of `AttemptRow` or of a kind in `DETAILS`: of some attempts, by default all."""
        if name in AttemptRow._fields:
            return self._attempts.column(name, begin, end)
        kind = next(kind for kind in DETAILS if name in kind._fields)
        return self.details(kind).of_attempts(name, begin, end)

    def requeues(self) -> tuple[Ints, Floats, Floats]:
        """`waits_between_attempts`; none where no attempt ended but with its job or at once."""
        if not (self.has(LossRow) or self.shapes):
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        columns = (self.column(name) for name in ("number", "attempt", "begun_s", "ended_s"))
        return waits_between_attempts(*columns)
