"""What is seen of a live run while it goes on, and that it changes nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    decisions,
    environment,
    learnt,
    rows,
    run,
    scenario,
)
from tests.support.messages import drop_signs_of_life

LIVENESS_S = 60.0

TRAIN = """
import time
from wattkeeper.live import Session

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=1, eta=0) as session:
    for epoch in session.epochs():
        time.sleep(0.4)
        session.report(epoch.number / 10)
"""


def shown(*arguments: str | Path, cwd: Path) -> str:
    """What a terminal of 160 columns shows of a command that ends well."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("run", *arguments),
        cwd=cwd,
        env=environment(cwd, WATTKEEPER_DEVICE="none", TERM="xterm", COLUMNS="160"),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    found = b""
    while select.select([ours], [], [], LIVENESS_S)[0]:
        try:
            found += os.read(ours, 65536)
        except OSError:  # nobody holds the other end any more
            break
    os.close(ours)
    assert process.wait(LIVENESS_S) == 0, found.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", found.decode())


def test_a_pipe_gets_a_line_for_each_attempt_that_ended(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=2)
    said = run(path, "--live", "--out", "piped", "--json", cwd=tmp_path)
    assert said.stdout.startswith("{"), "only standard error has them"
    lines = drop_signs_of_life(said.stderr).splitlines()
    attempts = sorted(rows(tmp_path / "piped", "jobs"), key=lambda row: row["finish_time_s"])
    assert len(attempts) >= 4
    for line, row in zip(lines, attempts, strict=True):
        assert re.fullmatch(
            rf"zeus, seed 1: {row['job_id']}, attempt {row['attempt']} \(batch size "
            rf"{row['batch_size']}, {row['power_limit_w']:g} W, SYN-250W [01]:0\): "
            rf"(reached|bound|epochs) after {row['epochs']} epochs?, [\d,.]+ s, [\d,]+ J",
            line,
        ), line


@pytest.mark.slow
def test_progress_output_does_not_change_results(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=2)
    run(path, "--live", "--out", "piped", cwd=tmp_path)
    shown(path, "--live", "--out", "seen", cwd=tmp_path)
    assert decisions(tmp_path / "seen") == decisions(tmp_path / "piped")
    assert learnt(tmp_path / "seen") == learnt(tmp_path / "piped")


@pytest.mark.slow
def test_a_terminal_shows_running_attempts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    workload = {
        "command": ["python", "train.py"],
        "batch_sizes": [8],
        "default_batch_size": 8,
        "max_epochs": 8,
    }
    path = scenario(
        tmp_path,
        {
            "name": "seen",
            "cluster": {"gpu": "cpu", "gpus": 1, "idle_power_w": 0},
            "workload": {"kind": "recurring", "recurrences": 1},
            "objective": {"eta": 0},
            "live": {"workloads": {"cnn": workload}},
            "variants": {"fixed": {}},
            "baseline": "fixed",
        },
    )
    said = shown(path, "--live", "--out", "out", cwd=tmp_path)
    assert "seen: fixed, seed 1" in said
    where = r"cnn/1, attempt 1 \(batch size 8, cpu 0:0\): "
    assert re.search(f"{where}starts", said)
    epochs = {
        (metric, done)
        for metric, done in re.findall(rf"{where}trains, metric (\S+)\s[^/\d]*(\d)/8", said)
    }
    assert epochs
    assert all(float(metric) == int(done) / 10 for metric, done in epochs)
    last = said.rpartition("seen ")[2]  # once no run is at work
    assert "cnn/1" not in last, "attempts that ended are gone"
