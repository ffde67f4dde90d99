"""Signals: named series of values over time, as a policy sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wattkeeper.policies.arrays import Floats


class SignalView(Protocol):
    """A signal as far as it is known now; values are constant within a slot.

    Times are in seconds since the start of the run, values in the signal's unit.
    """

    @property
    def unit(self) -> str:
        """Unit of the values."""

    @property
    def slot_s(self) -> float:
        """Length of all slots, s; NaN if they differ."""

    @property
    def value(self) -> float:
        """Value of the present slot."""

    @property
    def since_s(self) -> float:
        """Start of the present slot, s; negative infinity if it has none."""

    @property
    def until_s(self) -> float:
        """End of the present slot, s; infinite if it has none."""

    def history(self, slots: int) -> Floats:
        """Values of the last slots, the oldest first and the present one last.

        Values before the start of the run are included. Shape (n,), where n is `slots`, or as many
        as are known.
        """

    def forecast(self, slots: int) -> Floats:
        """Forecast of the present slot, first, and of those after it; shape (slots,).

        Raises:
            PolicyError: If the slots differ in length, or too little history is known.
        """
