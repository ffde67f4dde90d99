"""Scenarios from Python: `load`, `read` and `compare` of `wattkeeper.scenarios`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import compare as studies
from wattkeeper.scenarios.analysis import sim_vs_live, study
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.document.comparisons.compare import list_notes, summarise
from wattkeeper.scenarios.notebook.display import open_study
from wattkeeper.scenarios.notebook.docstrings import restore_docstrings
from wattkeeper.scenarios.notebook.flat_rows import comparison_rows
from wattkeeper.scenarios.notebook.sweep import SavedSweep
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec import loading
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.results.folder import is_sweep, restore_folder

if TYPE_CHECKING:
    import pandas as pd


Results = Study | SavedSweep | str | Path
"""What can be compared: a study, a sweep, or the folder of either."""

__all__ = ["RunnableScenario", "compare", "load", "read"]

restore_docstrings()


class RunnableScenario(loading.LoadedScenario):
    """A checked scenario that can be simulated."""

    def __repr__(self) -> str:
        """The scenario and the number of its runs, in one line."""
        scenario = self.scenario
        variants = count(len(scenario.variants), "variant")
        seeds = count(len(scenario.all_seeds), "seed")
        return f"<{type(self).__name__} {scenario.name}: {variants}, {seeds}>"

    def run(self, workers: int = 1) -> ScenarioResult:
        """Simulate all variants with all seeds, in this number of processes.

        Raises:
            WattkeeperError: If input is wrong, a policy chose what is not allowed, or the scenario
                has a sweep.
        """
        if self.scenario.sweep is not None:
            raise InputError(
                f"{self.document.name} has a sweep, which only the command runs: `wattkeeper run`; "
                'or load it with the setting "sweep=null"'
            )
        return run(self, workers)


def load(
    name_or_path: str,
    settings: Sequence[str] | Mapping[str, Any] = (),
    seeds: int | Sequence[int] | None = None,
    axes: Sequence[str] = (),
    policy_files: Sequence[str] = (),
) -> RunnableScenario:
    """Read and check a scenario; see `wattkeeper.scenarios.spec.loading.load`."""
    return RunnableScenario(*loading.load(name_or_path, settings, seeds, axes, policy_files))


def read(folder: str | Path) -> Any:
    """Read the results in a folder: a `SavedStudy` of a run, a `SavedSweep` of a sweep.

    The annotation is `Any`, since the type depends on the folder.

    Raises:
        InputError: If it holds neither, or a file is missing or not as it was written.
    """
    path = Path(folder)
    restore_folder(path)
    if is_sweep(path):
        return SavedSweep(path, study.read_sweep(path))
    return open_study(path)


def compare(reference: Results, other: Results) -> pd.DataFrame:
    """Compare results with others, metric by metric, paired by seed; as `wattkeeper compare`.

    Returns:
        A row for each common variant and metric, and point of sweeps, as in `docs/compare.md`:
        first those that changed, with the verdicts that hold and the largest changes first. Of a
        live run and a simulated one, in either order: a row for each common attempt. In `attrs`,
        but for live runs: ``verdict``, a sentence on all rows; ``differences``, what else differs.

    Raises:
        InputError: If they cannot be compared, or a file is broken.
    """
    sides = [_read(reference), _read(other)]
    live = studies.find_live(sides)
    if live is not None:
        measured, predicted = (sides[index].points["{}"] for index in (live, 1 - live))
        return _to_frame(sim_vs_live.compare(measured, predicted))
    comparison = studies.compare_with(*sides)
    frame = _to_frame({"rows": sorted(comparison["rows"], key=_rank)})
    frame.attrs["verdict"] = summarise(comparison)
    frame.attrs["differences"] = [line.strip() for line in list_notes(comparison)]
    return frame


def _rank(row: Json) -> tuple[int, float]:
    """The order of rows: they hold, differ, are identical, are not compared; then by change.

    Of equal rank, those without a ratio come last.
    """
    differs = row["verdict"] not in ("identical", None)
    place = 0 if row["holds"] else 1 if differs else 2 if row["verdict"] else 3
    return place, math.inf if row["ratio"] is None else -abs(row["ratio"] - 1)


def _to_frame(comparison: Json) -> pd.DataFrame:
    """The rows of a comparison; columns without any value count as numbers."""
    import pandas as pd

    frame = pd.DataFrame(comparison_rows(comparison))
    empty = [column for column in frame if frame[column].isna().all()]
    return frame.astype(dict.fromkeys(empty, float))


def _read(results: Results) -> studies.ComparedResults:
    if isinstance(results, Study):
        return studies.of_study(results)
    if isinstance(results, SavedSweep):
        return studies.read_points(results.folder, results.about)
    return studies.read(Path(results))
