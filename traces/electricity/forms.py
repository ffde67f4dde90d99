"""How files state a series: known exports by their headers, columns of others, and units."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.electricity.answers import MAPS_ZONE, count_estimated, only_text
from wattkeeper.traces.electricity.entsoe_xml import ABOUT, PRICE, QUANTITY
from wattkeeper.traces.electricity.series import Repeat
from wattkeeper.traces.readers.columns import strip_cells
from wattkeeper.traces.readers.csvfile import quote
from wattkeeper.traces.times.zones import find_zone, offset_s

Quantity = Literal["price", "carbon", "value"]
"""`value`: anything else, in a unit of its own."""


class SeriesOptions(NamedTuple):
    """What is said of a file, where it does not state it itself.

    Attributes:
        column: Column of the values.
        time_column: Column of the times.
        unit: Of the values, as ``EUR/MWh`` or ``kg/MWh``.
        kind: Whether a carbon intensity is ``average`` or ``marginal``.
        zone: Time zone of times without an offset: ``UTC``, ``Europe/Berlin``, ``+01:00``.
        stamp: Whether a time is the start or the end of its slot.
        area: Part of the grid, for a file with several.
        fill: ``previous``: a value holds over a gap after it. Otherwise gaps are errors.
        repeat: As in `Series`.
    """

    column: str = ""
    time_column: str = ""
    unit: str = ""
    kind: str = ""
    zone: str = ""
    stamp: Literal["start", "end"] = "start"
    area: str = ""
    fill: Literal["previous"] | None = None
    repeat: Repeat | None = None


class Form(NamedTuple):
    """What a file states; texts are empty where it does not.

    Attributes:
        name: Whose export it is.
        time: Column of the times.
        column: Column of the values.
        unit: As in `SeriesOptions`; so are `kind` and `zone`.
        kind: Of a carbon intensity.
        zone: Of times without an offset.
        area: Column of the area.
        sequence: Column of ENTSO-E's auctions.
        note: What a reader must know.
        end: Column of the ends of the slots.
    """

    name: str
    time: str
    column: str
    unit: str = ""
    kind: str = ""
    zone: str = ""
    area: str = ""
    sequence: str = ""
    note: str = ""
    end: str = ""


ENTSOE: Final = "ENTSO-E"
INTENSITY: Final = re.compile(r"carbon intensity gco[2₂]eq/kwh \((.+)\)")
DAY_AHEAD: Final = re.compile(r"day-ahead price [\[(](\w+)/mwh[\])]")
INTERVAL: Final = re.compile(r"mtu(?: \((.+)\))?")
SIGNALS: Final = {"co2_moer": "marginal", "co2_aoer": "average", "health_damage": ""}
CLOCKS: Final = {"u": "UTC", "c": "Europe/Brussels", "w": "Europe/Lisbon", "e": "Europe/Helsinki"}
"""Of UTC, CET/CEST, WET/WEST, EET/EEST."""
TIMES: Final = ("timestamp", "time", "datetime", "date", "start", "start_time")
VALUES: Final = {
    "price": ("price", "value"),
    "carbon": ("carbon_intensity", "value"),
    "value": ("value",),
}
IN_UTC: Final = re.compile(r"(?<![^\W_])(?:utc|gmt)(?:([+-]\d\d?)(?::?(\d\d))?)?(?![^\W_])")
"""In the name of a column of times, with an offset or without."""
AREAS: Final = (
    "area",
    "country",
    "zone",
    "zone id",
    "zone_id",
    "zone name",
    "region",
    "iso3 code",
    "bidding zone",
    "bidding_zone",
    "bidding area",
    "balancing authority",
)
"""Names of columns of areas, in lower case."""
GRAMS: Final = {
    "g/kWh": 1.0,
    "kg/kWh": 1000.0,
    "g/MWh": 0.001,
    "kg/MWh": 1.0,
    "t/MWh": 1000.0,
    "lb/MWh": 0.45359237,
    "lbs/MWh": 0.45359237,
}
"""g/kWh in one of each unit."""
MONTHS_S: Final = tuple(28.0 * 86_400.0 * month for month in range(360, 720))
"""Moments in 1997 to 2025, by which zones are compared."""


def convert_unit(text: str, quantity: Quantity) -> tuple[float, str] | None:
    """The factor of a unit to the unit of a `Series`, and that unit; None for no such unit."""
    if quantity == "value":
        return 1.0, text
    plain = re.sub(r"co[2₂](eq|e)?|[\s_]", "", text.replace("_per_", "/"), flags=re.IGNORECASE)
    plain = re.sub(r"(?<=wh)(e|el)$", "", plain, flags=re.IGNORECASE)  # electric
    currency, _, energy = plain.rpartition("/")
    if quantity == "carbon":
        return next(((g, "g/kWh") for u, g in GRAMS.items() if u.lower() == plain.lower()), None)
    if (
        currency.lower() == "currency"
        or not re.fullmatch(r"[^\W\d_]+|[^\w\s]", currency)
        or energy.lower() not in ("kwh", "mwh")
    ):
        return None
    return (1.0 if energy.lower() == "kwh" else 0.001), f"{currency}/kWh"


def recognise(table: pa.Table, path: Path, quantity: Quantity, said: SeriesOptions) -> Form:
    """What a file states, by its header and its first row.

    Raises:
        TraceError: If it has no such series, or its columns must be named.
    """
    names = {name.lower(): name for name in table.column_names}
    if {"start", *ABOUT} == names.keys() - {PRICE, QUANTITY}:
        return _entsoe_document(table, path, quantity)
    if MAPS_ZONE in table.column_names:
        return _electricity_maps_answer(table, path, quantity)
    if quantity == "value":
        return _plain(table, path, quantity, said)
    if quantity == "price":
        prices = [match for name in names if (match := DAY_AHEAD.fullmatch(name))]
        clocks = [match for name in names if (match := INTERVAL.fullmatch(name))]
        if prices and clocks:
            return _entsoe(names, prices[0], clocks[0])
    elif "datetime (utc)" in names and (
        found := {match[1]: names[match[0]] for match in map(INTENSITY.fullmatch, names) if match}
    ):
        return _electricity_maps(names, found, path, said)
    elif {"point_time", "value"} <= names.keys():
        first = {low: str(table[name][0]) for low, name in names.items()}
        return _watttime(names, first, path, said)
    return _plain(table, path, quantity, said)


def _entsoe_document(table: pa.Table, path: Path, quantity: Quantity) -> Form:
    unit, column = only_text(table, "unit"), PRICE if PRICE in table.column_names else QUANTITY
    if quantity == "carbon" or (quantity == "price" and column != PRICE):
        raise TraceError(f"is a document of ENTSO-E with {column} in {unit}, no {quantity}", path)
    return Form("ENTSO-E, XML", "start", column, unit, "", "UTC", "area", "sequence", end="end")


def _electricity_maps_answer(table: pa.Table, path: Path, quantity: Quantity) -> Form:
    column, unit = table.column_names[1], only_text(table, "unit")
    is_carbon = column == "carbonIntensity" or bool(convert_unit(unit, "carbon"))
    is_price = column == "price" or bool(convert_unit(unit, "price"))
    if (quantity, True) in (("price", is_carbon), ("carbon", is_price and not is_carbon)):
        in_unit = f" in {unit}" if unit else ""
        raise TraceError(f"has {column}{in_unit} of Electricity Maps, no {quantity}", path)
    kind, note = ("average", "average carbon intensity of consumption") if is_carbon else ("", "")
    note = f"{note or column} of Electricity Maps"
    if emissions := only_text(table, "emissions"):
        note += f", {emissions}"
    if count := count_estimated(table):
        note += f"; {count} values are estimated"
    unit = unit or "g/kWh" * (column == "carbonIntensity")
    return Form(
        "Electricity Maps, JSON", "datetime", column, unit, kind, "UTC", MAPS_ZONE, note=note
    )


def _entsoe(names: Mapping[str, str], price: re.Match[str], clock: re.Match[str]) -> Form:
    zone = CLOCKS.get((clock[1] or "?")[0], "")
    note = "" if zone == "UTC" else "an hour that clocks show twice is in the order of the file"
    return Form(
        ENTSOE,
        names[clock[0]],
        names[price[0]],
        f"{price[1].upper()}/MWh",
        "",
        zone,
        names.get("area", ""),
        names.get("sequence", ""),
        note,
    )


def _electricity_maps(
    names: Mapping[str, str], intensities: Mapping[str, str], path: Path, said: SeriesOptions
) -> Form:
    usual = [word for word in intensities if word.startswith("life") or word == "lca"]
    asked = [w for w, name in intensities.items() if said.column.lower() in (w, name.lower())]
    if said.column and not asked:
        have = " or ".join(intensities)
        raise TraceError(f"has no carbon intensity {said.column!r}: `column` must be {have}", path)
    word = (asked or usual or list(intensities))[0]
    note = f"average carbon intensity of consumption of Electricity Maps, {word}"
    return Form(
        "Electricity Maps",
        names["datetime (utc)"],
        intensities[word],
        "g/kWh",
        "average",
        "UTC",
        names.get("zone id", ""),
        note=note,
    )


def _watttime(
    names: Mapping[str, str], first: Mapping[str, str], path: Path, said: SeriesOptions
) -> Form:
    told = f"{first.get('signal_type', '')} {first.get('meta', '')} {path.name}".lower()
    signal = next((signal for signal in SIGNALS if signal in told), "")
    if signal == "health_damage":
        raise TraceError("holds WattTime's health_damage, which is no carbon intensity", path)
    unit = first.get("units") or said.unit or "lbs/MWh"
    kind = SIGNALS.get(signal) or said.kind or "marginal"
    note = f"WattTime's {signal or 'co2_moer'}, {kind}, in {unit}"
    note += "" if signal else ": the file does not name its signal"
    return Form(
        "WattTime",
        names["point_time"],
        names["value"],
        unit,
        kind,
        "UTC",
        names.get("region", ""),
        note=note,
    )


def _plain(table: pa.Table, path: Path, quantity: Quantity, said: SeriesOptions) -> Form:
    columns = table.column_names
    in_utc = [
        name
        for name in columns
        if name.lower().partition(" (")[0] in TIMES and _zone_of_name(name) == "UTC"
    ]
    times = in_utc if len(in_utc) == 1 and not said.time_column else columns
    time = _choose(said.time_column, times, TIMES, "time_column", path)
    others = [name for name in columns if name != time]
    column = _choose(said.column, others, VALUES[quantity], "column", path)
    stated = re.search(r"[\[(]([^\])]+)[\])]$", column)
    unit = stated[1] if stated and convert_unit(stated[1], quantity) else ""
    area = _area_column(table, [name for name in others if name != column], said.area)
    return Form("", time, column, unit, zone=_zone_of_name(time), area=area)


def _zone_of_name(name: str) -> str:
    """The zone that the name of a column of times states; empty if it states none."""
    found = IN_UTC.search(name.lower())
    if found is None:
        return ""
    if not found[1]:
        return "UTC"
    return f"{found[1][0]}{int(found[1][1:]):02}:{found[2] or '00'}"


def _area_column(table: pa.Table, columns: Sequence[str], area: str) -> str:
    """The column that holds an area; without one, the first of a usual name, or none."""
    usual = [name for name in columns if name.lower() in AREAS]
    if area:
        for name in (*usual, *columns):
            if pc.any(pc.equal(strip_cells(table, name), area)).as_py():
                return name
    return "".join(usual[:1])


def _choose(said: str, columns: Sequence[str], known: Sequence[str], key: str, path: Path) -> str:
    """A column by its name, or the only one, or the only one of a usual name."""
    usual = [name for name in columns if name.lower().partition(" (")[0] in known]
    choices = [said] if said in columns else columns if len(columns) == 1 else usual
    if len(choices) == 1 and said in ("", choices[0]):
        return choices[0]
    have = ", ".join(map(quote, columns[:20])) or "no other column"
    state = f"has no column {said!r}" if said else "does not show which column it is"
    raise TraceError(f"{state}: `{key}` must be one of {have}", path)


def settle(
    form: Form, quantity: Quantity, said: SeriesOptions, path: Path
) -> tuple[float, str, str]:
    """The factor to the unit of the series, that unit, and the kind.

    Raises:
        TraceError: If file and options state neither, or contradict each other.
    """
    unit, kind = said.unit or form.unit, said.kind or form.kind
    carbon, found = quantity == "carbon", convert_unit(unit, quantity)
    wrong = []
    if not found:
        state = f"{quote(unit)} is not" if unit else f"column {form.column!r} does not state"
        must = ", ".join(GRAMS) if carbon else "a currency by kWh or MWh, as EUR/MWh"
        wrong.append(f"{state} a unit: `unit` must be {must}")
    if carbon and kind not in ("average", "marginal"):
        wrong.append(
            "does not state whether the carbon intensity is average or marginal: `kind` must be "
            "average or marginal"
        )
    if kind and not carbon:
        wrong.append(f"a {quantity} has no `kind`, such as {kind!r}")
    same_zone = _are_one_zone(form.zone, said.zone)
    same_unit = found == convert_unit(form.unit, quantity)
    for key, stated, asked in (
        ("unit", form.unit, "" if same_unit else said.unit),
        ("kind", form.kind, said.kind),
        ("zone", "" if same_zone else form.zone, said.zone),
        ("time_column", form.time, said.time_column),
        ("column", form.column, said.column if form.name != "Electricity Maps" else ""),
    ):
        if stated and asked not in ("", stated):
            wrong.append(f"states {stated!r}: `{key}` must be left out, not {asked!r}")
    if wrong or not found:
        raise TraceError([Problem(text, str(path)) for text in wrong])
    return *found, kind


def _are_one_zone(one: str, other: str) -> bool:
    """Whether two zones show the same times, as Europe/Brussels and Europe/Berlin do."""
    try:
        first, second = find_zone(one or "UTC"), find_zone(other or "UTC")
    except ValueError:
        return False
    return all(offset_s(first, time_s) == offset_s(second, time_s) for time_s in MONTHS_S)
