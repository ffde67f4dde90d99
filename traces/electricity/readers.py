"""Files of prices and carbon intensities as `Series`: rows become slots on the clock of UTC."""

import re
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.electricity.columns import read_texts
from wattkeeper.traces.electricity.forms import (
    ENTSOE,
    Form,
    Quantity,
    SeriesOptions,
    recognise,
    settle,
)
from wattkeeper.traces.electricity.series import DAY_S, Series, format_time
from wattkeeper.traces.electricity.texts import Texts
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.columns import Wrong, parse_numbers, parse_times, strip_cells
from wattkeeper.traces.readers.csvfile import ABSENT, quote
from wattkeeper.traces.times.zones import KINDS, OFFSET, find_zone, to_instants

MISSING: Final = (*ABSENT, "-", "n/e", "N/A")
ENTSOE_TIME: Final = r"^(\d\d)[./](\d\d)[./](\d{4}) (\d\d:\d\d(?::\d\d)?)(?: \((\w+)\))?(?: - .*)?$"
ENTSOE_OFFSETS: Final = {
    "UTC": "Z",
    "WET": "Z",
    "WEST": "+0100",
    "CET": "+0100",
    "CEST": "+0200",
    "EET": "+0200",
    "EEST": "+0300",
}
LATEST_S: Final = 7.2e9  # in 2198
MOST_VALUE: Final = 1e9
CALENDAR_RATIO: Final = 1.12
"""Of the longest to the shortest month, day or year, 31 to 28 days, 25 to 23 hours."""


def read_series(path: Path, quantity: Quantity, said: SeriesOptions | None = None) -> Series:
    """Read a series of prices or carbon intensities.

    Args:
        path: CSV, JSON, XML or Parquet, in one of the forms of ``docs/electricity.md``.
        quantity: What the values are.
        said: What the file does not state; how gaps and times outside are treated.

    Raises:
        TraceError: If the file cannot be read, does not state what must be known, contradicts
            `said`, or has gaps or overlaps; with the line and the column.
    """
    said = said or SeriesOptions()
    texts = read_texts(path)
    form = recognise(texts.table, path, quantity, said)
    notes = [form.note] if form.note else []
    faults = list(_zone_faults(texts, form, said, path))
    try:
        factor, unit, kind = settle(form, quantity, said, path)
        texts, area = _choose_rows(texts, form, said, path, notes)
    except TraceError as error:
        faults = [*error.problems, *faults]
    if faults:
        raise TraceError(faults)
    time_s, value, texts = _parse_rows(texts, form, quantity, said, path, notes)
    slot_s = None
    if form.end and said.stamp != "end":
        slot_s = parse_times(texts.table, form.end, {}, numbers=False).seconds - time_s
    edges = _find_edges(time_s, slot_s, texts, said, path, notes)
    if factor != 1.0:
        notes.append(f"values are converted from {said.unit or form.unit} to {unit}")
    return Series(
        edges[:-1],
        float(edges[-1]),
        value * factor,
        unit,
        kind,
        str(path),
        area,
        said.repeat,
        tuple(notes),
    )


def _zone_faults(texts: Texts, form: Form, said: SeriesOptions, path: Path) -> Iterator[Problem]:
    """What is wrong with the zone of times without an offset, if anything."""
    cells = _time_cells(texts, form)
    absent = pc.is_in(strip_cells(texts.table, form.column), value_set=pa.array(MISSING))
    naive = ~np.asarray(pc.match_substring_regex(cells, OFFSET), dtype=bool) & ~np.asarray(absent)
    time_s = parse_times(pa.table({form.time: cells}), form.time, {}, numbers=False).seconds
    rows = np.flatnonzero(naive & ~np.isnan(time_s))
    zone = said.zone or form.zone
    if len(rows) and not zone:
        shown = format_time(float(time_s[rows[0]]))[:-1]
        yield Problem(
            f"{form.time} is {shown}, without an offset from UTC: say its `zone` ({KINDS})",
            f"{path}, {texts.row} {texts.numbers[rows[0]]}",
        )
    elif len(rows):
        try:
            _find_zone(zone, path)
        except TraceError as error:
            yield from error.problems


