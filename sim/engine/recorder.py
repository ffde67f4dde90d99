"""What a run leaves behind while it runs: growing columns of plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import NEW, Job, Placement
from wattkeeper.sim.attempts.decisions import DecisionJournal
from wattkeeper.sim.native import (
    BytesWriter,
    write_f64_le,
    write_i32_le,
    write_i64_le,
)

UNITS_PER_WATT = 2**32
"""Power is counted in whole parts of a watt, so that sums of changes are exact up to 1 GW."""

MOST_UNITS = 2**62

_EXACT: Final = 2.0**51
_ROUNDING: Final = 1.5 * 2.0**52
"""A double of this size has no fraction: adding it rounds to the nearest whole number, half to
even, as `round` does, below `_EXACT`."""

REACHED: Final = 1
EARLY: Final = 2
PROFILED: Final = 4
REPLAYED: Final = 8
"""Flags of an attempt; `REPLAYED`: from a profile."""

ABSENT = -1


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt.

    Raises:
        InputError: If it is more than can be summed exactly.
    """
    units = power_w * UNITS_PER_WATT
    if -_EXACT < units < _EXACT:
        return int(units + _ROUNDING - _ROUNDING)
    whole = round(units)
    if whole > MOST_UNITS:
        raise too_much()
    return whole


def too_much() -> InputError:
    """What to say of power that cannot be summed exactly."""
    most_gw = MOST_UNITS / UNITS_PER_WATT / 1e9
    return InputError(f"GPUs draw more than {most_gw:.2f} GW: check their power and the profiles")


_ENDED = {"number": "i8", "begun_s": "f8", "ended_s": "f8", "energy_j": "f8", "time_s": "f8",
          "cost": "f8", "power": "i8", "where": "i4"}  # fmt: skip
"""What is known of every attempt."""

_TRAINED = {"row": "i8", "batch_size": "i8", "power_limit_w": "f8", "epochs": "i8",
            "attempt": "i4", "flags": "i1"}  # fmt: skip
"""What is known of those of which something was chosen."""

_DELAYED = {"row": "i8", "overhead_s": "f8", "preemptions": "i4"}
"""What is known of those that were preempted, or had to wait on their GPUs."""

_PAUSED = {"number": "i8", "from_s": "f8", "to_s": "f8"}
"""Preemptions: which job, and when it lost its GPUs and went on."""

_CHANGED = {"time_s": "f8", "change": "i8"}
"""Changes of power."""

_DECIDED = {"time_s": "f8", "number": "i8", "seen": "i8", "also_seen": "i8", "attempt": "i4",
            "chose": "i4", "maker": "i1"}  # fmt: skip
"""Decisions."""

BUFFER_BYTES = 1 << 18
"""Rows are moved to a part of their own when so many bytes of them were written."""

_DEFAULTS: dict[str, float] = {"attempt": 1, "batch_size": ABSENT, "power_limit_w": math.nan,
                               "epochs": ABSENT, "flags": REACHED}  # fmt: skip


