"""Searches that are run through the command, and what they trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pandas as pd
from click.testing import CliRunner, Result

from wattkeeper.scenarios.cli.main import main

TINY: Final = ("--seeds", "3..3", "--set", "workload.training.most_epochs=1")


def run(path: Path, out: Path, *settings: str) -> Result:
    return CliRunner().invoke(main, ["run", str(path), *settings, "--out", str(out)])


def trainings(out: Path, variant: str) -> pd.DataFrame:
    """The finished trainings of a variant, without times."""
    [path] = out.with_name(f"{out.name}.trainings").glob(f"{variant}-*.jsonl")
    rows = pd.DataFrame(map(json.loads, path.read_text().splitlines()))
    return rows.drop(columns=["time_s", "graph_s", "query_s", "transfer_s", "seal"])
