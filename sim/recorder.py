"""What a run leaves behind while it runs: growing columns of plain numbers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import Placement

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNITS_PER_WATT = 2**32
"""Power is counted in whole parts of a watt, so that sums of changes are exact up to 1 GW."""

MOST_UNITS = 2**62

REACHED, EARLY, PROFILED, REPLAYED = 1, 2, 4, 8
"""Flags of an attempt; `REPLAYED`: from a profile."""

ABSENT = -1


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt.

    Raises:
        InputError: If it is more than can be summed exactly.
    """
    units = round(power_w * UNITS_PER_WATT)
    if units > MOST_UNITS:
        raise too_much()
    return units


def too_much() -> InputError:
    """What to say of power that cannot be summed exactly."""
    most_gw = MOST_UNITS / UNITS_PER_WATT / 1e9
    return InputError(f"GPUs draw more than {most_gw:.2f} GW: check their power and the profiles")


_EVERY = {
    "number": "q",
    "begun_s": "d",
    "ended_s": "d",
    "energy_j": "d",
    "time_s": "d",
    "cost": "d",
    "where": "i",
    "power": "q",
}
"""What is known of every attempt."""

_TRAINED = {"attempt": "i", "batch_size": "q", "power_limit_w": "d", "epochs": "q", "flags": "b"}
"""What is known of those of which something was chosen."""

_DELAYED = {"overhead_s": "d", "preemptions": "i"}
"""What is known of those that were preempted, or had to wait on their GPUs."""

_DEFAULTS: dict[str, float] = {"attempt": 1, "batch_size": ABSENT, "power_limit_w": math.nan,
                               "epochs": ABSENT, "flags": REACHED}  # fmt: skip


class Journal:
    """Decisions in order, as columns.

    That a job starts is decided by `Select` and `Place` together, and written down once: as a
    choice of `Select` that is a placement.

    Attributes:
        makers: Decision point and policy.
        choices: What was chosen, and its index; a placement, or a text.
    """

    def __init__(self) -> None:
        self.makers: list[tuple[str, str]] = []
        self.choices: dict[Placement | str, int] = {}
        self._columns = {name: array(code) for name, code in _DECISION.items()}
        self._appends: tuple[Any, ...] = tuple(c.append for c in self._columns.values())

    def maker_of(self, point: str, policy: str) -> int:
        """The index of a decision point's policy."""
        self.makers.append((point, policy))
        return len(self.makers) - 1

    def choice(self, chose: Placement | str) -> int:
        """The index of a choice."""
        return self.choices.setdefault(chose, len(self.choices))

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
        a, b, c, d, e, f, g = self._appends
        a(now_s), b(maker), c(number), d(attempt), e(chose), f(seen), g(also_seen)

    def decisions(self, gpus_of: Callable[[Ints], Ints]) -> dict[str, npt.NDArray[Any]]:
        """The decisions, those of a start one by one, as columns.

        Args:
            gpus_of: Gives the GPUs of jobs by their number.

        Returns:
            `time_s`, `maker` (index into `makers`), `number`, `attempt`, `chose` (index into
            `choices`) and `saw`: a digest of 64 bits of time, job, attempt, and what was shown:
            to `Place` the GPUs of the job, and how many are free.
        """
        raw = {name: _as_array(values) for name, values in self._columns.items()}
        places = np.array([not isinstance(choice, str) for choice in self.choices], dtype=bool)
        starts = places[raw["chose"]] if len(places) else np.zeros(0, dtype=bool)
        columns = {name: np.repeat(values, 1 + starts) for name, values in raw.items()}
        placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
        columns["chose"][placed - 1] = self.choice("start")
        columns["maker"][placed] = [point for point, _ in self.makers].index("place")
        columns["seen"][placed] = gpus_of(columns["number"][placed])
        digest = np.zeros(len(columns["time_s"]), dtype=np.uint64)
        for name in ("time_s", "number", "attempt", "seen", "also_seen"):
            values = columns.pop(name) if name.endswith("seen") else columns[name]
            wide = values.astype(np.int64) if values.dtype.kind == "i" else values
            digest = _mixed(digest ^ _mixed(wide.view(np.uint64)))
        return columns | {"saw": digest}


_DECISION = {
    "time_s": "d",
    "maker": "b",
    "number": "q",
    "attempt": "i",
    "chose": "i",
    "seen": "q",
    "also_seen": "q",
}


def _as_array(values: array[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(values, dtype=values.typecode)


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
        pauses: Preemptions: number of the job, from and to, s.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self._change_s, self._change = array("d"), array("q")
        self.pauses: list[tuple[int, float, float]] = []
        self._every = {name: array(code) for name, code in _EVERY.items()}
        self._appends: tuple[Any, ...] = tuple(c.append for c in self._every.values())
        self._sparse = [_Sparse(_TRAINED), _Sparse(_DELAYED)]

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
        a, b, c, d, e, f, g, h = self._appends
        a(number), b(begun_s), c(ended_s), d(energy_j), e(time_s), f(cost), g(where), h(power)

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
        self._sparse[0].add(self.attempts - 1, attempt, batch_size, power_limit_w, epochs, flags)

    def delayed(self, overhead_s: float, preemptions: int) -> None:
        """The attempt that ended last held its GPUs so long without training, or lost them."""
        self._sparse[1].add(self.attempts - 1, overhead_s, preemptions)

    @property
    def attempts(self) -> int:
        """How many ended."""
        return len(self._every["number"])

    def drew(self, now_s: float, change: int) -> None:
        """Power changed in the midst of an attempt, or of a node that sleeps or wakes."""
        self._change_s.append(now_s)
        self._change.append(change)

    def column(self, name: str) -> npt.NDArray[Any]:
        """What `ended`, `trained` or `delayed` were told, by attempt, shape (attempts,)."""
        if name in self._every:
            return _as_array(self._every[name])
        (sparse,) = (s for s in self._sparse if name in s.columns)
        return sparse.column(name, self.attempts)

    def changes(self) -> tuple[Floats, Ints]:
        """When power changed and by how much, shapes (changes,)."""
        return _as_array(self._change_s), _as_array(self._change)


class _Sparse:
    """Columns that few attempts have a value in."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        self.columns: dict[str, array[Any]] = {name: array(code) for name, code in codes.items()}
        self._rows = array("q")

    def add(self, row: int, *values: float) -> None:
        self._rows.append(row)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def column(self, name: str, size: int) -> npt.NDArray[Any]:
        values = _as_array(self.columns[name])
        full = np.full(size, _DEFAULTS.get(name, 0), dtype=values.dtype)
        full[_as_array(self._rows)] = values
        return full