def _time_cells(texts: Texts, form: Form) -> pa.Array:
    """The column of times, those of ENTSO-E as ISO 8601 dates."""
    cells = strip_cells(texts.table, form.time)
    if form.name == ENTSOE:
        cells = pc.replace_substring_regex(cells, ENTSOE_TIME, r"\3-\2-\1 \4 \5")
        for marker, offset in ENTSOE_OFFSETS.items():
            cells = pc.replace_substring_regex(cells, f" {marker}$", offset)
    return cells


def _choose_rows(
    texts: Texts, form: Form, said: SeriesOptions, path: Path, notes: list[str]
) -> tuple[Texts, str]:
    """The rows of one area, and of one of several auctions for the same time; and the area."""
    area = said.area
    if form.area or area:
        cells = strip_cells(texts.table, form.area) if form.area else pa.array([""])
        areas = sorted(filter(None, cells.unique().to_pylist()))
        if area not in areas and (area or len(areas) > 1):
            state = f"has no area {area!r}" if area else f"has {len(areas)} areas"
            have = f"one of {', '.join(map(quote, areas[:20]))}" if areas else "none"
            raise TraceError(f"{state}; `area` must be {have}", path)
        texts = texts.keep(np.asarray(pc.equal(cells, area))) if area else texts
        area = area or "".join(areas)
    if form.sequence:
        cells = strip_cells(texts.table, form.sequence)
        labels = sorted(cells.unique().to_pylist(), key=_auction_order)
        texts = texts.keep(np.asarray(pc.equal(cells, labels[0])))
        others = f", not {', '.join(map(quote, labels[1:]))}" if labels[1:] else ""
        if others or form.name != ENTSOE:
            notes.append(f"{quote(labels[0])} is read{others}")
    return texts, area


