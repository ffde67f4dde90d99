"""What electricity costs and emits, from options of the command and the file of nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import ValidationError

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.scenarios.inputs.electricity import (
    add_faults,
    find_origin_s,
    read_rate,
    unusual_rates,
)
from wattkeeper.scenarios.log_study.nodes import DescribedCluster
from wattkeeper.scenarios.spec.sections.electricity import NO_CURRENCY, ElectricitySection, RateFile
from wattkeeper.scenarios.spec.sections.section import LARGEST
from wattkeeper.traces.arrow import to_floats
from wattkeeper.traces.electricity.charges import Rate, clock
from wattkeeper.traces.electricity.forms import Quantity
from wattkeeper.traces.library.local_times import ZoneRefused
from wattkeeper.traces.trace import Trace

RATES: Final[tuple[Quantity, ...]] = ("price", "carbon")
OF_FILES: Final = ("zone", "origin")
"""Keys that only files of rates need."""


class StudyRates(NamedTuple):
    """What electricity costs and emits in a study.

    Attributes:
        section: As in its scenario; None: not known.
        files: Files that are copied to the folder of the study, by their path in it.
        series: Those of the files.
        places: What stated each key: an option, or a place in the file of nodes.
        zone: Time zone of the log's dates, where the file of nodes states it for files of rates.
    """

    section: ElectricitySection | None
    files: Mapping[str, Path]
    series: Mapping[Quantity, Rate]
    places: Mapping[str, str]
    zone: str | None = None


class RateOptions(NamedTuple):
    """Options of the command; None: not given.

    Attributes:
        price: A number, per kWh, or a file of prices.
        currency: Of a price.
        carbon: A number, g per kWh, or a file of carbon intensities.
    """

    price: str | None
    currency: str | None
    carbon: str | None


def read_electricity(options: RateOptions, cluster: DescribedCluster, beside: Path) -> StudyRates:
    """What the options state, and otherwise the file of nodes, which is in the folder `beside`.

    Files that the file of nodes names are relative to that folder, those of options to the working
    directory. Each is read here, so that a fault is told of the file itself, before any import.

    Raises:
        InputError: If rates are neither a number nor a file, files are wrong, or they do not fit
            together; with all faults, each with the option or the key that led to it.
    """
    stated: dict[str, Any] = {}
    if cluster.stated.electricity is not None:
        stated = cluster.stated.electricity.model_dump(mode="json", exclude_none=True)
    faults: list[Problem] = []
    places = {
        key: f"{cluster.document.where(('electricity', key))}, electricity.{key}"
        for key in ("electricity", *stated)
    }
    for key, text in options._asdict().items():
        if text is not None:
            places[key] = f"--{key}"
            with add_faults(faults, places[key]):
                stated[key] = _parse_rate(key, text) if key in RATES else text
    files: dict[str, Path] = {}
    for key in RATES:
        rate = stated.get(key)
        if isinstance(rate, dict):
            source = (beside if getattr(options, key) is None else Path()) / rate["file"]
            if not source.is_file():
                faults.append(Problem(f"there is no file {source}", places[key]))
            rate["file"] = f"{key}/{source.name}"
            files[rate["file"]] = source
    if faults:
        raise InputError(faults)
    if not stated:
        return StudyRates(None, {}, {}, {})
    if not files and any(getattr(options, key) is not None for key in RATES):
        stated = {key: value for key, value in stated.items() if key not in OF_FILES}
    try:
        ElectricitySection.model_validate_json(json.dumps(stated), strict=True)
        zone = stated.pop("zone", None)  # the import reads the log's dates by it
        section = ElectricitySection.model_validate_json(json.dumps(stated), strict=True)
    except (ValidationError, ValueError) as error:
        given = ", ".join(f"--{key}" for key, text in options._asdict().items() if text is not None)
        place = given or f"{cluster.document.where(('electricity',))}, electricity"
        problems = [
            Problem("a price needs its currency: --currency EUR, or another one", "--price")
            if options.price is not None and text == NO_CURRENCY
            else Problem(text, place)
            for text in _explain(error)
        ]
        raise InputError(problems) from None
    series: dict[Quantity, Rate] = {}
    for key in RATES:
        rate = getattr(section, key)
        if isinstance(rate, RateFile):
            source = files[rate.file]
            with add_faults(faults, places[key]):
                own = rate.model_copy(update={"file": source.name})
                series[key] = read_rate(key, own, source.parent)
    if faults:
        raise InputError([_advise(fault, files) for fault in faults])
    constants = {key: rate for key in RATES if isinstance(rate := getattr(section, key), float)}
    for key, text in unusual_rates(section, {**constants, **series}):
        stated_at = f", in the file of nodes: `electricity: {{{key}: ..., unusual: true}}`"
        faults.append(Problem(text + stated_at * places[key].startswith("--"), places[key]))
    if faults:
        raise InputError(faults)
    return StudyRates(section, files, series, places, zone)


def _advise(fault: Problem, files: Mapping[str, Path]) -> Problem:
    """Says where to state what an option cannot."""
    key = fault.where.removeprefix("--")
    source = next((source for name, source in files.items() if name.startswith(f"{key}/")), None)
    if source is None or "`" not in fault.message:
        return fault
    stated = f"electricity: {{{key}: {{file: {source}, ...}}}}"
    return Problem(f"{fault.message}; state it in the file of nodes, as `{stated}`", fault.where)


@contextmanager
def at_place(place: str | None) -> Iterator[None]:
    """Say that the file of nodes stated a zone that an import inside refuses; None: it did not."""
    try:
        yield
    except ZoneRefused as error:
        if place is None:
            raise
        texts = (problem.message for problem in error.problems)
        raise InputError([Problem(text, place) for text in texts]) from None


def check_dates(rates: StudyRates, trace: Trace) -> None:
    """Check that files of rates cover the submissions of a log.

    Raises:
        InputError: If they do not, or the date of the log's second 0 is not known.
    """
    if rates.section is None or not rates.series:
        return
    first = next(iter(rates.series))
    place = rates.places.get("origin") or rates.places[first]
    if place == f"--{first}":
        place = "--zone"
    faults: list[Problem] = []
    with add_faults(faults, place.replace(f"electricity.{first}", "electricity")):
        origin_s = find_origin_s(rates.section.origin, None, [trace])
        last_s = float(to_floats(trace.tables["jobs"]["submit_time_s"]).max(initial=0.0))
        for key, rate in rates.series.items():
            with add_faults(faults, rates.places[key]):
                clock(rate, origin_s)(np.array([0.0, last_s]))
    if faults:
        raise InputError(faults)


def _parse_rate(key: str, text: str) -> float | dict[str, str]:
    """A number, or a file as in a scenario."""
    try:
        rate = float(text)
    except ValueError:
        pass
    else:
        if not abs(rate) <= LARGEST or (key == "carbon" and rate < 0):
            least = "0" if key == "carbon" else f"{-LARGEST:g}"
            raise InputError(
                f"found {text!r}; must be a file, or a number from {least} to {LARGEST:g}"
            )
        return rate
    if not Path(text).is_file():
        raise InputError(f"found {text!r}; must be a number or a file")
    return {"file": text}


def _explain(error: ValueError) -> Iterator[str]:
    if not isinstance(error, ValidationError):
        yield str(error)
        return
    for detail in error.errors():
        steps = [str(step) for step in detail["loc"] if str(step) not in ("float", "RateFile")]
        text = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "string_pattern_mismatch":
            text = (
                f"found {detail['input']!r}; must be up to 8 letters, as EUR, or one of €, $, £, ¥"
            )
        yield f"{'.'.join(steps)}: {text}".removeprefix(": ")
