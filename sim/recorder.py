"""What a run leaves behind while it runs: growing columns of plain numbers."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.protocols import Placement

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNITS_PER_WATT = 2**32
"""Power is counted in whole parts of a watt, so that sums of changes are exact up to 2 GW."""

MOST_UNITS = 2**62

REACHED, EARLY, PROFILED, REPLAYED = 1, 2, 4, 8
"""Flags of an attempt; `REPLAYED`: from a profile."""

ABSENT = -1


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt."""
    return round(power_w * UNITS_PER_WATT)


_COLUMNS = {
    "number": "q",
    "attempt": "i",
    "begun_s": "d",
    "ended_s": "d",
    "energy_j": "d",
    "time_s": "d",
    "cost": "d",
    "overhead_s": "d",
    "batch_size": "q",
    "power_limit_w": "d",
    "epochs": "q",
    "flags": "b",
    "preemptions": "i",
    "gpu_type": "b",
    "where": "i",
}


class Journal:
    """Decisions in order, as columns.

    Attributes:
        time_s: When each was made.
        maker: Index into `makers`.
        number: Of the job that it is about.
        attempt: Of the job.
        chose: Index into `choices`.
        makers: Decision point and policy.
        choices: What was chosen; a placement, or a text.
    """

    def __init__(self) -> None:
        self.time_s = array("d")
        self.maker = array("b")
        self.number = array("q")
        self.attempt = array("i")
        self.chose = array("i")
        self.makers: list[tuple[str, str]] = []
        self.choices: dict[Placement | str, int] = {}
        self._seen, self._also_seen = array("q"), array("q")

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
        """Write down a decision; what the policy saw are two numbers, or a digest."""
        self.time_s.append(now_s)
        self.maker.append(maker)
        self.number.append(number)
        self.attempt.append(attempt)
        self.chose.append(chose)
        self._seen.append(seen)
        self._also_seen.append(also_seen)

    def saw(self) -> npt.NDArray[np.uint64]:
        """Digests (64 bits) of what was seen: time, job, attempt, and what the point was shown."""
        digest = np.zeros(len(self.time_s), dtype=np.uint64)
        for column in (self.time_s, self.number, self.attempt, self._seen, self._also_seen):
            values = np.frombuffer(column, dtype=column.typecode)
            digest = _mixed(digest ^ _mixed(values.astype(_WIDE.get(column.typecode, values.dtype))
                                            .view(np.uint64)))  # fmt: skip
        return digest


_WIDE = {"i": np.int64}


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
        columns: What `ended` is told, in order of ending; placements and GPU types by index.
        journal: Decisions.
        placements: Where attempts ran, and its index.
        gpu_types: What they ran on, and its index.
        change_s: When the power that jobs draw changed; ascending but for sleeping nodes.
        change: By how much, in `UNITS_PER_WATT`; beyond what the GPUs would draw idle.
        pauses: Preemptions: number of the job, from and to, s.
    """

    def __init__(self) -> None:
        self.columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._appends: tuple[Any, ...] = tuple(c.append for c in self.columns.values())
        self.journal = Journal()
        self.placements: dict[Placement, int] = {}
        self.gpu_types: dict[str, int] = {}
        self.change_s, self.change = array("d"), array("q")
        self.pauses: list[tuple[int, float, float]] = []

    def ended(
        self,
        number: int,
        attempt: int,
        begun_s: float,
        ended_s: float,
        energy_j: float,
        time_s: float,
        cost: float,
        overhead_s: float,
        batch_size: int,
        power_limit_w: float,
        epochs: int,
        flags: int,
        preemptions: int,
        gpu_type: str,
        placement: Placement,
    ) -> None:
        """An attempt is over.

        Args:
            number: Of the job, by which its source knows it.
            attempt: 1 for the first try, and so on.
            begun_s: When it first held its GPUs.
            ended_s: When it gave them back.
            energy_j: Of training, with overheads.
            time_s: Of training.
            cost: J.
            overhead_s: Held GPUs without training: waking, waiting for a checkpoint, restoring.
            batch_size: `ABSENT` if there was nothing to choose.
            power_limit_w: NaN if there was nothing to choose.
            epochs: `ABSENT` if nobody counted.
            flags: `REACHED`, `EARLY`, `PROFILED`, `REPLAYED`.
            preemptions: How often it lost its GPUs.
            gpu_type: Where it ended.
            placement: Where it ended.
        """
        kind = self.gpu_types.setdefault(gpu_type, len(self.gpu_types))
        where = self.placements.setdefault(placement, len(self.placements))
        (a, b, c, d, e, f, g, h, i, j, k, m, n, o, p) = self._appends
        a(number), b(attempt), c(begun_s), d(ended_s), e(energy_j), f(time_s), g(cost)
        h(overhead_s), i(batch_size), j(power_limit_w), k(epochs), m(flags), n(preemptions)
        o(kind), p(where)

    def drew(self, now_s: float, change: int) -> None:
        """Power changed."""
        self.change_s.append(now_s)
        self.change.append(change)

    def column(self, name: str) -> npt.NDArray[Any]:
        """One of `columns` as an array, shape (attempts,)."""
        values = self.columns[name]
        return np.frombuffer(values, dtype=values.typecode)

    def changes(self) -> tuple[Floats, Ints]:
        """When power changed and by how much, shapes (changes,).

        Raises:
            OverflowError: If jobs drew more than can be summed exactly.
        """
        change = np.frombuffer(self.change, dtype=np.int64)
        if (
            len(change)
            and np.abs(change.astype(float)).sum() > 2 * MOST_UNITS
            and (np.abs(np.cumsum(change.astype(float))).max() > MOST_UNITS)
        ):
            raise OverflowError(f"more than {MOST_UNITS // UNITS_PER_WATT / 1e9:g} GW")
        return np.frombuffer(self.change_s), change