class _Rows:
    """Rows of numbers, appended one by one, read as columns.

    Args:
        codes: Name and type of each column, in the order in which `writer` is given them; as NumPy
            codes them, little-endian.

    Attributes:
        writer: Takes the numbers of a row; compiled code writes them without making objects of
            them. Then comes `wrote`.
    """

    def __init__(self, codes: Mapping[str, str]) -> None:
        self.writer = BytesWriter()
        self._parts: list[bytes] = []
        self._type = np.dtype([(name, f"<{code}") for name, code in codes.items()])
        self._row_bytes: int = self._type.itemsize
        self._moved = 0

    def __len__(self) -> int:
        return self._moved + len(self.writer) // self._row_bytes

    def wrote(self) -> None:
        """A row is complete."""
        if len(self.writer) >= BUFFER_BYTES:
            self._move()

    def _move(self) -> None:
        self._moved += len(self.writer) // self._row_bytes
        self._parts.append(self.writer.getvalue())
        self.writer = BytesWriter()

    def __contains__(self, name: str) -> bool:
        return name in (self._type.names or ())

    def parts(self) -> list[npt.NDArray[Any]]:
        """All rows, in parts that a processor's cache holds; at least one."""
        if len(self.writer) or not self._parts:
            self._move()
        return [np.frombuffer(part, self._type) for part in self._parts]

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column, shape (rows,)."""
        return np.concatenate([part[name] for part in self.parts()])


class Journal(DecisionJournal):
    """Decisions in order, as columns.

    That a job starts is decided by `Select` and `Place` together, and written down once: as a
    choice of `Select` that is a placement.

    Attributes:
        makers: Decision point and policy, one a decision point.
        choices: What was chosen, and its index; a placement, or a text.
    """

    def __init__(self) -> None:
        self.makers: list[tuple[str, str]] = []
        self._points: list[str] = []
        self.choices: dict[Placement | str, int] = {}
        self._on_one_node: dict[int, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the decisions."""
        self._rows = _Rows(_DECIDED)

    def add_maker(self, point: str, policy: str) -> None:
        """Add the policy of a decision point."""
        self.makers.append((point, policy))
        self._points.append(point)

    def maker_of(self, point: str) -> int:
        """The index of a decision point's policy."""
        return self._points.index(point)

    def choice(self, chose: Placement | str) -> int:
        """The index of a choice."""
        return self.choices.setdefault(chose, len(self.choices))

    def placed(self, placement: Placement) -> int:
        """The index of a placement; where that is on one node, it is found by a number."""
        node, gpus, gpu = placement[0]
        if gpu != NEW or len(placement) > 1:
            return self.choice(placement)
        code = node << 32 | gpus
        found = self._on_one_node.get(code)
        if found is None:
            found = self._on_one_node[code] = self.choice(placement)
        return found

    def add(
        self,
        now_s: float,
        maker: int,
        number: int,
        attempt: int,
        chose: int,
        seen: int,
        also_seen: int = 0,
    ) -> None:
        """Write down a decision about a job; what the policy saw are two numbers, or a digest.

        Of a start, `Select` saw how many jobs waited and how many GPUs were free.
        """
        row = self._rows.writer
        write_f64_le(row, now_s)
        write_i64_le(row, number)
        write_i64_le(row, seen)
        write_i64_le(row, also_seen)
        write_i32_le(row, attempt)
        write_i32_le(row, chose)
        row.append(maker)
        self._rows.wrote()

    def note(
        self,
        now_s: float,
        point: str,
        job: Job,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """See `wattkeeper.sim.attempts.decisions.DecisionJournal`."""
        self.add(
            now_s, self.maker_of(point), job.number, attempt, self.choice(chose), digest_of(saw)
        )

    def decisions(self, gpus_of: Callable[[Ints], Ints]) -> dict[str, npt.NDArray[Any]]:
        """The decisions, those of a start one by one, as columns.

        Args:
            gpus_of: Gives the GPUs of jobs by their number.

        Returns:
            `time_s`, `maker` (index into `makers`), `number`, `attempt`, `chose` (index into
            `choices`) and `saw`: a digest of 64 bits of time, job, attempt, and what was shown:
            to `Place` the GPUs of the job, and how many are free.
        """
        self.choice("start")
        places = np.array([not isinstance(choice, str) for choice in self.choices], dtype=bool)
        parts = [self._decided(raw, places, gpus_of) for raw in self._rows.parts()]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _decided(
        self, raw: npt.NDArray[Any], places: npt.NDArray[np.bool_], gpus_of: Callable[[Ints], Ints]
    ) -> dict[str, npt.NDArray[Any]]:
        """The decisions of some rows."""
        starts = places[raw["chose"]]
        columns = {name: np.repeat(raw[name], 1 + starts) for name in _DECIDED}
        placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
        columns["chose"][placed - 1] = self.choice("start")
        columns["maker"][placed] = self.maker_of("place")
        columns["seen"][placed] = gpus_of(columns["number"][placed])
        digest = np.zeros(len(columns["time_s"]), dtype=np.uint64)
        for name in ("time_s", "number", "attempt", "seen", "also_seen"):
            values = columns.pop(name) if name.endswith("seen") else columns[name]
            wide = values.astype(np.int64) if values.dtype.kind == "i" else values
            digest = _mixed(digest ^ _mixed(wide.view(np.uint64)))
        return columns | {"saw": digest}


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection of 64 bits that spreads every bit (SplitMix64; Steele et al., OOPSLA '14)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def digest_of(seen: object) -> int:
    """A digest of what is no number, as a signed integer of 64 bits."""
    return int.from_bytes(blake2b(repr(seen).encode(), digest_size=8).digest(), "big", signed=True)


class Recorder:
    """Collects attempts, decisions and changes of power.

    Attributes:
        journal: Decisions.
        parents: The parent of each attempt that had one, by the attempt's row.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self.clear()

    def clear(self) -> None:
        """Forget all but the journal."""
        self.parents: dict[int, str] = {}
        self._ended = _Rows(_ENDED)
        self._trained = _Rows(_TRAINED)
        self._delayed = _Rows(_DELAYED)
        self._paused = _Rows(_PAUSED)
        self._changed = _Rows(_CHANGED)

    def ended(
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
        """An attempt is over.

        Args:
            number: Of the job, by which its source knows it.
            begun_s: When it first held its GPUs.
            ended_s: When it gave them back.
            energy_j: Of training, with overheads.
            time_s: Of training.
            cost: J.
            where: Its last placement, by its index in the journal.
            power: What it drew beyond idle GPUs all the while, in `UNITS_PER_WATT`, but for the
                changes that `drew` was told.
        """
        row = self._ended.writer
        write_i64_le(row, number)
        write_f64_le(row, begun_s)
        write_f64_le(row, ended_s)
        write_f64_le(row, energy_j)
        write_f64_le(row, time_s)
        write_f64_le(row, cost)
        write_i64_le(row, power)
        write_i32_le(row, where)
        self._ended.wrote()

    def trained(
        self, attempt: int, batch_size: int, power_limit_w: float, epochs: int, flags: int
    ) -> None:
        """Of the attempt that ended last something was chosen.

        Args:
            attempt: 1 for the first try of the job, and so on.
            batch_size: What it ran with.
            power_limit_w: What it ran with at last.
            epochs: How many it did.
            flags: `REACHED`, `EARLY`, `PROFILED`, `REPLAYED`.
        """
        row = self._trained.writer
        write_i64_le(row, self.attempts - 1)
        write_i64_le(row, batch_size)
        write_f64_le(row, power_limit_w)
        write_i64_le(row, epochs)
        write_i32_le(row, attempt)
        row.append(flags)
        self._trained.wrote()

    def delayed(self, overhead_s: float, preemptions: int) -> None:
        """The attempt that ended last held its GPUs so long without training, or lost them."""
        row = self._delayed.writer
        write_i64_le(row, self.attempts - 1)
        write_f64_le(row, overhead_s)
        write_i32_le(row, preemptions)
        self._delayed.wrote()

    def inherited(self, parent: str) -> None:
        """The attempt that ended last had started from the weights of a stored model."""
        self.parents[self.attempts - 1] = parent

    @property
    def attempts(self) -> int:
        """How many ended."""
        return len(self._ended)

    def drew(self, now_s: float, change: int) -> None:
        """Power changed in the midst of an attempt, or of a node that sleeps or wakes."""
        row = self._changed.writer
        write_f64_le(row, now_s)
        write_i64_le(row, change)
        self._changed.wrote()

    def column(self, name: str) -> npt.NDArray[Any]:
        """What `ended`, `trained` or `delayed` were told, by attempt, shape (attempts,)."""
        if name in self._ended:
            return self._ended.column(name)
        some = self._trained if name in self._trained else self._delayed
        values = some.column(name)
        full = np.full(self.attempts, _DEFAULTS.get(name, 0), dtype=values.dtype)
        full[some.column("row")] = values
        return full

    def paused(self, number: int, from_s: float, to_s: float) -> None:
        """A job, by its number, was preempted and goes on, s."""
        row = self._paused.writer
        write_i64_le(row, number)
        write_f64_le(row, from_s)
        write_f64_le(row, to_s)
        self._paused.wrote()

    def pauses(self) -> tuple[Ints, Floats, Floats]:
        """Number of the job, from and to of each preemption, shapes (pauses,)."""
        rows = self._paused
        return rows.column("number"), rows.column("from_s"), rows.column("to_s")

    def changes(self) -> tuple[Floats, Ints]:
        """When power changed and by how much, shapes (changes,)."""
        return self._changed.column("time_s"), self._changed.column("change")
