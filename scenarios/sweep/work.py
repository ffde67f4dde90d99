"""The work of a sweep: its points, their units, and where inputs and results are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import TraceProvenance
from wattkeeper.scenarios.run.manifest import provenance
from wattkeeper.scenarios.run.unit import code_digest
from wattkeeper.scenarios.spec.variants import RunSpec, run_specs
from wattkeeper.scenarios.sweep.cache import is_kept, keep
from wattkeeper.scenarios.sweep.points import SweepPoint, with_inputs


class SweepUnit(NamedTuple):
    """A variant with a seed at a point, and where its inputs and its result are kept."""

    point: str
    spec: RunSpec
    inputs: Path
    result: Path


@dataclass
class PointWork:
    """What there is to do at a point.

    Attributes:
        point: The point.
        sources: Where its inputs come from.
        inputs: Where they are kept.
        folder: Where its units are kept, and at last the results of all.
        units: All of them, in the scenario's order.
        missing: Results of those that are not there.
        failures: Units that failed, as `sweep.json` lists them, by result.
    """

    point: SweepPoint
    sources: list[TraceProvenance]
    inputs: Path
    folder: Path
    units: list[SweepUnit]
    missing: set[Path] = field(default_factory=set)
    failures: dict[Path, Json] = field(default_factory=dict)

    @property
    def done(self) -> Path:
        """The results folder of the point."""
        return self.folder / "done"


def prepare(found: Sequence[SweepPoint], folder: Path) -> list[PointWork]:
    """All that is to be done, points with the same inputs one after the other."""
    shutil.rmtree(folder / "inputs", ignore_errors=True)
    works: list[PointWork] = []
    try:
        for number, (same, inputs) in enumerate(with_inputs(found)):
            path = folder / "inputs" / f"{number}"
            sources = [provenance(trace) for trace in inputs.traces]
            keep(path, inputs._replace(traces=()))
            works += [_work(point, sources, path, folder) for point in same]
    except BaseException:
        shutil.rmtree(folder / "inputs", ignore_errors=True)
        raise
    return works


def _work(
    point: SweepPoint, sources: list[TraceProvenance], inputs: Path, folder: Path
) -> PointWork:
    scenario = point.loaded.scenario
    content = (scenario.model_dump_json(), json.dumps(sources), code_digest())
    own = folder / sha256("\n".join(content).encode()).hexdigest()[:32]
    order = {name: number for number, name in enumerate(scenario.variants)}
    units = [
        SweepUnit(point.id, spec, inputs, own / f"{order[spec.variant]}-{spec.seed}")
        for spec in run_specs(scenario)
    ]
    work = PointWork(point, sources, inputs, own, units)
    if not work.done.exists():
        work.missing = {unit.result for unit in units if not is_kept(unit.result)}
    return work
