"""The record of a GPU: resumed, and valid only where nothing speaks against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")

RUN = {
    "window_s": 5.5,
    "energy_j": 1650.0,
    "samples": 11000,
    "others": 0,
    "energy_from": "counter",
    "slowed": [],
    "limit_w": 700.0,
    "limit_after_w": 700.0,
    "epoch_samples": 32768,
    "epochs_to_target": 3.0,
}


def summarise(*runs: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.gpu_record.__main__ import FULL, summarise_runs
    from benchmarks.gpu_record.trainings import make_trainings

    return summarise_runs(make_trainings("cpu", small=True)[0], 16, runs, FULL)


def test_means_are_of_the_window() -> None:
    found = summarise(RUN, RUN, RUN)
    assert (found["samples_per_s"], found["power_w"], found["below_limit_w"]) == (2000, 300, 400)
    assert found["valid"]
    assert found["reasons"] == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"energy_j": 1900.0}, "power_w varies by 8.3 %"),
        ({"samples": 12000}, "samples_per_s varies by 5.1 %"),
        ({"others": 1}, "other processes"),
        ({"slowed": ["hardware thermal"]}, "slowed: hardware thermal"),
        ({"limit_after_w": 500.0}, "the power limit changed"),
        ({"energy_from": "integrated"}, "energy is integrated"),
        ({"failed": "out of memory"}, "out of memory"),
    ],
)
def test_what_speaks_against_a_record_is_named(changed: dict[str, Any], reason: str) -> None:
    found = summarise(RUN, RUN, RUN | changed)
    assert not found["valid"]
    assert reason in found["reasons"]


def test_an_interrupted_record_is_resumed(tmp_path: Path) -> None:
    sizes = {"images": (16, 64), "sequences": (16, 64), "text": (4, 16)}
    lines = [
        json.dumps({"training": name, "batch_size": size, "seed": seed} | RUN)
        for seed in range(3)
        for name in sizes
        for size in sizes[name]
    ]
    (tmp_path / "runs.jsonl").write_text("".join(f"{line}\n" for line in lines[:-1]))
    subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_record", str(tmp_path), "--small"],
        env=os.environ | {"WATTKEEPER_DEVICE": "synthetic:SYN-400W"},
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    runs = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert runs[:-1] == lines[:-1]
    last = json.loads(runs[-1])
    assert (last["training"], last["batch_size"], last["seed"]) == ("text", 16, 2)
    assert last["window_s"] >= 0.2
    assert last["energy_j"] == pytest.approx(400 * last["window_s"], rel=0.05)
    record = json.loads((tmp_path / "record.json").read_text())
    assert [row["runs"] for row in record["measured"]] == [3] * 6
    assert record["about"]["gpu"] == "SYN-400W"
