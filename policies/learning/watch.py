"""Notices a change of epochs over time (cumulative sums; Page, Biometrika 1954)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

DRIFT: Final = 0.75
ALARM: Final = 6.0
LARGEST_Z: Final = 4.0
BEGUN: Final = 1.0
"""Sums of standardised results, less `DRIFT` each, above `ALARM` say that epochs changed: with the
run after which the sum was `BEGUN` at most for the last time."""
RECENT: Final = 20
"""So many runs are kept at most, to be told from those before a change."""


class EndedRun(NamedTuple):
    """A run that ended.

    Attributes:
        batch_size: Its batch size.
        epochs: How many it took, or how far it came.
        reached: Whether it reached the target.
    """

    batch_size: int
    epochs: float
    reached: bool


class ChangeWatch:
    """Watches for results that are larger, or smaller, than expected again and again."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0]
        self._since = [0, 0]
        self._recent: list[EndedRun] = []

    def add(self, run: EndedRun, z: float | None) -> Sequence[EndedRun]:
        """The runs that came after a change, once one is noticed; else none.

        Args:
            run: The run.
            z: By how many deviations it took longer than expected, or, if it did not reach the
                target, at least; None: nothing was expected.
        """
        self._recent = [*self._recent, run][-RECENT:]
        for index, sign in enumerate((1, -1)):
            if z is not None and (run.reached or not index):
                grown = self._sums[index] + min(sign * z, LARGEST_Z) - DRIFT
                self._sums[index] = max(0.0, grown)
            is_growing = self._sums[index] > BEGUN
            self._since[index] = self._since[index] + 1 if is_growing else 0
        most = max(self._sums)
        if most <= ALARM:
            return ()
        since = self._since[self._sums.index(most)]
        self._sums, self._since = [0.0, 0.0], [0, 0]
        return self._recent[-since:]

    def state_dict(self) -> dict[str, Any]:
        """The sums and runs as JSON values."""
        recent = [list(run) for run in self._recent]
        return {"sums": [*self._sums], "since": [*self._since], "recent": recent}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ChangeWatch:
        """What `state_dict` returned."""
        watch = cls()
        watch._sums, watch._since = list(state["sums"]), list(state["since"])
        watch._recent = [EndedRun(*run) for run in state["recent"]]
        return watch
