"""Prices and carbon intensities of a scenario, and the date of its second 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs
from wattkeeper.scenarios.inputs.usual_rates import explain_unusual
from wattkeeper.scenarios.spec.case_names import name_as_written
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection, RateFile
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, Tariff
from wattkeeper.traces.arrow import to_floats
from wattkeeper.traces.electricity.charges import Rate
from wattkeeper.traces.electricity.series import Series
from wattkeeper.traces.times.origin import TimeOrigin, origin_of
from wattkeeper.traces.times.zones import find_zone, offset_s, to_instants
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.traces.electricity.forms import Quantity

KEYS: Final[Mapping[str, Quantity]] = {COST: "price", CARBON: "carbon"}
"""The key of each metric in a scenario."""

ORIGIN: Final = "state it: `origin: 2024-01-31T00:00:00+01:00`"
"""Advice where the date of second 0 is not known."""
AGAIN: Final = "import the log again with its zone (`wattkeeper traces import --zone`)"
"""Advice where dates of a log have no offset."""


def with_tariffs(loaded: LoadedScenario, inputs: ScenarioInputs) -> ScenarioInputs:
    """The inputs with the tariff of each variant of a scenario with `electricity`.

    Raises:
        InputError: If files are wrong, all of them, or the date of second 0 is not known; the
            message names the place in the scenario.
    """
    scenario, document = loaded
    faults: list[Problem] = []
    if scenario.electricity is None:
        return inputs
    read = cache(read_rate)
    runs = {}
    for variant in scenario.variants:
        section = scenario.variants[variant].electricity or scenario.electricity
        assert section is not None
        own = scenario.variants[variant].electricity is not None
        name = name_as_written(variant, document.data["variants"])
        place = ("variants", name, "electricity") if own else ("electricity",)
        rates, places = {}, {}
        for metric, key in KEYS.items():
            if (stated := getattr(section, key)) is None:
                continue
            folder = document.folder_of((*place, key, "file"))
            places[key] = f"{document.where((*place, key))}, {'.'.join((*place, key))}"
            with add_faults(faults, places[key]):
                rates[metric] = read(key, stated, folder)
        read_ones = {KEYS[metric]: rate for metric, rate in rates.items()}
        faults += [Problem(text, places[key]) for key, text in unusual_rates(section, read_ones)]
        if faults:
            continue
        with locate_errors(document, *place):
            _check_currency(section, rates.get(COST))
            is_timed = any(isinstance(rate, Series) for rate in rates.values())
            origin_s = (
                find_origin_s(section.origin, section.zone, inputs.traces) if is_timed else 0.0
            )
            runs[variant] = inputs.runs[variant]._replace(tariff=Tariff(rates, origin_s))
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return inputs._replace(runs=runs)


@contextmanager
def add_faults(faults: list[Problem], place: str) -> Iterator[None]:
    """Add the problems of an input error inside to faults, which a key or option led to."""
    try:
        yield
    except InputError as error:
        faults += [Problem(str(problem), place) for problem in error.problems]


def currency_of(section: ElectricitySection, price: Rate | None) -> str:
    """The currency of prices; empty if there is none."""
    if section.currency is not None:
        return section.currency
    return price.unit.removesuffix("/kWh") if isinstance(price, Series) else ""


def unusual_rates(
    section: ElectricitySection, rates: Mapping[Quantity, Rate]
) -> Iterator[tuple[Quantity, str]]:
    """Prices and intensities that look as if their unit was another one, and what to ask back."""
    for key, rate in rates.items():
        unit = f"{currency_of(section, rate)}/kWh" if key == "price" else "g/kWh"
        if not section.unusual and (text := explain_unusual(key, rate, unit)):
            yield key, text


def read_rate(key: Quantity, stated: float | RateFile, beside: Path) -> Rate:
    """A number, or the series of a file, whose path is relative to `beside`.

    Raises:
        TraceError: If the file is wrong.
    """
    if not isinstance(stated, RateFile):
        return stated
    from wattkeeper.traces.electricity.forms import SeriesOptions
    from wattkeeper.traces.electricity.readers import read_series

    options = stated.model_dump(exclude={"file"}, exclude_none=True)
    return read_series(beside / stated.file, key, SeriesOptions(**options))


def _check_currency(section: ElectricitySection, price: Rate | None) -> None:
    if not isinstance(price, Series):
        return
    read = price.unit.removesuffix("/kWh")
    if section.currency not in (None, read):
        raise InputError(
            f"currency: {section.currency}, but prices of {price.source} are in {read}"
        )


def find_origin_s(origin: datetime | None, zone: str | None, traces: Sequence[Trace]) -> float:
    """The date of second 0, in seconds since 1970 (UTC): as stated, or of the trace of jobs.

    `zone`: time zone of the trace's own date, where the trace does not know it.

    Raises:
        InputError: If it is not known, or contradicts what the trace knows.
    """
    if origin is not None:
        return origin.timestamp()
    dated = ((trace, origin_of(trace.quality)) for trace in traces if trace.kind == "jobs")
    trace, found = next((pair for pair in dated if pair[1] is not None), (None, None))
    if trace is None or found is None:
        raise InputError(f"a series needs the date of second 0, which no trace knows; {ORIGIN}")
    stated = f"second 0 is {found.moment}"
    if found.is_unclear:
        raise InputError(
            f"{stated} in the trace {trace.name!r}, which an earlier version imported without "
            f"recording whether its dates are of UTC; import the log again, or {ORIGIN}"
        )
    if found.is_utc:
        utc_s = found.moment.replace(tzinfo=UTC).timestamp()
        if zone is not None and offset_s(find_zone(zone), utc_s):
            raise InputError(
                f"zone: {zone}, but {stated} in UTC, which the log itself states; leave `zone` out"
            )
        return utc_s
    if zone is None:
        raise InputError(
            f"{stated} on {found.clock}; say its time zone in `electricity` (`zone: "
            f"Europe/Berlin`), {AGAIN}, or {ORIGIN}"
        )
    return _local_origin_s(found, zone, trace)


def _local_origin_s(found: TimeOrigin, zone: str, trace: Trace) -> float:
    """The date of second 0 on the clocks of a zone.

    Raises:
        InputError: If the clocks show it twice or never, or are set within the trace.
    """
    zero_s = found.moment.replace(tzinfo=UTC).timestamp()
    local_s = zero_s + np.append(0.0, to_floats(trace.tables["jobs"]["submit_time_s"]))
    instants = to_instants(local_s, find_zone(zone))
    if instants.is_never[0] or instants.is_twice[0]:
        shown = "never" if instants.is_never[0] else "twice"
        raise InputError(
            f"second 0 is {found.moment}, which clocks in {zone} show {shown}, as they are set; "
            f"{AGAIN}, or {ORIGIN}"
        )
    ahead_s = local_s - instants.first_s
    changed = np.flatnonzero(np.isnan(ahead_s) | (ahead_s != ahead_s[0]) | instants.is_twice)
    if changed.size:
        when = datetime.fromtimestamp(local_s[changed].min(), UTC).replace(tzinfo=None)
        raise InputError(
            f"clocks in {zone} are set within the trace {trace.name!r} (before {when}), and its "
            f"times do not say so: {AGAIN}; or, where they count elapsed seconds, {ORIGIN}"
        )
    return float(instants.first_s[0])
