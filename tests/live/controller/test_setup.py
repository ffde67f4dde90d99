"""What a process does between its session's begin and its first epoch is overhead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live_runs import rows, run, scenario

SETUP_S = 3.0
IDLE_W, SYN_W = 40.0, 250.0
SCRIPT = f"""\
import time
from wattkeeper.live import Session

with Session("toy", batch_sizes=(8,), default_batch_size=8, max_epochs=2, eta=0) as session:
    time.sleep({SETUP_S})
    for epoch in session.epochs():
        time.sleep(0.05)
        session.report(epoch.number)
"""
SCENARIO = {
    "name": "setup",
    "cluster": {"gpu": "SYN-250W", "gpus": 1, "idle_power_w": IDLE_W},
    "workload": {"kind": "recurring", "workloads": ["toy"], "recurrences": 1},
    "live": {
        "power_control": False,  # off, as YAML reads it without quotes
        "workloads": {
            "toy": {
                "command": ["python", "toy.py"],
                "batch_sizes": [8],
                "default_batch_size": 8,
                "max_epochs": 2,
            }
        },
    },
    "objective": {"eta": 0},
    "variants": {"default": {}},
    "baseline": "default",
}


def test_setup_is_overhead_at_idle_power(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(SCRIPT)
    path = scenario(tmp_path, SCENARIO)
    run(path, "--live", "--out", "live", cwd=tmp_path, WATTKEEPER_DEVICE="synthetic:SYN-250W")
    (row,) = rows(tmp_path / "live", "jobs")
    held_s = row["finish_time_s"] - row["start_time_s"]
    assert held_s > SETUP_S
    assert 0.1 <= row["time_s"] < SETUP_S
    assert row["time_s"] + row["overhead_s"] > held_s - SETUP_S / 2
    trained_j = SYN_W * row["time_s"]
    assert row["energy_j"] == pytest.approx(IDLE_W * row["overhead_s"] + trained_j, rel=0.1)
