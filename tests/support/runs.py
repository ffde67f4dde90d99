"""A finished run of quickstart, and what tests ask of results folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tests.conftest import small

TABLES = ["decisions.parquet", "jobs.parquet", "metrics.parquet", "timeline.parquet"]
FILES = sorted([*TABLES, "SHA256SUMS", "manifest.json", "report.html", "summary.json"])
RESULTS = [name for name in FILES if name not in ("SHA256SUMS", "manifest.json")]
"""Files that depend on the scenario and the seeds alone."""
VARIANTS = ["default", "zeus", "oracle", "grid-search"]
QUICK = (
    "quickstart",
    "--set",
    "workload.recurrences=60",
    "--set",
    "variants.frugal=null",
    "--set",
    "variants.grid-search={policies: {configure: grid-search}}",
)
"""The scenario quickstart with a grid search in the place of `frugal`, which is slow."""
SEEDS = [1, 2, 3, 4, 5]


SMALL = small("é:\n    policies:\n      configure: {kind: fixed, batch_size: 64}")


class Ran(NamedTuple):
    """A finished run of quickstart with its default seeds."""

    folder: Path
    stdout: str
    stderr: str

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / f"{name}.parquet")

    def json(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digest(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["results_digest"])


def seeds_of(folder: Path) -> tuple[list[int], list[int]]:
    manifest = json.loads((folder / "manifest.json").read_text())
    return manifest["seeds"], pd.read_parquet(folder / "jobs.parquet")["seed"].unique().tolist()
