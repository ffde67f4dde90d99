"""Spans of time as Slurm writes them."""

import math
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.readers.columns import Wrong, parse_numbers, strip_cells
from wattkeeper.traces.readers.csvfile import ABSENT

SPAN: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
FULL: Final = (
    r"^(?:(?P<days>\d{1,9})-)?(?P<hours>\d{1,9}):"
    r"(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d(?:\.\d+)?)$"
)
NO_LIMIT: Final = (*ABSENT, "UNLIMITED", "Partition_Limit", "Unknown", "N/A", "INVALID")
"""What Slurm writes in place of a time limit where a job has none of its own."""
NAMED: Final = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
"""Seconds of each part of `FULL`."""


def parse_span(text: str, absent: Sequence[str] = ()) -> float:
    """Seconds of ``[D-[HH:]]MM:SS`` or ``HH:MM:SS``, the formats that sacct writes."""
    if text in absent:
        return math.nan
    match = SPAN.fullmatch(text)
    if match is None:
        raise ValueError("a time span as 1-02:03:04 or 02:03:04 (D-HH:MM:SS), or 03:04 (MM:SS)")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_seconds(
    table: pa.Table,
    name: str,
    wrong: Wrong,
    *,
    needed: bool = False,
    absent: Sequence[str] = ABSENT,
) -> Floats:
    """A column of numbers of seconds, or of spans as ``02:03:04`` or ``1-02:03:04``.

    Without hours a span could be of minutes and seconds or of hours and minutes: it is a fault.
    Arguments as in `parse_numbers`.
    """
    cells = strip_cells(table, name)
    if not pc.any(pc.match_substring(cells, ":")).as_py():
        return parse_numbers(table, name, wrong, needed=needed, absent=absent, unit="seconds")
    parts = pc.extract_regex(cells, FULL)
    others = pc.if_else(parts.is_valid(), "0", cells)
    unit = "seconds, or a span as 02:03:04 or 1-02:03:04 (D-HH:MM:SS)"
    seconds = parse_numbers(
        pa.table({name: others}), name, wrong, needed=needed, absent=absent, unit=unit
    )
    for part, length_s in NAMED.items():
        texts = pc.struct_field(parts, part)
        texts = pc.if_else(pc.equal(texts, ""), "0", texts).fill_null("0")
        seconds = seconds + length_s * np.asarray(texts.cast(pa.float64()))
    return seconds
