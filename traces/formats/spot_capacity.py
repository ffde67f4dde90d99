"""Number of spot nodes over time: a curve of capacity, or one by region.

Without a header, rows are ``time,count`` as in the recordings of Varuna and Bamboo (whole numbers
are seconds, numbers with a decimal point hours), or ``date, time, count``. With a header ``time_s``
and one name a region, rows are seconds and a count by region.
"""

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS
from wattkeeper.traces.node_events import NodeEvent, events_table
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_whole
from wattkeeper.traces.readers.textfile import first_line, one_path
from wattkeeper.traces.trace import Trace

CURVE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?), *(\d{1,6})")
DATED: Final = re.compile(r"(\d{4}-\d\d-\d\d), *(\d\d:\d\d:\d\d), *(\d{1,6})")
MOST_NODES: Final = 100_000

Counts = list[tuple[float, tuple[int, ...]]]
"""Time (s), and the count of each region from then on."""


def read(paths: Sequence[Path]) -> Trace:
    """The nodes that the counts stand for: a rise adds names, a fall takes those added last."""
    path = one_path(paths, "CSV file")
    lines = [
        (number, line.strip())
        for number, line in enumerate(
            read_whole(path, MOST_BYTES).decode("utf-8", "replace").splitlines(), 1
        )
        if line.strip()
    ]
    if not lines:
        raise TraceError("has no rows", path)
    regions, counts, note = _counts(lines, path)
    events = list(_events(regions, counts))
    if not events:
        raise TraceError("no node ever comes", path)
    notes = (
        note,
        "A fall of a count takes the nodes that came last; which ones went is not recorded.",
    )
    return Trace(
        name=derive_name(path.stem),
        kind="node-events",
        format="spot-capacity",
        origin="recorded",
        tables={"node-events": events_table(events)},
        inputs={path.name: digest_file(path)},
        source="counts of spot nodes",
        licence="as the imported file",
        notes=notes,
    )


def _counts(lines: Sequence[tuple[int, str]], path: Path) -> tuple[list[str], Counts, str]:
    """Names of the regions, their counts by time, and how times were read."""
    header = [name.strip() for name in lines[0][1].split(",")]
    if header[0] == "time_s" and len(header) > 1:
        return header[1:], _by_region(lines[1:], len(header), path), "Times are in s."
    dated = DATED.fullmatch(lines[0][1]) is not None
    is_hours = not dated and any("." in line.split(",")[0] for _, line in lines)
    rows: Counts = []
    problems = []
    for number, line in lines:
        row = (DATED if dated else CURVE).fullmatch(line)
        if row is None or int(row[row.re.groups]) > MOST_NODES:
            want = "date, time, count" if dated else "time,count"
            what = f"{line[:60]!r} is not {want}, with at most {MOST_NODES:,} nodes"
            problems.append(Problem(what, f"{path}, line {number}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        if dated:
            moment = datetime.fromisoformat(f"{row[1]}T{row[2]}").replace(tzinfo=UTC)
            rows.append((moment.timestamp(), (int(row[3]),)))
        else:
            rows.append((float(row[1]) * (3600 if is_hours else 1), (int(row[2]),)))
    if problems:
        raise TraceError(problems)
    if dated:
        rows.sort(key=lambda row: row[0])
        first_s = rows[0][0]
        rows = [(time_s - first_s, count) for time_s, count in rows]
        return ["node"], rows, "Rows are sorted by time; the last one of a time counts."
    return ["node"], rows, f"Times are in {'h' if is_hours else 's'}."


def _by_region(lines: Sequence[tuple[int, str]], width: int, path: Path) -> Counts:
    rows: Counts = []
    for number, line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        try:
            time_s, counts = float(cells[0]), tuple(int(cell) for cell in cells[1:])
        except ValueError:
            counts, time_s = (), math.nan
        if (
            len(cells) != width
            or not all(0 <= count <= MOST_NODES for count in counts)
            or not (0 <= time_s < math.inf)
        ):
            what = f"{line[:60]!r} is not a time in s and {width - 1} counts of nodes"
            raise TraceError(what, f"{path}, line {number}")
        rows.append((time_s, counts))
    return rows


def _events(regions: Sequence[str], counts: Counts) -> Iterator[NodeEvent]:
    up: list[list[str]] = [[] for _ in regions]
    named = [0] * len(regions)
    latest = dict(counts)  # the last row of a time
    for time_s in sorted(latest):
        falls: list[NodeEvent] = []
        rises: list[NodeEvent] = []
        for index, (region, want) in enumerate(zip(regions, latest[time_s], strict=True)):
            while len(up[index]) > want:
                falls.append(NodeEvent(time_s, "down", up[index].pop()))
            while len(up[index]) < want:
                named[index] += 1
                up[index].append(f"{region}-{named[index]}")
                rises.append(NodeEvent(time_s, "up", up[index][-1]))
        yield from falls
        yield from rises


def sniff(path: Path) -> bool:
    """Whether the first line is a row of such a curve."""
    line = first_line(path).strip()
    return any(form.fullmatch(line) for form in (CURVE, DATED))


FORMAT: Final = Format(
    name="spot-capacity",
    summary="number of spot nodes over time, or by region",
    takes="one file: time,count or date, time, count; or a header time_s and names of regions",
    read=read,
    sniff=sniff,
)
