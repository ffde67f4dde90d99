"""The scenario `zoo-digits` on a tiny search, through the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command
from wattkeeper.live.architectures import KERNELS, MOST_STAGES, WIDTHS, arrivals

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

MODELS = 4
TINY = ("run", "zoo-digits", "--seeds", "7..8", "--set", f"workload.models={MODELS}",
        "--set", "workload.training.most_epochs=2")  # fmt: skip
SECONDS = ["time_s", "graph_s", "query_s", "transfer_s"]


def trainings(folder: Path) -> pd.DataFrame:
    """All trainings that a run wrote down, but for the seconds."""
    files = sorted(folder.with_name(f"{folder.name}.trainings").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return pd.DataFrame(rows).drop(columns=SECONDS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    from tests.conftest import run_command

    folder = tmp_path_factory.mktemp("zoo-digits") / "whole"
    run_command(*TINY, "--out", folder, traces=folder.parent, cwd=folder.parent)
    return folder


def test_trains_every_network_with_and_without_a_zoo(whole: Path) -> None:
    jobs = pd.read_parquet(whole / "jobs.parquet")
    assert len(jobs) == 2 * 2 * MODELS
    assert jobs["energy_j"].isna().all(), "no meter measured it"
    assert jobs["power_limit_w"].isna().all()
    assert (jobs["time_s"] > 0).all()
    assert (jobs["epochs"] == 2).all()
    parents = jobs.groupby("variant")["parent_model"].count()
    assert parents["scratch"] == 0
    assert 0 < parents["zoo"] <= 2 * (MODELS - 1)
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["backend"] == "live"
    rows = trainings(whole)
    assert (rows["work"] == rows["epochs"] * rows["parameters"]).all()
    warm = rows[rows["parent"].notna()]
    assert warm["coverage"].between(0.01, 1).all()
    order = {
        (row.seed, row.model): at
        for at, row in enumerate(rows[rows["variant"] == "zoo"].itertuples())
    }
    assert all(
        order[row.seed, row.parent] < order[row.seed, row.model] for row in warm.itertuples()
    )


def test_both_variants_begin_alike(whole: Path) -> None:
    """The first network has no parent: with the zoo it is trained as without."""
    rows = trainings(whole).query("mutated_from.isna()").drop(columns="variant")
    assert len(rows) == 4
    assert len(rows.drop_duplicates()) == 2, "one result a seed"


def test_saved_is_what_the_trainings_say(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    saved: dict[str, Any] = summary["saved"]["zoo"]
    rows = trainings(whole)
    by = rows.groupby(["variant", "seed"])
    work, accuracy = by["work"].sum(), by["accuracy"].mean()
    assert saved["work"]["mean"] == pytest.approx(np.mean(1 - work["zoo"] / work["scratch"]))
    points = 100 * (accuracy["zoo"] - accuracy["scratch"])
    assert saved["accuracy_points"]["mean"] == pytest.approx(points.mean())
    low, high = saved["accuracy_points"]["ci95"]
    half = 12.706204736 * points.std() / 2**0.5  # Student's t, one degree of freedom
    assert high - low == pytest.approx(2 * half)
    assert summary["variants"]["zoo"]["metrics"]["energy_j"]["mean"] is None


def test_goes_on_where_it_was_killed(whole: Path, tmp_path: Path) -> None:
    """After kill -9 at two moments the results are those of a run that nothing interrupted."""
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "wattkeeper.scenarios", *TINY, "--out", str(out)]
    for left in (2, 5 + MODELS):
        process = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ))
        while process.poll() is None and count(out) < left:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not out.exists()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(trainings(out), trainings(whole))
    ours, theirs = (pd.read_parquet(folder / "jobs.parquet") for folder in (out, whole))
    same = ["variant", "seed", "job_id", "epochs", "parent_model"]
    pd.testing.assert_frame_equal(ours[same], theirs[same])


def count(out: Path) -> int:
    files = out.with_name(f"{out.name}.trainings").glob("*.jsonl")
    return sum(len(file.read_text().splitlines()) for file in files)


def test_a_finished_run_is_not_trained_again(whole: Path, command: Command) -> None:
    before = (whole / "jobs.parquet").read_bytes()
    command(*TINY, "--out", whole)
    assert (whole / "jobs.parquet").read_bytes() == before, "the seconds too"


def test_other_settings_are_refused(whole: Path, command: Command) -> None:
    done = command(*TINY, "--set", "workload.training.patience=3", "--out", whole, code=2)
    assert "trained with other settings" in done.stderr
    assert "--out" in done.stderr


def test_the_space_is_large_and_grows_by_mutation() -> None:
    found = arrivals(80, np.random.default_rng(5))
    assert len({each.architecture for each in found}) == 80
    earlier: set[str] = set()
    for each in found:
        assert each.mutated_from in earlier or not earlier
        earlier.add(each.name)
        assert 1 <= len(each.architecture) <= MOST_STAGES
        for stage in each.architecture:
            assert stage.width in WIDTHS
            assert all(block.kernel in KERNELS for block in stage.blocks)
    assert any(
        block.residual for each in found for stage in each.architecture for block in stage.blocks
    )
    assert arrivals(80, np.random.default_rng(5)) == found
