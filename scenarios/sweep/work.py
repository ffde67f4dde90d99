"""The work of a sweep: its points, their units, and where inputs and results are kept."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.manifest import TraceProvenance
from wattkeeper.scenarios.run.core import advise_compiling
from wattkeeper.scenarios.run.manifest import list_sources
from wattkeeper.scenarios.run.unit import code_digest
from wattkeeper.scenarios.spec.policy_files import PolicyFile, list_changes
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.scenarios.sweep.cache import is_stored
from wattkeeper.scenarios.sweep.points import SweepPoint, read_point_inputs
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import read_own_file
from wattkeeper.traces.files.seals import seal_json, unseal_json
from wattkeeper.traces.files.shared import SharedFile, SharedValue

POLICIES: Final = "policies.json"
"""In the folder of a sweep: texts of the files of policies."""


class SweepUnit(NamedTuple):
    """A variant with a seed at a point, and the file of its result."""

    spec: RunSpec
    result: Path


@dataclass
class PointWork:
    """The units of a point and their state.

    Attributes:
        point: The point.
        sources: Provenance of its inputs.
        inputs: Place of its inputs.
        folder: Folder of the results of its units, and in the end of the point.
        units: All units, in the scenario's order.
        missing: Results of units that are not there yet.
        failures: Units that failed, as `sweep.json` lists them, by result.
    """

    point: SweepPoint
    sources: list[TraceProvenance]
    inputs: SharedValue
    folder: Path
    units: list[SweepUnit]
    missing: set[Path] = field(default_factory=set)
    failures: dict[Path, Json] = field(default_factory=dict)

    @property
    def done(self) -> Path:
        """The results folder of the point."""
        return self.folder / "done"


def prepare(
    points: Sequence[SweepPoint], folder: Path, shared: SharedFile, tell: Callable[[str], None]
) -> list[PointWork]:
    """Read the inputs of all points; points with the same inputs follow each other.

    `shared`: where they are kept. `tell`: called with a line that the user should know.
    """
    works: list[PointWork] = []
    jobs = 0
    for same, inputs in read_point_inputs(points, tell):
        sources = list_sources(inputs)
        place = shared.write(inputs._replace(traces=()))
        alike = [_work(point, sources, place, folder) for point in same]
        units = (unit for work in alike for unit in work.units if unit.result in work.missing)
        jobs += sum(inputs.runs[unit.spec.variant.name].job_count for unit in units)
        works += alike
    if advice := advise_compiling(jobs):
        tell(advice)
    return works


def note_policy_files(files: Sequence[PolicyFile], folder: Path) -> list[str]:
    """Keep the texts of files of policies; file and line of those that were others before."""
    path = folder / POLICIES
    try:
        before = unseal_json(read_own_file(path))
    except (FileNotFoundError, ValueError):
        before = {}
    with replace_file(path, durable=False, private=True) as fresh:
        fresh.write_text(seal_json({file.name: file.source for file in files}), encoding="ascii")
    return list_changes(files, before)


def _work(
    point: SweepPoint, sources: list[TraceProvenance], inputs: SharedValue, folder: Path
) -> PointWork:
    scenario = point.loaded.scenario
    content = (scenario.model_dump_json(), json.dumps(sources), code_digest())
    own = folder / sha256("\n".join(content).encode()).hexdigest()[:32]
    order = {name: number for number, name in enumerate(scenario.variants)}
    units = [
        SweepUnit(spec, own / f"{order[spec.variant.name]}-{spec.seed}")
        for spec in point.loaded.runs
    ]
    work = PointWork(point, sources, inputs, own, units)
    if not own.exists():
        work.missing = {unit.result for unit in units}
    elif not _is_sound(work.done):
        shutil.rmtree(work.done, ignore_errors=True)
        work.missing = {unit.result for unit in units if not is_stored(unit.result)}
    return work


def _is_sound(folder: Path) -> bool:
    """Whether a point's results are there, as they were written."""
    try:
        study.read(folder)
    except InputError:
        return False
    return True
