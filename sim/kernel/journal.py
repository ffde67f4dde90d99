"""The journal of a run: every decision, with what its policy saw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.sim.kernel.decision import DecisionRow
from wattkeeper.sim.kernel.packed import write_f64_le, write_i32_le, write_i64_le
from wattkeeper.sim.kernel.rows import Rows
from wattkeeper.sim.kernel.spool import Spool

if TYPE_CHECKING:
    from wattkeeper.policies.registry import Point

ChoiceT = TypeVar("ChoiceT", bound=Hashable)

Columns = dict[str, npt.NDArray[Any]]
"""Columns of one length, by name."""

MOST_CHARACTERS: Final = 2000
"""Of a text whose digest is remembered; views of large clusters print longer ones."""


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
        subject: int,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """Take down a decision about an attempt at a subject: a job, a round, a batch.

        It was made at `now_s`, s. `saw` is what the policy was shown; its `repr` is the same in
        every run.
        """


class Journal(DecisionJournal, Generic[ChoiceT]):
    """Decisions in order, as columns.

    Attributes:
        makers: Decision point and policy, one entry per decision point.
        choices: Index of each choice: a text, or a value that the engine formats as one.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.makers: list[tuple[str, str]] = []
        self._maker_of: dict[str, int] = {}
        self.choices: dict[ChoiceT | str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the decisions."""
        self._rows = Rows(DecisionRow, self._spool)

    @override
    def add_maker(self, point: str, policy: str) -> None:
        self._maker_of.setdefault(point, len(self.makers))
        self.makers.append((point, policy))

    def maker_of(self, point: str) -> int:
        """The index of a decision point's policy."""
        return self._maker_of[point]

    def index_choice(self, chose: ChoiceT | str) -> int:
        """The index of a choice; a new choice gets the next one."""
        return self.choices.setdefault(chose, len(self.choices))

    def add(
        self,
        now_s: float,
        maker: int,
        subject: int,
        attempt: int,
        chose: int,
        seen: int,
        also_seen: int = 0,
    ) -> None:
        """Add a `DecisionRow`."""
        row = self._rows.writer
        write_f64_le(row, now_s)
        write_i64_le(row, subject)
        write_i64_le(row, seen)
        write_i64_le(row, also_seen)
        write_i32_le(row, attempt)
        write_i32_le(row, chose)
        row.append(maker)
        self._rows.end_row()

    @override
    def note(
        self,
        now_s: float,
        point: str,
        subject: int,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        maker, choice = self.maker_of(point), self.index_choice(chose)
        self.add(now_s, maker, subject, attempt, choice, digest_of(saw))

    def decisions(self) -> Iterator[Columns]:
        """The decisions as columns, in parts; at least one part.

        Returns:
            `time_s`, `subject`, `attempt`, `chose` (index into `choices`), `maker` (index into
            `makers`), and `saw`: a digest of 64 bits of time, subject, attempt, and what the policy
            was shown.
        """
        return map(digest_views, self.rows())

    def rows(self) -> Iterator[Columns]:
        """The columns of `DecisionRow`, in parts too, with `saw`: not yet of what was shown."""
        for block in self._rows.blocks():
            columns = {name: block[name] for name in DecisionRow._fields}
            saw = np.zeros(block.rows, dtype=np.uint64)
            for name in ("time_s", "subject", "attempt"):
                saw = _add_to_digest(saw, columns[name])
            yield columns | {"saw": saw}


def digest_views(rows: Columns) -> Columns:
    """The columns of `Journal.rows`, with what was shown in `saw` alone."""
    for name in ("seen", "also_seen"):
        rows["saw"] = _add_to_digest(rows["saw"], rows.pop(name))
    return rows


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
