"""The section of scenario files on signals."""

from datetime import datetime
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from wattkeeper.live.signals.addresses import MAPS, WATTTIME
from wattkeeper.live.signals.addresses import check_address as check_service
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.forecasting import ForecastConfig
from wattkeeper.policies.parts import FORECASTS
from wattkeeper.scenarios.spec.sections.electricity import RateFile, check_offset
from wattkeeper.scenarios.spec.sections.policies import OneOf
from wattkeeper.scenarios.spec.sections.section import LARGEST, Section


def check_address(address: str) -> str:
    """Refuse what is no address of a web service."""
    try:
        return check_service(address)
    except InputError as error:
        raise ValueError(str(error)) from None


Value = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Second = Annotated[float, Field(ge=-1e12, le=1e12)]


class WaveSeries(Section):
    """A sine over time, made up: results call it synthetic."""

    mean: Value
    """Mean of the values."""
    amplitude: Annotated[float, Field(ge=0, le=LARGEST)]
    """Largest deviation from it."""
    period_s: Annotated[float, Field(gt=0, le=1e9)] = 86400.0
    """Period, s."""
    slots: Annotated[int, Field(gt=1, le=1_000_000)] = 96
    """Slots of a period; each has the value of its start."""
    peak_s: Second = 0.0
    """Time of a peak, s from the start of the run."""


class StepSeries(Section):
    """Values from given times on."""

    steps: Annotated[tuple[tuple[Second, Value], ...], Field(min_length=1, max_length=1_000_000)]
    """Time (s from the start of the run) and value from then on, ascending; the first time is up to
    0, and the last value holds for ever."""

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        times = [time_s for time_s, _ in self.steps]
        if times[0] > 0:
            raise ValueError(f"steps: the first one must be at 0 s or before, found {times[0]:g} s")
        if any(after <= before for before, after in pairwise(times)):
            raise ValueError("steps: times must ascend")
        return self


class SignalFile(RateFile):
    """A file of values over time, in the forms of prices and carbon intensities."""

    origin: Annotated[datetime, AfterValidator(check_offset)] | None = None
    """Date of second 0 of the run, with its offset from UTC; if absent, that of `electricity` or of
    the trace."""


def _form_of(series: object) -> str | None:
    if isinstance(series, Section):
        return type(series).__name__
    if not isinstance(series, dict):
        return "number"
    keys = {"steps": StepSeries.__name__, "mean": WaveSeries.__name__, "file": SignalFile.__name__}
    found = [form for key, form in keys.items() if key in series]
    return found[0] if len(found) == 1 else None


AnySeries = Annotated[
    Annotated[Value, Tag("number")]
    | Annotated[StepSeries, Tag(StepSeries.__name__)]
    | Annotated[WaveSeries, Tag(WaveSeries.__name__)]
    | Annotated[SignalFile, Tag(SignalFile.__name__)],
    Discriminator(
        _form_of,
        custom_error_type="no_form",
        custom_error_message=(
            "a series is a number, or a mapping with one of steps, mean (a wave), file"
        ),
    ),
]


class LiveSource(Section):
    """Keys of all sources of live values."""

    fallback: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | Literal["last"]
    """What holds while the source does not answer: the last value, or a number, in the signal's
    unit, once a slot is over without a value."""


class ElectricityMapsSource(LiveSource):
    """Average carbon intensity of a zone by hour, from Electricity Maps."""

    provider: Literal["electricity-maps"]
    zone: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
    """The zone, as `DE` or `US-CAL-CISO`."""
    address: Annotated[str, AfterValidator(check_address)] = MAPS
    """Address of the service."""


class WattTimeSource(LiveSource):
    """Marginal emissions of a region by five minutes, from WattTime."""

    provider: Literal["watttime"]
    region: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
    """The region, as `CAISO_NORTH`."""
    address: Annotated[str, AfterValidator(check_address)] = WATTTIME
    """Address of the service."""


class GrowingFileSource(LiveSource, RateFile):
    """A CSV file to which rows are appended during the run."""

    provider: Literal["file"]

    @model_validator(mode="after")
    def _neither_repeats_nor_is_filled(self) -> Self:
        if self.repeat is not None:
            raise ValueError("repeat: a file that grows does not repeat; leave it out")
        if self.fill is not None:
            raise ValueError("fill: `fallback` says what holds for missing rows; leave it out")
        return self


AnyLiveSource = Annotated[
    ElectricityMapsSource | WattTimeSource | GrowingFileSource, Field(discriminator="provider")
]


class SignalSection(Section):
    """A named series of values that policies read."""

    series: AnySeries | None = None
    """A number, `steps`, a wave, or a file. For the signals `price` and `carbon`, that of
    `electricity` if absent."""
    unit: Annotated[str, Field(max_length=40)] | None = None
    """Unit of the values; of a file that states it, that of the file."""
    live: AnyLiveSource | None = None
    """Where values come from in live runs in real time, instead of `series`."""
    unusual: Literal[True] | None = None
    """As in `electricity`, for files of the signals `price` and `carbon`."""
    forecast: Annotated[ForecastConfig | None, OneOf(FORECASTS)] = None
    """How policies that ask for it see its future; if absent, they cannot ask."""

    @model_validator(mode="after")
    def _unit_is_of_series(self) -> Self:
        if self.unit is not None and (self.series is None or isinstance(self.series, SignalFile)):
            raise ValueError("unit: it is for a series that the scenario states itself")
        return self


PauseMode = Literal["free", "hold"]
