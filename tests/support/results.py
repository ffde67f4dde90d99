"""Results folders that tests alter: their digests have to be those of the altered files."""

from __future__ import annotations

import json
from pathlib import Path

from wattkeeper.scenarios.analysis.study import checked_files_of_sweep
from wattkeeper.sim.cluster_results.schemas import CLUSTER
from wattkeeper.sim.results.checksums import write_sums
from wattkeeper.sim.results.folder import SWEEP


def seal(folder: Path) -> Path:
    """Write the digests of a run's or a sweep's folder as if its files had been written so."""
    if not (folder / SWEEP).exists():
        write_sums(folder, {path.name for path in folder.iterdir()} & CLUSTER.files)
        return folder
    sweep = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
    done = [point["id"] for point in sweep["points"] if point["state"] == "done"]
    for point in done:
        seal(folder / "points" / point)
    if not (folder / "metrics.parquet").exists():
        (folder / "metrics.parquet").write_bytes(b"")  # no command reads it
    write_sums(folder, checked_files_of_sweep(done))
    return folder
