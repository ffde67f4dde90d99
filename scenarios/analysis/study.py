"""Results of a scenario: the interface of a study, and studies read from folders."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.run_columns import RunColumns, split_runs
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.schemas import CLUSTER, TABLES
from wattkeeper.sim.results.checksums import AGAIN, SUMS, check_sums
from wattkeeper.sim.results.folder import SWEEP, is_sweep, restore_folder
from wattkeeper.sim.results.parquet import fill_optional
from wattkeeper.sim.results.summary import VALUES
from wattkeeper.traces.schema import is_optional

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

    def __repr__(self) -> str:
        """The scenario and the size of the results, in one line."""
        manifest = self.manifest
        runs = f"{count(len(self.summary['variants']), 'variant')}, "
        runs += f"{count(len(manifest['seeds']), 'seed')}, {count(manifest['jobs'], 'job')}"
        name, live = manifest["scenario"]["name"], " (live)" * (manifest["backend"] == "live")
        return f"<{type(self).__name__} {name}{live}: {runs}>"

    @property
    def origin(self) -> str:
        """Where the results are, for messages."""
        return f"{self.manifest['scenario']['name']} (in memory)"

    @abstractmethod
    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of all variants and seeds, one after the other.

        Args:
            name: `jobs`, `decisions`, `timeline`, `metrics`; `models` where there is a zoo, `nodes`
                where nodes are lost, `shapes` where there are elastic jobs, `usage` where jobs of a
                trace name users, accounts or queues.
            columns: Columns to read, in this order; all that there are if absent. Optional ones
                that the results lack are null.

        Raises:
            InputError: If there is no such table, or it is broken.
        """

    def runs(
        self, name: str, columns: Sequence[str] | None = None, *, first_seed: bool = False
    ) -> Iterator[RunColumns]:
        """A table run by run; see `table`.

        With `first_seed`, only the first run of each variant.
        """
        names = None if columns is None else ["variant", "seed", *columns]
        return split_runs(self.table(name, names), first_seed)

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


@dataclass(frozen=True, repr=False)
class StoredStudy(Study):
    """Results in a folder; tables are read on demand.

    Attributes:
        folder: The folder.
    """

    folder: Path
    manifest: Manifest
    summary: Json

    @property
    def origin(self) -> str:
        """The folder."""
        return str(self.folder)

    @override
    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        return read_table(self.folder, name, columns)


def read_table(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of a results folder; see `Study.table`."""
    path = folder / f"{name}.parquet"
    try:
        file = pq.ParquetFile(path, pre_buffer=False)
        stored = file.schema_arrow
        _check_columns(stored, name, columns, path)
        there = None if columns is None else [each for each in columns if each in stored.names]
        table = file.read(there, use_threads=False)
    except FileNotFoundError:
        raise InputError(f"is missing; {AGAIN}", path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"is no valid Parquet file: {error}", path) from None
    if columns is None:
        return table
    expected = TABLES.get(name, VALUES)
    return fill_optional(table, pa.schema([expected.field(column) for column in columns]))


def _check_columns(stored: pa.Schema, name: str, columns: Sequence[str] | None, path: Path) -> None:
    expected = TABLES.get(name, VALUES)
    if columns is None:
        columns = [
            want.name for want in expected if want.name in stored.names or not is_optional(want)
        ]
    optional = {want.name for want in expected if is_optional(want)}
    absent = sorted(set(columns) - set(stored.names) - optional)
    if absent:
        raise InputError(f"has no column {', '.join(absent)}; {AGAIN}", path)
    for column in (each for each in columns if each in stored.names):
        kind, wanted = stored.field(column).type, expected.field(column).type
        if kind != wanted:
            text = f"column {column} has the type {kind}, not {wanted}; {AGAIN}"
            raise InputError(text, path)


def read(folder: str | Path, *, check: bool = True) -> StoredStudy:
    """Read the study that `wattkeeper run` wrote into a folder.

    Without `check` its digests are believed, which costs no reading of all files: this process has
    checked or written them.

    Raises:
        InputError: If it holds no study, or a file is missing or not as it was written.
    """
    folder = Path(folder)
    restore_folder(folder)
    _check_present(folder, "manifest.json")
    if check:
        check_sums(folder, CLUSTER.files - CLUSTER.optional_files, CLUSTER.optional_files)
    manifest, summary = (read_json(folder / f"{name}.json") for name in ("manifest", "summary"))
    if not Manifest.__required_keys__ <= manifest.keys() or "variants" not in summary:
        raise InputError(f"holds no manifest of results; {AGAIN}", folder)
    return StoredStudy(folder, cast(Manifest, manifest), summary)


def checked_files_of_sweep(done: Iterable[str]) -> set[str]:
    """Files of a sweep with a digest, by their paths; `done` are the ids of its finished points."""
    return {"metrics.parquet", SWEEP, *(f"points/{point}/{SUMS}" for point in done)}


def read_sweep(folder: Path) -> Json:
    """Read the `sweep.json` of a folder.

    Raises:
        InputError: If the folder holds no sweep, or a file is missing or not as it was written.
    """
    restore_folder(folder)
    _check_present(folder, SWEEP)
    sweep = read_json(folder / SWEEP)
    try:
        done = [point["id"] for point in sweep["points"] if point["state"] == "done"]
    except (LookupError, TypeError):
        raise InputError(f"is no {SWEEP} of results; {AGAIN}", folder / SWEEP) from None
    check_sums(folder, checked_files_of_sweep(map(str, done)))
    return sweep


def finished_points(
    folder: Path, sweep: Json, *, check: bool = True
) -> Iterator[tuple[Json, StoredStudy]]:
    """The finished points of a sweep, as in `sweep.json`, each with its study; see `read`.

    Raises:
        InputError: If the results of a point are broken.
    """
    for point in sweep["points"]:
        if point["state"] == "done":
            yield point, read(folder / "points" / point["id"], check=check)


def _check_present(folder: Path, name: str) -> None:
    if (folder / name).exists():
        return
    if is_sweep(folder):
        text = f"is a sweep; give one of its points, as {folder}/points/0001"
    else:
        state = f"has no {name}" if folder.is_dir() else "is no folder"
        text = f"{state}; give a folder that `wattkeeper run --out` wrote"
    raise InputError(text, folder)


def read_json(path: Path) -> Json:
    """Read a JSON file of results.

    Raises:
        InputError: If it is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(content, dict)
    except (OSError, ValueError, RecursionError, AssertionError):
        raise InputError(f"is no {path.name} of results; {AGAIN}", path) from None
    return content
