"""The journal of a run: every decision, with what its policy saw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from mypy_extensions import i64, mypyc_attr

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.sim.kernel.packed import append, vec, write_f64_le, write_i32_le, write_i64_le
from wattkeeper.sim.kernel.rows import ABSENT, Rows
from wattkeeper.sim.kernel.spool import Spool, SpooledBlock

if TYPE_CHECKING:
    from wattkeeper.policies.registry import Point


@mypyc_attr(allow_interpreted_subclasses=True)
class DecisionJournal:
    """Takes down what policies decide."""

    def add_maker(self, point: str, policy: str) -> None:
        """Add the policy of a decision point, before it decides."""
        return

    @abstractmethod
    def note(
        self,
        now_s: float,
        point: Point,
        job: Job,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """Take down a decision about an attempt of a job.

        It was made at `now_s`, s. `saw` is what the policy was shown; its `repr` is the same in
        every run.
        """


_DECIDED = {
    "time_s": "f8",
    "number": "i8",
    "seen": "i8",
    "also_seen": "i8",
    "attempt": "i4",
    "chose": "i4",
    "maker": "i1",
}
"""Columns of decisions."""

MOST_CHARACTERS: Final = 2000
"""Of a text whose digest is remembered; views of large clusters print longer ones."""

FEW_GPUS: Final = 16
"""Placements of fewer GPUs on one node are found by their numbers."""


class Journal(DecisionJournal):
    """Decisions in order, as columns.

    The start of a job is decided by `Select` and `Place` together and stored as one row: a choice
    of `Select` that is a placement.

    Attributes:
        makers: Decision point and policy, one entry per decision point.
        choices: Index of each choice, a placement or a text.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.makers: list[tuple[str, str]] = []
        self._points: list[str] = []
        self.choices: dict[Placement | str, int] = {}
        self._on_one_node = vec[i64]()
        self.clear()

    def clear(self) -> None:
        """Forget the decisions."""
        self._rows = Rows(_DECIDED, self._spool)

    def add_maker(self, point: str, policy: str) -> None:
        """See `wattkeeper.sim.kernel.journal.DecisionJournal`."""
        self.makers.append((point, policy))
        self._points.append(point)

    def maker_of(self, point: str) -> int:
        """The index of a decision point's policy."""
        return self._points.index(point)

    def index_choice(self, chose: Placement | str) -> int:
        """The index of a choice; a new choice gets the next one."""
        return self.choices.setdefault(chose, len(self.choices))

    def index_placement(self, placement: Placement) -> int:
        """The index of a placement; one of a few whole GPUs of one node is found by its numbers."""
        node, gpus, gpu = placement[0]
        if gpu != NEW or len(placement) > 1 or gpus >= FEW_GPUS:
            return self.index_choice(placement)
        row: i64 = node * FEW_GPUS + gpus
        while row >= len(self._on_one_node):
            self._on_one_node = append(self._on_one_node, ABSENT)
        known = self._on_one_node[row]
        if known == ABSENT:
            known = self._on_one_node[row] = self.index_choice(placement)
        return known

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
        """Add a decision about a job; what the policy saw is two numbers, or a digest.

        For a start, `Select` saw the number of waiting jobs and of free GPUs.
        """
        row = self._rows.writer
        write_f64_le(row, now_s)
        write_i64_le(row, number)
        write_i64_le(row, seen)
        write_i64_le(row, also_seen)
        write_i32_le(row, attempt)
        write_i32_le(row, chose)
        row.append(maker)
        self._rows.end_row()

    def note(
        self, now_s: float, point: str, job: Job, attempt: int, saw: tuple[object, ...], chose: str
    ) -> None:
        """See `wattkeeper.sim.kernel.journal.DecisionJournal`."""
        maker, choice = self.maker_of(point), self.index_choice(chose)
        self.add(now_s, maker, job.number, attempt, choice, digest_of(saw))

    def decisions(self, gpus_of: Callable[[Ints], Ints]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The decisions as columns, in parts; those of a start in two rows: `Select`, then `Place`.

        Args:
            gpus_of: Returns the GPUs of jobs by their number.

        Returns:
            `time_s`, `maker` (index into `makers`), `number`, `attempt`, `chose` (index into
            `choices`) and `saw`: a digest of 64 bits of time, job, attempt, and the policy's view:
            for `Place` the GPUs of the job, and the number of free ones.
        """
        self.index_choice("start")
        places = np.array([not isinstance(choice, str) for choice in self.choices], dtype=bool)
        for block in self._rows.blocks():
            yield self._expand(block, places, gpus_of)

    def _expand(
        self, block: SpooledBlock, places: npt.NDArray[np.bool_], gpus_of: Callable[[Ints], Ints]
    ) -> dict[str, npt.NDArray[Any]]:
        """The decisions of some rows, each start in two rows."""
        raw = {name: block[name] for name in _DECIDED}
        digest = np.zeros(block.rows, dtype=np.uint64)
        for name in ("time_s", "number", "attempt"):
            digest = _add_to_digest(digest, raw[name])
        starts = places[raw["chose"]]
        raw["saw"] = digest
        columns = {name: np.repeat(values, 1 + starts) for name, values in raw.items()}
        placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
        columns["chose"][placed - 1] = self.index_choice("start")
        columns["maker"][placed] = self.maker_of("place")
        columns["seen"][placed] = gpus_of(columns["number"][placed])
        for name in ("seen", "also_seen"):
            columns["saw"] = _add_to_digest(columns["saw"], columns.pop(name))
        return columns


def _add_to_digest(
    digest: npt.NDArray[np.uint64], values: npt.NDArray[Any]
) -> npt.NDArray[np.uint64]:
    """Digests of 64 bits with one more column."""
    wide = values.astype(np.int64) if values.dtype.kind == "i" else values.copy()
    mixed = _mix(wide.view(np.uint64))
    mixed ^= digest
    return _mix(mixed)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection of 64 bits that spreads every bit (SplitMix64; Steele et al., OOPSLA '14).

    The values are replaced.
    """
    values += np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def digest_of(seen: object) -> int:
    """A digest of values that are not numbers, as a signed integer of 64 bits."""
    text = repr(seen)
    return _remembered_digest(text) if len(text) <= MOST_CHARACTERS else _digest_of_text(text)


@lru_cache(maxsize=1 << 12)
def _remembered_digest(text: str) -> int:
    """Many decisions, such as those of the first job of a group, see the same short text."""
    return _digest_of_text(text)


def _digest_of_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
