"""Comparison of two results in Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import compare as studies
from wattkeeper.scenarios.analysis import sim_vs_live
from wattkeeper.scenarios.analysis.compare_text import list_notes, summarise
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.notebook.flat_rows import comparison_rows
from wattkeeper.scenarios.notebook.sweep import SavedSweep

if TYPE_CHECKING:
    import pandas as pd

Results = Study | SavedSweep | str | Path
"""What can be compared: a study, a sweep, or the folder of either."""


def compare(reference: Results, other: Results) -> pd.DataFrame:
    """Compare results with others, metric by metric, paired by seed; as `wattkeeper compare`.

    Returns:
        A row for each common variant and metric, and point of sweeps, as in `docs/compare.md`. Of a
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
    frame = _to_frame(comparison)
    frame.attrs["verdict"] = summarise(comparison)
    frame.attrs["differences"] = [line.strip() for line in list_notes(comparison)]
    return frame


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
