"""Storms of signals on what writes; `WATTKEEPER_STORM_KILLS` and `_SEED` make other ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import small
from tests.support import signals

KILLS = int(os.environ.get("WATTKEEPER_STORM_KILLS", "300"))
SEED = int(os.environ.get("WATTKEEPER_STORM_SEED", "17"))

sizes = pytest.mark.parametrize("kills", [4, pytest.param(KILLS, marks=pytest.mark.slow)])


def storm(library: Path, script: str, folder: Path, kills: int, **arguments: Any) -> dict[str, int]:
    """Counts of endings."""
    made: dict[str, int] = signals.start(
        library, f"tests.support.{script}", folder=str(folder), kills=kills, seed=SEED, **arguments
    )
    print(f"{script}, seed {SEED}: {made}")
    return made


@sizes
def test_a_run_leaves_its_results_or_the_older_ones(
    kills: int, tmp_path: Path, signals_library: Path
) -> None:
    (tmp_path / "small.yaml").write_text(small())
    run = ["run", "small.yaml", "--out", "out/results", "--seeds"]
    made = storm(
        signals_library,
        "write_signals",
        tmp_path,
        kills,
        versions=[[*run, "1"], [*run, "2"]],
        reader=["compare", "out/results", "out/results"],
        place="out/results",
    )
    assert made["new version"] > 0 or kills < KILLS


@sizes
def test_an_import_leaves_its_trace_or_the_older_one(
    kills: int, tmp_path: Path, signals_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    for name, jobs in (("one", 5), ("two", 9)):
        rows = [f"{job},{job},60,1" for job in range(jobs)]
        text = "\n".join(["job_id,submit_time_s,duration_s,gpus", *rows])
        (tmp_path / f"{name}.csv").write_text(text + "\n")
    versions = [
        ["traces", "import", "csv", f"{name}.csv", "--name", "jobs", "--replace"]
        for name in ("one", "two")
    ]
    made = storm(
        signals_library,
        "write_signals",
        tmp_path,
        kills,
        versions=versions,
        reader=["traces", "describe", "jobs"],
        place="library/jobs",
    )
    assert made["new version"] > 0 or kills < KILLS


@sizes
def test_a_zoo_whose_making_was_interrupted_is_used(
    kills: int, tmp_path: Path, signals_library: Path
) -> None:
    made = storm(signals_library, "zoo_signals", tmp_path, kills)
    assert not [ending for ending in made if ending.startswith("unusable")], made
