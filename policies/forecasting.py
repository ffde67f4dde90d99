"""Forecasts of signals: what they know, what they answer, and their configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.parts import FORECASTS, Part, register

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.arrays import Floats

DAY_S = 86_400.0


class KnownSignal(NamedTuple):
    """What is known of a signal in one slot.

    Attributes:
        values: By slot, oldest first; the last one is that of the present slot. Shape (known,).
        slot_s: Length of a slot, s.
        slot: Number of the present slot; slot 0 is that of second 0 of the run, so that all values
            but the last ``slot + 1`` lie before the run.
        truth: True values of the present slot and of those after it; None unless the forecast's
            config has `needs_foresight`.
        rng: Makes a random stream that depends on seed, signal and slot alone; None where
            `truth` is None.
    """

    values: Floats
    slot_s: float
    slot: int = 0
    truth: Floats | None = None
    rng: Callable[[], np.random.Generator] | None = None

    @property
    def slots_per_day(self) -> int:
        """Number of slots of a day."""
        return round(DAY_S / self.slot_s)


class Forecast(ABC):
    """Predicts a signal."""

    @abstractmethod
    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """Values of the present slot and of those after it, shape (slots,).

        The present value is known, and most forecasts return it as the first one; one that does
        not is one of a policy that decides before the value of the slot is known.

        Raises:
            PolicyError: If what is known does not suffice.
        """


class ForecastConfig(Part):
    """Base of all configs of forecasts."""

    forecast: ClassVar[type[Any]]
    """The forecast's class; constructed with the config if that has settings."""
    needs_foresight: ClassVar[bool] = False
    """Whether it reads the truth: possible in a simulation only."""
    assumption: ClassVar[str] = ""
    """What results say of a forecast that reads the truth."""
    daily: ClassVar[bool] = False
    """Whether slots must have one length, of which a day is a multiple."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class under its kind."""
        super().__pydantic_init_subclass__(**kwargs)
        if not isinstance(cls.model_fields["kind"].default, str):
            raise PolicyError(f"{cls.__module__}.{cls.__qualname__} needs a name (`kind`)")
        register(FORECASTS, FORECASTS, cls)

    def check(self, signal: str, slot_s: float, before: int) -> None:
        """Check that the config suits a signal before a run starts.

        Args:
            signal: Its name.
            slot_s: Length of its slots, s; not a number if they differ.
            before: Number of its slots that are known before second 0 of the run.

        Raises:
            InputError: If it does not.
        """
        if self.daily and not _divides_day(slot_s):
            found = f"{slot_s:g} s" if slot_s == slot_s else "of different lengths"
            raise InputError(
                f"the forecast {self.kind!r} of the signal {signal!r} needs slots of one length "
                f"that divides a day; its slots are {found}"
            )

    def build(self) -> Any:
        """Build the forecast with this config."""
        return self.forecast(self) if len(type(self).model_fields) > 1 else self.forecast()


def _divides_day(slot_s: float) -> bool:
    return 0 < slot_s <= DAY_S and abs(DAY_S / slot_s - round(DAY_S / slot_s)) < 1e-9
