"""Results of a scenario: the interface of a study, and studies read from folders."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.sim.results.folder import SWEEP, is_sweep, restore_folder

if TYPE_CHECKING:
    import pandas as pd


class Study(ABC):
    """The results of a scenario; `docs/results.md` has all columns and units.

    Attributes:
        manifest: Content of `manifest.json`.
        summary: Content of `summary.json`.
    """

    manifest: Manifest
    summary: Json

    @abstractmethod
    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of all variants and seeds, one after the other.

        Args:
            name: `jobs`, `decisions`, `timeline`, `metrics`, or, where there is a zoo, `models`.
            columns: Columns to read, in this order; all if absent.

        Raises:
            InputError: If there is no such table, or it is broken.
        """

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """A row for each attempt, in order of ending."""
        return self._frame("jobs")

    @cached_property
    def decisions(self) -> pd.DataFrame:
        """The journal: a row for each decision."""
        return self._frame("decisions")

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """Power, busy GPUs and waiting jobs: a row for each change."""
        return self._frame("timeline")

    @cached_property
    def models(self) -> pd.DataFrame:
        """A row for each trained model.

        Raises:
            InputError: If the scenario has no zoo.
        """
        return self._frame("models")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row for each metric of a run and of its parts."""
        return self._frame("metrics")

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self.table(name).to_pandas()
        return frame


@dataclass(frozen=True)
class StoredStudy(Study):
    """Results in a folder; tables are read on demand.

    Attributes:
        folder: The folder.
    """

    folder: Path
    manifest: Manifest
    summary: Json

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Study.table`."""
        return read_table(self.folder, name, columns)


def read_table(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of a results folder; see `Study.table`."""
    path = folder / f"{name}.parquet"
    try:
        file = pq.ParquetFile(path, pre_buffer=False)
        absent = sorted(set(columns or ()) - set(file.schema_arrow.names))
        if absent:
            text = f"has no column {', '.join(absent)}; run the scenario again"
            raise InputError(text, path)
        table = file.read(columns, use_threads=False)
    except FileNotFoundError:
        raise InputError("is missing; run the scenario again", path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"is no valid Parquet file: {error}", path) from None
    return table if columns is None else table.select(list(columns))


def read(folder: str | Path) -> StoredStudy:
    """Read the study that `wattkeeper run` wrote into a folder.

    Raises:
        InputError: If it holds no study, or its manifest or summary is broken.
    """
    folder = Path(folder)
    restore_folder(folder)
    manifest, summary = (_read_json(folder, f"{name}.json") for name in ("manifest", "summary"))
    try:
        well_formed = isinstance(manifest["scenario"]["name"], str)
        well_formed = well_formed and isinstance(summary["variants"], dict)
    except (LookupError, TypeError):
        well_formed = False
    if not well_formed:
        raise InputError("holds no manifest of results; run the scenario again", folder)
    return StoredStudy(folder, cast(Manifest, manifest), summary)


def read_sweep(folder: Path) -> Json:
    """Read the `sweep.json` of a folder.

    Raises:
        InputError: If the folder holds no sweep.
    """
    restore_folder(folder)
    sweep = _read_json(folder, SWEEP)
    try:
        named = all(
            isinstance(point["id"], str) and isinstance(point["values"], dict) and point["state"]
            for point in sweep["points"]
        )
        well_formed = named and {"scenario", "question", "baseline", "axes"} <= set(sweep)
    except (LookupError, TypeError):
        well_formed = False
    if not well_formed:
        raise _broken(folder, SWEEP)
    return sweep


def finished_points(folder: Path, sweep: Json) -> Iterator[tuple[Json, StoredStudy]]:
    """The finished points of a sweep, as in `sweep.json`, each with its study.

    Raises:
        InputError: If the results of a point are broken.
    """
    for point in sweep["points"]:
        if point["state"] == "done":
            yield point, read(folder / "points" / point["id"])


def _read_json(folder: Path, name: str) -> Json:
    path = folder / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(content, dict)
    except (FileNotFoundError, NotADirectoryError):
        state = f"has no {name}" if folder.is_dir() else "is no folder"
        if is_sweep(folder):
            text = f"is a sweep; give one of its points, as {folder}/points/0001"
            raise InputError(text, folder) from None
        text = f"{state}; give a folder that `wattkeeper run --out` wrote"
        raise InputError(text, folder) from None
    except (ValueError, AssertionError):
        raise _broken(folder, name) from None
    return content


def _broken(folder: Path, name: str) -> InputError:
    return InputError(f"is no {name} of results; run the scenario again", folder / name)
