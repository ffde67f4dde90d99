"""Pipelines of processes on emulated devices, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.traces.generate.pipelines import SyntheticPipeline, generate_pipeline

EXAMPLE = [sys.executable, "-m", "wattkeeper.live.examples.pipeline"]
BLOCKING_W = 75.0


def start_pipeline(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start the example; results and devices are in a folder."""
    where = ["--output", str(folder / "results"), "--devices", str(folder / "devices")]
    return subprocess.Popen([*EXAMPLE, *where, *options], text=True, stderr=subprocess.PIPE)


def run_pipeline(folder: Path, *options: str) -> dict[str, Any]:
    """Run the example to its end; the results of its only replica."""
    process = start_pipeline(folder, *options)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return load_results(folder / "results")


def load_results(folder: Path) -> dict[str, Any]:
    """The results of a replica."""
    results: dict[str, Any] = json.loads((folder / "pipeline.json").read_text())
    return results


def made_up_table(ranks: int) -> PipelineProfile:
    """What the example's instructions take by default."""
    times_s = SyntheticPipeline().forward_s
    model = SyntheticPipeline(forward_s=tuple(times_s[rank % 4] for rank in range(ranks)))
    return PipelineProfile(generate_pipeline(model).stages, BLOCKING_W)
