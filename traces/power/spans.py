"""From samples of power and readings of energy counters to spans of time with their mean power.

A sample of power holds until the next of its GPU. Between two readings of a counter the mean power
is known; where it falls, it was reset, and nothing is known. A span that is longer than `MOST_GAPS`
times the usual one of its GPU is a gap: of a sample of power, only a span of usual length counts.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.traces.schema import POWER_LOG

MOST_GAPS: Final = 3.0
"""A span that is so many times as long as the median of its GPU is a gap."""
MOST_POWER_W: Final = 20_000.0
"""Mean power of a GPU above which a reading is a fault."""
REPEATED: Final = "repeats a time of its GPU"
ALONE: Final = "is the only reading of its GPU, which says nothing of a span"
RESET: Final = "begins anew: the counter of energy was reset before"
GAP: Final = "ends a gap in the log, which counts as not measured"


class Readings(NamedTuple):
    """Readings of GPUs, one a row.

    Attributes:
        node: Name of the host.
        gpu: Index or UUID of the GPU on it.
        time_s: When, in seconds of the log's clock.
        power_w: Its power, W; NaN: not read.
        energy_j: Its counter of energy, J; NaN: not read.
    """

    node: pa.Array
    gpu: pa.Array
    time_s: Floats
    power_w: Floats
    energy_j: Floats


class Spans(NamedTuple):
    """A table of `POWER_LOG`, and the number of readings that say nothing, by reason."""

    table: pa.Table
    dropped: dict[str, int]


def find_spans(readings: Readings) -> Spans:
    """The spans of all GPUs, by node, GPU and time; those of a counter where there is one."""
    nodes, gpus = (column.dictionary_encode() for column in (readings.node, readings.gpu))
    keys: Ints = np.asarray(nodes.indices) * np.int64(len(gpus.dictionary)) + np.asarray(
        gpus.indices
    )
    order = np.lexsort((readings.time_s, keys))
    dropped: dict[str, int] = {}
    parts: list[tuple[Ints, Floats, Floats, Floats]] = []
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    for rows in np.split(order, bounds) if len(order) else ():
        counted: Bools = np.isfinite(readings.energy_j[rows])
        is_counter = int(counted.sum()) > 1
        values = readings.energy_j if is_counter else readings.power_w
        rows = rows[counted if is_counter else np.isfinite(readings.power_w[rows])]
        times_s = readings.time_s[rows]
        fresh = np.append(True, np.diff(times_s) > 0) if len(rows) else np.zeros(0, dtype=bool)
        _count(dropped, REPEATED, len(rows) - int(fresh.sum()))
        rows, times_s = rows[fresh], times_s[fresh]
        if len(rows) < 2:
            _count(dropped, ALONE, len(rows))
            continue
        make = _between_counts if is_counter else _after_samples
        starts_s, ends_s, powers_w = make(times_s, values[rows], dropped)
        parts.append((np.full(len(starts_s), rows[0]), starts_s, ends_s, powers_w))
    first, starts_s, ends_s, powers_w = (
        np.concatenate([part[n] for part in parts]) if parts else np.zeros(0) for n in range(4)
    )
    rows_of = pa.array(first.astype(np.int64))
    columns = {
        "node": readings.node.take(rows_of),
        "gpu": readings.gpu.take(rows_of),
        "start_s": starts_s,
        "end_s": ends_s,
        "power_w": powers_w,
    }
    return Spans(pa.table(columns, schema=POWER_LOG), dropped)


def _count(dropped: dict[str, int], reason: str, count: int) -> None:
    if count:
        dropped[reason] = dropped.get(reason, 0) + count


def _after_samples(
    times_s: Floats, powers_w: Floats, dropped: dict[str, int]
) -> tuple[Floats, Floats, Floats]:
    """Each sample holds until the next, and the last for a span of usual length."""
    gaps_s = np.diff(times_s)
    usual_s = float(np.median(gaps_s))
    is_gap = gaps_s > MOST_GAPS * usual_s
    _count(dropped, GAP, int(is_gap.sum()))
    lengths_s = np.append(np.where(is_gap, usual_s, gaps_s), usual_s)
    return times_s, times_s + lengths_s, powers_w


def _between_counts(
    times_s: Floats, energies_j: Floats, dropped: dict[str, int]
) -> tuple[Floats, Floats, Floats]:
    """Mean power between readings of a counter."""
    gaps_s, drawn_j = np.diff(times_s), np.diff(energies_j)
    reset = (drawn_j < 0) | (drawn_j > MOST_POWER_W * gaps_s)
    is_gap = (gaps_s > MOST_GAPS * float(np.median(gaps_s))) & ~reset
    _count(dropped, RESET, int(reset.sum()))
    _count(dropped, GAP, int(is_gap.sum()))
    kept = ~reset & ~is_gap
    return times_s[:-1][kept], times_s[1:][kept], (drawn_j / gaps_s)[kept]
