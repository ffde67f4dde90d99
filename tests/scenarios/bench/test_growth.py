"""`wattkeeper bench growth` counts work, and finds a scheduler that looks at all that waits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.bench.growth import Growth

FLOORS = ("policies", "traces", "sim", "live", "scenarios")
HEADS = "        heads = [self._waiting[key][0] for key in self._untried]\n"
SCAN = """\
        for waiting in self._waiting.values():
            for _, _, run in waiting:
                capacity.fits(run.job)
"""


def test_exponents() -> None:
    assert Growth("las", "jobs", (100, 400), (7, 28), 1.1).exponent == pytest.approx(1)
    assert Growth("las", "jobs", (100, 400), (7, 112), 1.1).exponent == pytest.approx(2)
    assert not Growth("las", "jobs", (100, 400), (7, 112), 1.1).is_allowed


def test_the_work_of_all_schedulers_grows_as_it_must(inside: Command) -> None:
    found = json.loads(inside("bench", "growth", "--json").stdout)
    assert found["entries"] == []
    kinds = {growth["what"] for growth in found["growth"]}
    assert kinds >= {
        "fifo",
        "easy-backfill",
        "fair-share",
        "dlas-gpu",
        "srtf",
        "las",
        "gittins",
        "parent, coverage",
        "parent, modelkeeper-asbuilt",
    }
    for growth in found["growth"]:
        if not growth["what"].startswith("parent"):
            assert growth["work"][0] >= growth["sizes"][0], "each job is an event at least"
            assert growth["exponent"] > 0.8
        assert growth["exponent"] <= growth["most"]


@pytest.mark.slow
def test_a_scheduler_that_asks_about_all_waiting_jobs_fails(tmp_path: Path) -> None:
    for floor in FLOORS:
        left_out = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / floor, tmp_path / "wattkeeper" / floor, ignore=left_out)
    file = tmp_path / "wattkeeper/policies/select/_preempting.py"
    source = file.read_text(encoding="utf-8")
    assert source.count(HEADS) == 1
    file.write_text(source.replace(HEADS, SCAN + HEADS), encoding="utf-8")
    command = [sys.executable, "-m", "wattkeeper.scenarios", "bench", "growth"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, check=False,
        env={"PYTHONPATH": str(tmp_path), "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    rows = [line for line in done.stdout.splitlines() if "too fast" in line]
    assert len(rows) == 3, done.stdout
    assert_states("\n".join(rows), "srtf", "las", "gittins")