def _auction_order(label: str) -> tuple[bool, list[tuple[int, str]]]:
    """Sorts labels of auctions: numbers in them by their values, those without sequence first."""
    parts = re.findall(r"[0-9]+|[^0-9]+", label)
    return "Without" not in label, [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


def _parse_rows(
    texts: Texts, form: Form, quantity: Quantity, said: SeriesOptions, path: Path, notes: list[str]
) -> tuple[Floats, Floats, Texts]:
    """Times (UTC) and values in order of time, and the rows that they come from."""
    wrong: Wrong = {}
    cells = _time_cells(texts, form)
    table = pa.table({form.time: cells})
    time_s = parse_times(table, form.time, wrong, numbers=False, needed=True).seconds
    value = parse_numbers(texts.table, form.column, wrong, absent=MISSING)
    least = 0.0 if quantity == "carbon" else -MOST_VALUE
    for bad, name, must in (
        ((time_s < DAY_S) | (time_s > LATEST_S), form.time, "between 1970 and 2198"),
        ((value < least) | (value > MOST_VALUE), form.column, f"{least:g} to {MOST_VALUE:g}"),
    ):
        for row in np.flatnonzero(bad)[:MOST_FAULTS].tolist():
            found = quote(texts.table[name][row].as_py())
            wrong.setdefault(row, f"{name} is {found}, must be {must}")
    _refuse(wrong, texts, path)
    held = ~np.isnan(value)
    if not held.all():
        notes.append(f"{np.sum(~held)} {texts.row}s have no value in {form.column}")
    naive = ~np.asarray(pc.match_substring_regex(cells, OFFSET), dtype=bool) & held
    if naive.any():
        zone = said.zone or form.zone
        time_s[naive], wrong = _to_utc(time_s[naive], zone, form, np.flatnonzero(naive), path)
        _refuse(wrong, texts, path)
    elif said.zone:
        notes.append(f"each time has its offset from UTC: zone {said.zone} is not used")
    order = np.flatnonzero(held)
    if (np.diff(time_s[order]) < 0).any():
        notes.append("rows are not in the order of time, and were sorted")
        order = order[np.argsort(time_s[order], kind="stable")]
    return time_s[order], value[order], texts.take(order)


def _refuse(wrong: Mapping[int, str], texts: Texts, path: Path) -> None:
    """Raise if there are faults, by row of the texts."""
    places = [(row, f"{path}, {texts.row} {texts.numbers[row]}") for row in sorted(wrong)]
    if places:
        raise TraceError([Problem(wrong[row], place) for row, place in places[:MOST_FAULTS]])


def _to_utc(
    local_s: Floats, zone: str, form: Form, rows: Ints, path: Path
) -> tuple[Floats, dict[int, str]]:
    """Times in UTC of times on the clocks of a zone, and the faults by row."""
    instants = to_instants(local_s, _find_zone(zone, path))
    bad, utc_s, wrong = instants.is_never, instants.first_s, {}
    if form.name == ENTSOE:
        is_first = np.zeros(len(local_s), dtype=bool)
        is_first[np.unique(local_s, return_index=True)[1]] = True
        utc_s = np.where(is_first, utc_s, instants.last_s)
    else:
        bad = bad | instants.is_twice
    for place in np.flatnonzero(bad)[:MOST_FAULTS].tolist():
        shown = format_time(float(local_s[place]))[:-1]
        wrong[int(rows[place])] = (
            f"{form.time} is {shown}, which clocks in {zone} show twice or never, as daylight "
            f"saving changes: write its offset from UTC, as {shown}+01:00, or all times in UTC, "
            "or say another `zone`"
        )
    return utc_s, wrong


def _find_zone(name: str, path: Path) -> tzinfo:
    try:
        return find_zone(name)
    except ValueError as error:
        raise TraceError(f"`zone` {quote(name)} {error}", path) from None


def _find_edges(
    time_s: Floats,
    slot_s: Floats | None,
    texts: Texts,
    said: SeriesOptions,
    path: Path,
    notes: list[str],
) -> Floats:
    """Starts of all slots, and the end of the last; `slot_s`: their lengths, where they are known.

    Raises:
        TraceError: For overlaps, and for gaps and other uneven steps unless they are to be filled.
    """
    if len(time_s) < 2:
        raise TraceError("has fewer than two values: state a number instead of a series", path)
    steps = np.diff(time_s)

    def after(place: int) -> str:
        return f"{texts.row} {texts.numbers[place]} ({format_time(time_s[place])})"

    overlaps = np.flatnonzero(steps == 0)[:MOST_FAULTS].tolist()
    hint = "the slots overlap: keep one, or check their time zone"
    _refuse({i + 1: f"has the time of {after(i)}, {hint}" for i in overlaps}, texts, path)
    lengths, counts = np.unique(steps, return_counts=True)
    step, is_end = float(lengths[counts.argmax()]), said.stamp == "end"
    is_calendar = lengths[0] >= 23 * 3600 and lengths[-1] <= CALENDAR_RATIO * lengths[0]
    is_calendar &= slot_s is None
    usual_s = np.full(len(time_s), step) if slot_s is None else slot_s
    odd = np.flatnonzero(steps != usual_s[:-1])[:MOST_FAULTS].tolist() if not is_calendar else []
    if not said.fill or (is_end and lengths[0] < step):
        hint = "" if said.fill else "; `fill: previous` lets a value hold until the next"
        state = {i: "leaves a gap" if steps[i] > usual_s[i] else "is uneven" for i in odd}
        usual = {i: f"where {usual_s[i]:g} s are usual{hint}" for i in odd}
        faults = {i + 1: f"{state[i]}: {steps[i]:g} s after {after(i)}, {usual[i]}" for i in odd}
        _refuse(faults, texts, path)
    shown = " and ".join(f"{each:g}" for each in np.unique(usual_s))
    note = (
        f"{len(time_s)} values from {format_time(time_s[0])} to {format_time(time_s[-1])}, at the "
        f"{said.stamp} of slots of {shown} s{' (by the calendar)' * bool(is_calendar)}"
    )
    if odd:
        gaps = (steps - usual_s[:-1])[steps > usual_s[:-1]]
        note += f"; {len(gaps)} gaps, {gaps.sum() / 3600:.6g} hours in all, hold the value before"
    notes.append(note)
    if not is_end:
        return np.append(time_s, time_s[-1] + usual_s[-1])
    return np.append(time_s - step, time_s[-1]) if odd else np.append(time_s[0] - step, time_s)
