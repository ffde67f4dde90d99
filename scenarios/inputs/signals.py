"""The signals of a scenario's runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError, PolicyError, ScenarioError
from wattkeeper.policies.numerics.portable import each
from wattkeeper.scenarios.inputs.electricity import KEYS, find_origin_s
from wattkeeper.scenarios.inputs.power_checks import Kind, explain_first_excess
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs, SignalInput
from wattkeeper.scenarios.inputs.usual_rates import explain_unusual
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection
from wattkeeper.scenarios.spec.sections.signals import (
    GrowingFileSource,
    SignalFile,
    SignalSection,
    StepSeries,
    WaveSeries,
)
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import Tariff
from wattkeeper.sim.kernel.signals import SignalSeries
from wattkeeper.traces.electricity.charges import Rate
from wattkeeper.traces.electricity.series import PERIODS_S, Series
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.traces.electricity.forms import Quantity, SeriesOptions

RATES: Final[dict[str, Quantity]] = {"price": "price", "carbon": "carbon"}
"""Signals that `electricity` states, too, and whose files are read as its own."""

UNITS: Final = {"price": "/kWh", "carbon": "g/kWh"}
WATTS: Final = {"W": 1.0, "kW": 1e3, "MW": 1e6}
"""Watts in one of each unit of a power cap."""


def with_signals(
    loaded: LoadedScenario, inputs: ScenarioInputs, *, live: bool = False
) -> ScenarioInputs:
    """The inputs with the signals that the policies of each variant read.

    With `live`, values of signals with a source of live values are not read.

    Raises:
        InputError: If a series cannot be read, no policy reads one, or a policy reads one that is
            not there; the message names the place in the scenario.
    """
    scenario, document = loaded
    read_file = cache(_read_file)
    signals: dict[str, dict[str, SignalInput]] = {}
    for variant in scenario.variants:
        signals[variant] = {}
        cap = inputs.runs[variant].cluster.cap
        followed = _followed(inputs.runs[variant].cluster)
        for name in _names_read(loaded, variant, followed):
            section = scenario.signals.get(name, SignalSection())
            if live and section.live is not None:
                beside = document.folder_of(("signals", name, "live", "file"))
                signals[variant][name] = SignalInput(None, section.forecast, section.live, beside)
                continue
            if isinstance(section.live, GrowingFileSource):
                beside = document.folder_of(("signals", name, "live", "file"))
                with locate_errors(document, "signals", name, "live"):
                    _check_growing_file(name, section, beside)
            with locate_errors(document, "signals", name):
                stated = section.series
                if isinstance(stated, SignalFile):
                    electricity = scenario.variants[variant].electricity or scenario.electricity
                    origin_s = _origin_s(stated, electricity, inputs.traces)
                    beside = document.folder_of(("signals", name, "series", "file"))
                    read = read_file(stated, name, beside)
                    _check_usual(name, read, read.unit, section)
                    series = _of_file(name, read, origin_s)
                elif stated is not None:
                    series = state_signal(name, stated, section.unit or "")
                    if name == "carbon" and series.value.min() < 0:
                        raise InputError(
                            f"series: carbon falls to {series.value.min():g}; must be at least 0"
                        )
                else:
                    tariff = inputs.runs[variant].tariff
                    series = _of_rate(loaded, variant, name, tariff, followed)
                if section.forecast is not None:
                    section.forecast.check(name, series.slot_s, series.before)
                if cap is not None and cap.name == name:
                    series = _convert_to_watts(series)
                    _check_cap(inputs.runs[variant], series)
            signals[variant][name] = SignalInput(series, section.forecast)
    unread = set(scenario.signals).difference(*signals.values())
    if unread:
        name = min(unread)
        raise ScenarioError(
            f"no policy reads the signal {name!r}, and neither a power cap nor a rent follows it",
            document.where(("signals", name)),
        )
    runs = {name: run._replace(signals=signals[name]) for name, run in inputs.runs.items()}
    return inputs._replace(runs=runs)


def series_options(source: GrowingFileSource) -> SeriesOptions:
    """What is said of a file that grows."""
    from wattkeeper.traces.electricity.forms import SeriesOptions

    said = source.model_dump(exclude={"file", "provider", "fallback"}, exclude_none=True)
    return SeriesOptions(**said)


def _check_growing_file(name: str, section: SignalSection, beside: Path) -> None:
    """Refuse a file that grows and cannot be read, if it is there already."""
    from wattkeeper.live.signals.providers import GrowingFile

    source = section.live
    assert isinstance(source, GrowingFileSource)
    path = beside / source.file
    if path.exists():
        file = GrowingFile(path, RATES.get(name, "value"), series_options(source))
        values = np.array([slot.value for slot in file.history()])
        _check_usual(name, values, file.unit, section)


def _check_usual(name: str, rate: Rate | Floats, unit: str, section: SignalSection) -> None:
    """Ask back where a price or an intensity looks as if its unit was another one."""
    text = explain_unusual(RATES.get(name, "value"), rate, unit)
    if text and not section.unusual:
        raise InputError(text)


def _convert_to_watts(series: SignalSeries) -> SignalSeries:
    """The values of a power cap in W."""
    unit = series.unit or "W"
    if unit not in WATTS:
        raise InputError(
            f"power_cap_w: the signal {series.name!r} is in {unit}; allowed: {', '.join(WATTS)}"
        )
    return series if unit == "W" else replace(series, value=WATTS[unit] * series.value, unit="W")


def _check_cap(run: RunInputs, series: SignalSeries) -> None:
    """Refuse a power cap below which the GPUs cannot even idle, or a job can never start."""
    cluster, first = run.cluster, series.slot(0.0) if series.period_s is None else 0
    values, starts_s = series.value[first:], series.start_s[first:]
    named = f"power_cap_w: the signal {series.name!r}"
    least_w, idle_w = float(values.min()), cluster.idle_power_w
    if least_w < idle_w:
        raise InputError(
            f"{named} falls to {least_w:g} W{_since(float(starts_s[values.argmin()]))}, and all "
            f"GPUs draw {idle_w:g} W while they idle"
        )
    most_w = float(values.max())
    recurring = (Kind(name, run.gpus) for name in run.recurrences)
    if excess := explain_first_excess(
        replace(cluster, power_cap_w=most_w), run.profiles, run.jobs, recurring
    ):
        raise InputError(
            f"{named} is at most {most_w:g} W{_since(float(starts_s[values.argmax()]))}, and "
            f"{excess}"
        )


def _since(time_s: float) -> str:
    """When a value begins, for messages; empty at the start of the run or before."""
    return f" (at {time_s:g} s of the run)" if time_s > 0 else ""


def _followed(cluster: ClusterSpec) -> dict[str, str]:
    """The key of the cluster that follows each signal, by name of the signal."""
    keys = {} if cluster.rent is None else cluster.rent.signals
    followed = {name: f"rent.{key}" for name, key in keys.items()}
    return followed if cluster.cap is None else followed | {cluster.cap.name: "power_cap_w"}


def _names_read(
    loaded: LoadedScenario, variant: str, followed: Mapping[str, str]
) -> dict[str, None]:
    """The signals that policies of a variant read, or its cluster follows."""
    configs = loaded.variants[variant].policies.by_point.values()
    names = (name for config in configs for name in config.signals)
    return dict.fromkeys((*names, *followed))


def _of_rate(
    loaded: LoadedScenario, variant: str, name: str, tariff: Tariff, followed: Mapping[str, str]
) -> SignalSeries:
    """The price or carbon intensity of `electricity` as a signal."""
    series = read_tariff(name, tariff)
    if series is not None:
        return series
    configs = loaded.variants[variant].policies.by_point.values()
    reader = next((config for config in configs if name in config.signals), None)
    if reader is None:
        key = followed[name]
        raise ScenarioError(
            f"{key} follows the signal {name!r}: state it (signals.{name})",
            loaded.document.where(("cluster", *key.split("."))),
        )
    what = f"{reader.point}: {reader.kind} reads the signal {name!r}: state it (signals.{name})"
    if name in loaded.scenario.signals:
        what = (
            f"{reader.point}: {reader.kind} reads the signal {name!r}, and only a live run in real "
            f"time has its values (live): state a series (signals.{name}.series)"
        )
    if name in RATES:
        what += f", or electricity.{name}"
    raise locate_error(loaded, variant, PolicyError(what, reader.point))


def read_tariff(name: str, tariff: Tariff) -> SignalSeries | None:
    """The `price` or `carbon` of a tariff as a signal; None if it has none."""
    for metric, key in KEYS.items():
        if key == name and metric in tariff.rates:
            rate = tariff.rates[metric]
            if isinstance(rate, Series):
                return _of_file(name, rate, tariff.origin_s)
            return state_signal(name, rate, UNITS[name])
    return None


def state_signal(name: str, stated: float | StepSeries | WaveSeries, unit: str) -> SignalSeries:
    """A signal that the scenario itself states."""
    if isinstance(stated, StepSeries):
        times, values = (
            np.array(column, dtype=np.float64) for column in zip(*stated.steps, strict=True)
        )
        return SignalSeries(name, times, values, unit=unit)
    if isinstance(stated, WaveSeries):
        part = np.arange(stated.slots, dtype=np.float64) / stated.slots
        first_s = stated.peak_s % stated.period_s - stated.period_s
        starts, end_s = first_s + part * stated.period_s, first_s + stated.period_s
        values = stated.mean + stated.amplitude * each(math.cos, 2 * math.pi * part)
        return SignalSeries(name, starts, values, end_s, unit, stated.period_s, is_made_up=True)
    return SignalSeries(name, np.array([-math.inf]), np.array([stated]), unit=unit)


def _read_file(stated: SignalFile, name: str, beside: Path) -> Series:
    from wattkeeper.traces.electricity.forms import SeriesOptions
    from wattkeeper.traces.electricity.readers import read_series

    said = stated.model_dump(exclude={"file", "origin"}, exclude_none=True)
    return read_series(beside / stated.file, RATES.get(name, "value"), SeriesOptions(**said))


def _of_file(name: str, series: Series, origin_s: float) -> SignalSeries:
    """A series over the dates of a calendar, in the time of a run."""
    period_s = PERIODS_S[series.repeat] if series.repeat else None
    return SignalSeries(
        name,
        series.start_s - origin_s,
        series.value,
        series.end_s - origin_s,
        series.unit,
        period_s,
    )


def _origin_s(
    stated: SignalFile, electricity: ElectricitySection | None, traces: Sequence[Trace]
) -> float:
    """The date of second 0, in seconds since 1970 (UTC)."""
    if stated.origin is not None:
        return stated.origin.timestamp()
    if electricity is None:
        return find_origin_s(None, None, traces)
    return find_origin_s(electricity.origin, electricity.zone, traces)
