"""The results of a sweep in Python: its points as a frame, and the study at each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.points import PointRow
from wattkeeper.scenarios.document.comparisons.sweep import describe_sweep, read_rows
from wattkeeper.scenarios.notebook.display import SavedStudy, open_study, to_fragment
from wattkeeper.scenarios.notebook.plots import SweepPlots
from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS: Final = 40
"""Rows of the table that a notebook displays."""


@dataclass(frozen=True, repr=False)
class SavedSweep:
    """The results of a sweep in a folder; points are read on demand.

    Attributes:
        folder: The folder.
        about: Content of `sweep.json`.
    """

    folder: Path
    about: Json

    def __repr__(self) -> str:
        """The scenario and the size of the sweep, in one line."""
        about = self.about
        sizes = f"{count(len(about['points']), 'point')}, {count(len(about['seeds']), 'seed')}"
        return f"<{type(self).__name__} {about['scenario']} by {', '.join(about['axes'])}: {sizes}>"

    def _repr_html_(self) -> str:
        rows = self.rows
        first = self.study(rows[0].id) if rows else None
        shown = describe_sweep(self.about, rows, first, with_charts=False, most_rows=MOST_ROWS)
        return to_fragment(shown)

    @cached_property
    def plot(self) -> SweepPlots:
        """Plots of the sweep."""
        return SweepPlots(self.about, self.rows)

    @cached_property
    def rows(self) -> list[PointRow]:
        """What the page shows of each finished point."""
        return read_rows(self.folder, self.about)

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row for each point: its values of the axes, and whether it is `done` or `failed`."""
        import pandas as pd

        rows = [{**point["values"], "state": point["state"]} for point in self.about["points"]]
        names = [point["id"] for point in self.about["points"]]
        return pd.DataFrame(rows, index=pd.Index(names, name="point"))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row for each metric of a run and of its parts, with a column for each axis."""
        path = self.folder / "metrics.parquet"
        try:
            frame: pd.DataFrame = pq.read_table(path).to_pandas()
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"is no valid Parquet file: {error}", path) from None
        return frame

    def study(self, point: str) -> SavedStudy:
        """The study at a point, by its id in `points`, as `0001`.

        Raises:
            InputError: If there is no such point, it failed, or its results are broken.
        """
        done = [each["id"] for each in self.about["points"] if each["state"] == "done"]
        if point not in done:
            listed = f"{done[0]} to {done[-1]}" if len(done) > 1 else ", ".join(done) or "none"
            raise InputError(f"has no finished point {point!r}; finished: {listed}", self.folder)
        return open_study(self.folder / "points" / point)
