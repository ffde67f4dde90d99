"""The section of scenario files on prices and emissions of electricity."""

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from wattkeeper.scenarios.spec.sections.section import LARGEST, Section
from wattkeeper.scenarios.spec.sections.values import Currency
from wattkeeper.traces.files.names import LONGEST
from wattkeeper.traces.times.zones import find_zone


def _check_zone(name: str) -> str:
    try:
        find_zone(name)
    except ValueError as error:
        raise ValueError(f"{name[:LONGEST]!r} {error}") from None
    return name


def check_offset(moment: datetime) -> datetime:
    """Refuse a date without its offset from UTC."""
    if moment.tzinfo is None:
        raise ValueError("a date with its offset from UTC is needed, as 2024-01-31T00:00:00+01:00")
    return moment


NO_CURRENCY: Final = "currency: needed with a price that is a number"


class RateFile(Section):
    """A file of prices or carbon intensities over time; see docs/electricity.md."""

    file: Annotated[str, Field(min_length=1)]
    """Its path, relative to the scenario's file: CSV, JSON, XML or Parquet."""
    column: str | None = None
    """Column of the values."""
    time_column: str | None = None
    """Column of the times."""
    unit: str | None = None
    """Unit of the values, as `EUR/MWh` or `kg/MWh`, where the file does not state it."""
    kind: Literal["average", "marginal"] | None = None
    """What a carbon intensity is, where the file does not state it."""
    zone: str | None = None
    """Time zone of times without an offset: `UTC`, `Europe/Berlin`, `+01:00`."""
    stamp: Literal["start", "end"] | None = None
    """Whether a time is the start or the end of its slot; the start if absent."""
    area: str | None = None
    """Part of the grid, for a file with several."""
    fill: Literal["previous"] | None = None
    """`previous`: a value holds over a gap after it. Gaps are errors if absent."""
    repeat: Literal["year", "week", "day"] | None = None
    """Period after which the series repeats; times outside of it are errors if absent."""


class ElectricitySection(Section):
    """What the energy of the cluster costs and emits."""

    price: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | RateFile | None = None
    """Price of a kWh: a number in `currency`, or a file."""
    carbon: Annotated[float, Field(ge=0, le=LARGEST)] | RateFile | None = None
    """Emissions of a kWh: a number in g, or a file."""
    currency: Currency | None = None
    """Currency of `price`, as `EUR`; needed with a number."""
    origin: Annotated[datetime, AfterValidator(check_offset)] | None = None
    """Date of second 0 of the run, with its offset from UTC; that of the trace if absent. Only used
    with files."""
    zone: Annotated[str, AfterValidator(_check_zone)] | None = None
    """Time zone of the trace's own date of second 0, where the trace does not know it."""

    unusual: Literal[True] | None = None
    """`true`: prices out of 0.01 to 2 a kWh, or intensities out of 1 to 2,000 g, are meant; if
    absent, they are refused, for their unit may be another one."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.price is None and self.carbon is None:
            raise ValueError("electricity needs price, carbon or both")
        if isinstance(self.price, float) and self.currency is None:
            raise ValueError(NO_CURRENCY)
        if self.currency is not None and self.price is None:
            raise ValueError("currency: there is no price")
        timed = isinstance(self.price, RateFile) or isinstance(self.carbon, RateFile)
        if not timed and (self.origin is not None or self.zone is not None):
            raise ValueError("origin, zone: they are of files, and there is none")
        if self.origin is not None and self.zone is not None:
            raise ValueError("origin, zone: say one of them")
        return self
