"""Measurements of one's own: a table of trainings, and optionally one of their evaluations.

One row is a measurement: the time, and if measured the energy or mean power, of an epoch, a step
or a whole run to the target. The columns are `ROWS`, those of evaluations `EVALUATIONS`; a CSV file
may begin with lines ``# KEY: TEXT`` that say what it is (`ABOUT`), a Parquet file may have these
keys in its metadata. What is not stated is not filled in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.files.regular import open_file
from wattkeeper.traces.formats.profiles.faults import find_faults
from wattkeeper.traces.formats.profiles.rows import (
    EVALUATIONS,
    NAMES,
    ROWS,
    Row,
    RunKey,
    run_key,
    setting_of,
)
from wattkeeper.traces.formats.profiles.tables import MeasuredTable, read_table
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.measurements import (
    Evaluation,
    MeasuredEpochs,
    MeasuredWorkload,
    build_tables,
)
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.textfile import SNIFFED_BYTES
from wattkeeper.traces.schema import is_optional
from wattkeeper.traces.trace import Trace

UNKNOWN: Final = "not stated"


def read(paths: Sequence[Path]) -> Trace:
    """Read a table of measurements, and one of evaluations if there is a second path.

    Raises:
        TraceError: If a file is wrong; the message names the row.
    """
    if len(paths) > 2:
        raise TraceError(f"{len(paths)} files; a table, and at most one of evaluations", paths[2])
    table = read_table(paths[0], ROWS)
    evaluations = [read_table(path, EVALUATIONS) for path in paths[1:]]
    _check(table, find_faults)
    points = _evaluations(evaluations[0], table) if evaluations else {}
    measured = [_measure(row, table.where(number), points) for number, row in enumerate(table.rows)]
    about = {key: text for key, text in table.about.items() if key != "name"}
    name = table.about.get("name") or derive_name(paths[0].name.split(".")[0])
    return Trace(
        name=name,
        kind="profiles",
        tables=build_tables(measured, list(_workloads(table))),
        format=FORMAT.name,
        origin="recorded",
        source=about.get("source", UNKNOWN),
        licence=about.get("licence", UNKNOWN),
        inputs={file.path.name: file.sha256 for file in (table, *evaluations)},
        parameters={"about": about},
    )


def _check(
    table: MeasuredTable, find: Callable[[Sequence[Row]], Iterable[tuple[int, str]]]
) -> None:
    problems = [Problem(text, table.where(number)) for number, text in find(table.rows)]
    if problems:
        raise TraceError(problems[:MOST_FAULTS])


def _measure(
    row: Row, where: str, points: Mapping[RunKey, tuple[Evaluation, ...]]
) -> MeasuredEpochs:
    epochs = {"epoch": 1.0, "run": row["epochs"], "step": 1 / (row["steps_per_epoch"] or 1)}
    share = 1 / epochs[row["per"]]
    energy_j = row["energy_j"]
    if row["power_w"] is not None:
        energy_j = row["power_w"] * row["time_s"]
    return MeasuredEpochs(
        setting_of(row),
        row["time_s"] * share,
        epoch_j=None if energy_j is None else energy_j * share,
        energy_of=row["energy_of"],
        nodes=row["nodes"],
        epochs=row["epochs"],
        reached=row["reached"] == "yes",
        seed=row["seed"],
        evaluations=points.get(run_key(row), ()) if row["seed"] is not None else (),
        where=where,
    )


def _evaluations(
    table: MeasuredTable, runs: MeasuredTable
) -> Mapping[RunKey, tuple[Evaluation, ...]]:
    """Evaluations by run.

    Raises:
        TraceError: If one belongs to no run or to several, repeats one, or is after its end.
    """
    rows: dict[RunKey, list[Row]] = defaultdict(list)
    for row in runs.rows:
        if row["seed"] is not None:
            rows[run_key(row)].append(row)
    points: dict[RunKey, dict[int, Evaluation]] = defaultdict(dict)

    def find(evaluations: Sequence[Row]) -> Iterator[tuple[int, str]]:
        for number, row in enumerate(evaluations):
            key = run_key(row)
            own = rows.get(key, [])
            if len(own) != 1:
                text = f"belongs to {len(own)} runs in {runs.path.name}; must be one"
                yield number, f"{text} of the same workload, GPUs, batch size and seed"
            elif row["epoch"] > own[0]["epochs"]:
                yield number, f"epoch is {row['epoch']}, and its run has {own[0]['epochs']}"
            elif row["epoch"] in points[key]:
                yield number, f"epoch {row['epoch']} of the run is stated a second time"
            else:
                point = Evaluation(row["epoch"], own[0]["metric"], row["value"], row["time_s"])
                points[key][row["epoch"]] = point

    _check(table, find)
    return {key: tuple(own[epoch] for epoch in sorted(own)) for key, own in points.items()}


def _workloads(table: MeasuredTable) -> Iterator[MeasuredWorkload]:
    largest: dict[str, int] = {}
    for row in table.rows:
        largest[row["workload"]] = max(largest.get(row["workload"], 0), row["batch_size"])
    first = {row["workload"]: row for row in reversed(table.rows)}
    for name in largest:
        row = first[name]
        yield MeasuredWorkload(
            workload=name,
            metric=row["metric"],
            target=row["target"],
            higher_is_better=row["higher_is_better"] == "yes",
            default_batch_size=row["default_batch_size"] or largest[name],
            **{key: row[key] for key in NAMES},
        )


def sniff(path: Path) -> bool:
    """Whether a file begins with a header that has the needed columns."""
    needed = {want.name for want in ROWS if not is_optional(want)}
    try:
        with open_file(path) as file:
            if file.read(4) == b"PAR1":
                return needed <= set(pq.read_schema(path).names)
            file.seek(0)
            lines = file.read(SNIFFED_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, pa.ArrowException, ValueError):
        return False
    header = next((line for line in lines if not line.startswith("#")), "")
    return needed <= {cell.strip().strip('"') for cell in header.split(",")}


FORMAT: Final = Format(
    name="profiles",
    summary="measurements of one's own: time and energy of epochs, steps or runs",
    takes="a table (CSV or Parquet), and optionally one of evaluations",
    read=read,
    sniff=sniff,
)
