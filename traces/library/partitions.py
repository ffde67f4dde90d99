"""Limits and GPU types of a cluster's partitions, from a file, for jobs whose log lacks them.

The output of ``sinfo --format '%R|%l|%G'`` (``PARTITION``, ``TIMELIMIT``, ``GRES``), or a CSV file
with the columns ``partition``, ``limit`` (a span as Slurm writes them, or ``infinite``) or
``limit_s``, and ``gpu_type``. A partition may have several lines, of nodes with different GPUs.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError, cut_message
from wattkeeper.traces.formats.slurm.resources import parse_request
from wattkeeper.traces.readers.csvfile import quote
from wattkeeper.traces.readers.spans import parse_span
from wattkeeper.traces.readers.textfile import Layout, first_line, text_batches

NAMES: Final = {
    "partition": "partition",
    "queue": "partition",
    "limit": "limit",
    "timelimit": "limit",
    "limit_s": "limit_s",
    "gres": "gres",
    "gpu_type": "gpu_type",
}
NO_LIMIT: Final = ("", "infinite", "INFINITE", "UNLIMITED", "n/a", "N/A", "(null)")


class Partition(NamedTuple):
    """What the nodes of a partition offer.

    Attributes:
        limit_s: Longest run time; None: no limit is known.
        gpu_type: Types of its GPUs, with ``|`` between; None: not known.
    """

    limit_s: float | None
    gpu_type: str | None


def read_partitions(path: Path) -> Mapping[str, Partition]:
    """Partitions by name.

    Raises:
        TraceError: If the file cannot be read, or a line or column is wrong.
    """
    layout = Layout(delimiter="|" if "|" in first_line(path) else ",", quotes=False)
    problems: list[Problem] = []
    partitions: dict[str, Partition] = {}
    for batch in text_batches(path, layout):
        columns = _columns(batch.rows, path)
        problems += [Problem(text, f"{path}, line {line}") for line, text in batch.wrong.items()]
        for line, values in zip(batch.lines.tolist(), columns.to_pylist(), strict=True):
            name = values["partition"].strip().removesuffix("*")
            try:
                if not name:
                    raise ValueError("partition is empty, must be its name")
                partitions[name] = _join(partitions.get(name), _parse(values))
            except ValueError as error:
                problems.append(Problem(str(error), f"{path}, line {line}"))
    if problems:
        raise TraceError(problems)
    if not partitions:
        raise TraceError("has a header and no rows", path)
    return partitions


def _columns(table: pa.Table, path: Path) -> pa.Table:
    names = [NAMES.get(name.lower(), "") for name in table.column_names]
    known = [name for name in names if name]
    if "partition" not in known or len(known) < 2 or len(set(known)) < len(known):
        found = cut_message(", ".join(table.column_names))
        allowed = "partition, and limit or limit_s, and gpu_type or gres"
        raise TraceError(f"its columns are {found}; needed are {allowed}, each once", path)
    return pa.table([c for c, name in zip(table.columns, names, strict=True) if name], names=known)


def _parse(values: Mapping[str, str]) -> Partition:
    limit, kind = math.nan, values.get("gpu_type", "").strip() or None
    if (text := values.get("limit", "").strip()) not in NO_LIMIT:
        try:
            limit = parse_span(text)
        except ValueError as error:
            raise ValueError(f"limit is {quote(text)}, must be {error}, or infinite") from None
    if (text := values.get("limit_s", "").strip()) not in NO_LIMIT:
        try:
            limit = float(text)
        except ValueError:
            limit = -1.0
        if not 0 < limit <= 1e15:
            raise ValueError(f"limit_s is {quote(text)}, must be a number of seconds > 0, or empty")
    if "gres" in values:
        request = parse_request(values["gres"].strip(), "GRES")
        if request.fault:
            raise ValueError(f"gres: {request.fault}")
        kind = request.gpu_type
    return Partition(limit if limit > 0 else None, kind)


def _join(before: Partition | None, more: Partition) -> Partition:
    if before is None:
        return more
    limits = [limit for limit in (before.limit_s, more.limit_s) if limit is not None]
    kinds = {kind for part in (before, more) for kind in (part.gpu_type or "").split("|") if kind}
    return Partition(max(limits, default=None), "|".join(sorted(kinds)) or None)
