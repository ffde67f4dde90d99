"""The results folder of a sweep: one table of all points, and a results folder for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.run.unit import software_versions
from wattkeeper.scenarios.spec.wording import axis_text
from wattkeeper.scenarios.sweep.cache import is_stored, link_folder, load
from wattkeeper.scenarios.sweep.work import PointWork
from wattkeeper.sim.cluster_results.schemas import CLUSTER
from wattkeeper.sim.results.checksums import write_sums
from wattkeeper.sim.results.folder import SWEEP, check_folder, to_json
from wattkeeper.sim.results.summary import VALUES, metric_values
from wattkeeper.traces.files.atomic import replace_folder, resolve
from wattkeeper.traces.schema import field

if TYPE_CHECKING:
    from wattkeeper.scenarios.document.blocks import Document


def write_sweep(folder: Path, works: Sequence[PointWork]) -> Document:
    """Write the results folder of a sweep, whole or not at all; older results there are replaced.

    Points where a unit failed have no folder; what was done of them is in the table.

    Raises:
        InputError: If the folder holds anything but results of a sweep.
    """
    from wattkeeper.scenarios.document.comparisons.sweep import describe_sweep, read_rows
    from wattkeeper.scenarios.report.page import render_document

    check_folder(folder, CLUSTER, sweep=True)
    with replace_folder(resolve(folder)) as fresh:
        (fresh / "points").mkdir()
        for work in works:
            if work.done.exists():
                link_folder(work.done, fresh / "points" / work.point.id)
        _write_metrics(fresh / "metrics.parquet", works)
        text = to_json(_describe(works))
        (fresh / SWEEP).write_text(text, encoding="utf-8")
        done = [work.point.id for work in works if work.done.exists()]
        write_sums(fresh, study.checked_files_of_sweep(done))
        about = json.loads(text)
        points = read_rows(fresh, about, check=False)
        studies = study.finished_points(fresh, about, check=False)
        document = describe_sweep(about, points, next((saved for _, saved in studies), None))
        (fresh / "report.html").write_text(render_document(document), encoding="utf-8")
    return document


def _describe(works: Sequence[PointWork]) -> Json:
    """The content of `sweep.json`; it does not depend on where the runs were done."""
    scenario = works[0].point.loaded.scenario
    digests: dict[str, str] = {}
    modelled: list[str] = []
    for work in works:
        if work.done.exists():
            manifest = study.read_json(work.done / "manifest.json")
            digests[work.point.id] = manifest["results_digest"]
            modelled = _distinct([*modelled, *manifest["modelled"]])
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "baseline": scenario.baseline,
        "variants": list(scenario.variants),
        "seeds": list(scenario.all_seeds),
        "axes": {
            path: _distinct([work.point.values[path] for work in works])
            for path in works[0].point.values
        },
        "points": [
            {
                "id": work.point.id,
                "values": dict(work.point.values),
                "state": "failed" if work.failures else "done",
                "failures": [
                    work.failures[unit.result]
                    for unit in work.units
                    if unit.result in work.failures
                ],
                "results_digest": digests.get(work.point.id),
            }
            for work in works
        ],
        "inputs": _distinct([source for work in works for source in work.sources]),
        "modelled": modelled,
        "versions": software_versions(),
    }


def _distinct(values: Sequence[Any]) -> list[Any]:
    """The values, each once, in their order."""
    return list({json.dumps(value): value for value in values}.values())


def _column(values: Sequence[Any]) -> tuple[pa.DataType, list[Any]]:
    """The type of an axis's column and its values: numbers and booleans as such, others as text."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_(), list(values)
    if kinds <= {int, float}:
        return pa.int64() if kinds == {int} else pa.float64(), list(values)
    return pa.string(), [axis_text(value) for value in values]


def _write_metrics(path: Path, works: Sequence[PointWork]) -> None:
    axes = {
        axis: _column([work.point.values[axis] for work in works]) for axis in works[0].point.values
    }
    schema = pa.schema(
        [
            field("point", pa.string(), "", "point of the sweep"),
            *(field(axis, kind, "", "axis of the sweep") for axis, (kind, _) in axes.items()),
            *VALUES,
        ]
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for number, work in enumerate(works):
            values = _metrics_of(work)
            if values is None:
                continue
            keys = [pa.repeat(pa.scalar(work.point.id), len(values))]
            keys += [
                pa.repeat(pa.scalar(column[number], kind), len(values))
                for kind, column in axes.values()
            ]
            columns = [*keys, *values.cast(VALUES).columns]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))


def _metrics_of(work: PointWork) -> pa.Table | None:
    """The metrics of all runs of a point that are done; None if no run is."""
    if work.done.exists():
        return study.read_table(work.done, "metrics")
    stored = (load(unit.result).result for unit in work.units if is_stored(unit.result))
    results = [result for result in stored if not isinstance(result, Exception)]
    return metric_values(results) if results else None
