"""Readings of GPUs as CSV: of nvidia-smi, or of DCGM."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import TraceError, cut_message
from wattkeeper.traces.formats.power_log.readings import (
    BLANK,
    COUNTER,
    GPUS,
    MILLISECONDS,
    NODES,
    USAGE,
    Faults,
    FileReadings,
    host_of,
    take,
)
from wattkeeper.traces.power.spans import MOST_POWER_W, Readings
from wattkeeper.traces.readers.columns import Wrong, add_fault, parse_times, strip_cells
from wattkeeper.traces.readers.csvfile import quote
from wattkeeper.traces.readers.textfile import COMMAS, REPEATED, first_line, text_batches

TIMES: Final = ("timestamp", "time")
POWERS: Final = ("power.draw.average", "power.draw", "power.draw.instant", "power_w", USAGE)
VALUE: Final = r"^(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) ?(?P<unit>[A-Za-z]*)$"
ABSENT: Final = ("", "N/A", "[N/A]", "NaN", "nan", "[GPU is lost]")
BRACKETED: Final = r"^\[.*(?:N/A|Not Supported|Unknown Error|lost|Insufficient).*\]$"
QUERY: Final = "nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv -l 1"


def _canonical(header: Sequence[str]) -> dict[str, str]:
    """The names of columns by their words without unit and case."""
    names = (name.strip().strip('"').strip() for name in header)
    return {re.sub(r"\s*\[.*\]$", "", name).lower(): name for name in names}


def _first(names: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((names[name] for name in wanted if name in names), None)


def read_table(path: Path, faults: Faults) -> Iterator[FileReadings]:
    """The readings of a CSV file."""
    names = _canonical(first_line(path).split(","))
    time, gpu, node = (_first(names, wanted) for wanted in (TIMES, GPUS, NODES))
    power, counter = _first(names, POWERS), names.get(COUNTER)
    lacks = [
        " or ".join(wanted)
        for wanted, found in ((TIMES, time), (GPUS, gpu), ((*POWERS, COUNTER), power or counter))
        if found is None
    ]
    if lacks or time is None or gpu is None:
        found = cut_message(", ".join(names.values()), 300)
        text = f"has no column {'; nor '.join(lacks)}; found {found}. Write it with: {QUERY}"
        raise TraceError(text, f"{path}, line 1")
    for batch in text_batches(path, COMMAS):
        wrong: Wrong = {}
        table = batch.rows
        repeated = {line for line, text in batch.wrong.items() if text == REPEATED}
        dates = pc.replace_substring(strip_cells(table, time), "/", "-")
        times = parse_times(pa.table({time: dates}), time, wrong, needed=True)
        seconds = times.seconds
        if times.kinds.numbers:
            seconds = np.where(seconds >= MILLISECONDS, seconds / 1000, seconds)
        power_w = _values(table, power, wrong, "W", MOST_POWER_W)
        energy_j = _values(table, counter, wrong, "mJ", np.inf) / 1000
        gpus = strip_cells(table, gpu)
        for row in np.flatnonzero(np.asarray(pc.equal(gpus, ""))).tolist():
            add_fault(wrong, row, f"{gpu} is empty")
        hosts = (
            pa.repeat(host_of(path), table.num_rows) if node is None else strip_cells(table, node)
        )
        good = np.ones(table.num_rows, dtype=bool)
        good[list(wrong)] = False
        rows = {line: text for line, text in batch.wrong.items() if line not in repeated}
        faults.rows += table.num_rows + len(rows)
        faults.add(path, rows | {int(batch.lines[row]): text for row, text in wrong.items()})
        yield FileReadings(
            take(Readings(hosts, gpus, seconds, power_w, energy_j), good), times.kinds
        )


def _values(table: pa.Table, name: str | None, wrong: Wrong, unit: str, most: float) -> Floats:
    """A column of numbers, with their unit or without; NaN where a GPU does not tell."""
    if name is None:
        return np.full(table.num_rows, np.nan)
    cells = strip_cells(table, name)
    parts = pc.extract_regex(cells, VALUE)
    numbers = pc.struct_field(parts, "number").cast(pa.float64()).fill_null(np.nan)
    values: Floats = np.array(numbers, dtype=float)
    units = pc.struct_field(parts, "unit").fill_null("")
    missing = np.asarray(
        pc.or_(
            pc.is_in(cells, value_set=pa.array(ABSENT)), pc.match_substring_regex(cells, BRACKETED)
        )
    )
    missing |= values >= (BLANK if unit == "W" else 1e18)
    fits = np.asarray(pc.is_in(units, value_set=pa.array(["", unit])))
    bad = ~missing & ~(fits & (values >= 0) & (values <= most))
    for row in np.flatnonzero(bad).tolist():
        must = f"must be a number of {unit} >= 0" + f", at most {most:,g}" * math.isfinite(most)
        add_fault(wrong, row, f"{name} is {quote(cells[row].as_py())}, {must}")
    values[missing | bad] = np.nan
    return values


def has_columns(path: Path) -> bool:
    """Whether the header of a file has the columns that are needed."""
    names = _canonical(first_line(path).split(","))
    wanted = (TIMES, GPUS, (*POWERS, COUNTER))
    return all(_first(names, each) is not None for each in wanted)
