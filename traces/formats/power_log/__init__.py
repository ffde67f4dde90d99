"""Power of GPUs over time: logs of nvidia-smi, and of DCGM's exporter as text or CSV.

A CSV file has a header and a row a reading: ``timestamp`` or ``time`` (a date, as nvidia-smi writes
it, or seconds or milliseconds since 1970), ``index``, ``gpu`` or ``uuid``, the host (``node``,
``host``, ``hostname`` or ``instance``; without such a column, the file is of the host that it is
named after), and ``power.draw [W]`` (also ``.average`` or ``.instant``), ``power_w``,
``DCGM_FI_DEV_POWER_USAGE`` (W) or ``DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION`` (mJ since the driver was
loaded). Text is that of Prometheus with a time behind each value. Sources: nvidia-smi(1);
default-counters.csv of NVIDIA/dcgm-exporter; the exposition formats of Prometheus.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Bools
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.formats.power_log.readings import Faults, FileReadings, join, take
from wattkeeper.traces.formats.power_log.scrape import has_power, is_scrape, read_scrape
from wattkeeper.traces.formats.power_log.table import has_columns, read_table
from wattkeeper.traces.power.join import CLOCK
from wattkeeper.traces.power.spans import find_spans
from wattkeeper.traces.readers.base import Format, Kinds
from wattkeeper.traces.readers.textfile import check_text
from wattkeeper.traces.trace import Trace

NO_POWER: Final = "has no power reading"


def read(paths: Sequence[Path]) -> Trace:
    """The spans of known power in files, all of whose lines must be well-formed."""
    return _read(paths, skip_bad=False)


def read_good(paths: Sequence[Path]) -> Trace:
    """The spans of known power in files, malformed lines left out and counted."""
    return _read(paths, skip_bad=True)


def _read(paths: Sequence[Path], *, skip_bad: bool) -> Trace:
    faults, parts, kinds = Faults(), list[FileReadings](), Kinds()
    twice = sorted(name for name, n in Counter(path.name for path in paths).items() if n > 1)
    if twice:
        raise TraceError(f"{twice[0]} is the name of several files; name each after its host")
    for path in paths:
        check_text(path)
        for part in read_scrape(path, faults) if is_scrape(path) else read_table(path, faults):
            parts.append(part)
            kinds |= part.kinds
    where = ", ".join(map(str, paths))
    if faults.wrong and not skip_bad:
        text = f"{faults.wrong} of {faults.rows} lines malformed; --skip-bad leaves them out"
        raise TraceError([*faults.problems, Problem(text, where)])
    if len({kind == "local" for kind in kinds.found}) > 1:
        raise TraceError("has times with and without a zone; import them apart", where)
    readings = join([part.readings for part in parts])
    known: Bools = np.isfinite(readings.power_w) | np.isfinite(readings.energy_j)
    dropped = {NO_POWER: int((~known).sum())} if not known.all() else {}
    spans = find_spans(take(readings, known))
    if not spans.table.num_rows:
        reasons = ", ".join(f"{n} {why}" for why, n in (dropped | spans.dropped).items())
        raise TraceError(f"has no two readings of a GPU ({reasons or 'no rows'})", where)
    left_out = dict(sorted((dropped | spans.dropped).items()))
    return Trace(
        name=derive_name(paths[0].stem.removesuffix(".csv")),
        kind="power-log",
        format=FORMAT.name,
        origin="recorded",
        tables={"power-log": spans.table},
        source="as the imported file",
        licence="as the imported file",
        inputs={path.name: digest_file(path) for path in paths},
        parameters={CLOCK: "local" if kinds.local else "utc"},
        quality={
            "rows": faults.rows,
            "wrong": faults.wrong,
            "wrong_examples": [f"{Path(p.where).name}: {p.message}" for p in faults.problems],
            "wrong_shown": len(faults.problems),
            "dropped": left_out,
        },
    )


def sniff(path: Path) -> bool:
    """Whether a file has the columns, or lines, of a power log; reads only its beginning."""
    return has_power(path) if is_scrape(path) else has_columns(path)


FORMAT: Final = Format(
    name="power-log",
    summary="power of GPUs over time: nvidia-smi --query-gpu as CSV, DCGM's exporter as text of "
    "Prometheus with times, or as CSV; for --power of an import of jobs",
    takes="any number of files, plain or gzip; one without a column of hosts is named after its "
    "host",
    read=read,
    sniff=sniff,
    read_good=read_good,
)
