"""Reports that no session can make: they are refused, and cost nothing."""

from __future__ import annotations

import json
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_runs import (
    REHEARSED,
    command,
    decisions,
    environment,
    learnt,
    processes,
    run,
    scenario,
)

ENDED = {
    "kind": "ended",
    "cause": "reached",
    "epochs": 0,
    "time_s": 0,
    "energy_j": None,
    "power_limit_w": None,
    "limit_set": True,
    "how": "counter",
    "message": "",
}
EPOCH = {
    "kind": "epoch",
    "epoch": 0,
    "metric": None,
    "time_s": 0,
    "energy_j": None,
    "is_last": False,
}
PROFILED = {
    "kind": "profiled",
    "measurements": [],
    "report": 0,
    "time_s": 0,
    "energy_j": None,
    "reached": False,
}
CONTRADICTIONS: list[dict[str, Any]] = [
    ENDED,
    ENDED | {"epochs": 10**9, "time_s": 1},
    ENDED | {"epochs": 5, "energy_j": 5},
    EPOCH,
    EPOCH | {"epoch": 10**6, "time_s": 1e300, "energy_j": -1e300},
    PROFILED,
    PROFILED | {"measurements": [[0] * 7]},
    PROFILED | {"measurements": [[1e300, 1e300, 1e300, 0, 0, 0, 0]] * 9},
    PROFILED | {"reached": True},
    PROFILED | {"report": 1 << 40, "measurements": [[250, 1, 1, 0, 128, 1, 1]]},
    {"kind": "sleep", "until_s": "1e400", "power_limit_w": None},
    {"kind": "lost", "cause": "crashed", "code": 1},
    {"kind": "exited"},
    {"kind": "halt"},
]


def link(pid: int) -> tuple[str, int, str, str] | None:
    """Host, port and token of the controller of a process, and its run; else None."""
    try:
        text = Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return None
    variables = dict(each.partition("=")[::2] for each in text.split("\0"))
    if "WATTKEEPER_LINK" not in variables:
        return None
    address, _, token = variables["WATTKEEPER_LINK"].partition("/")
    host, _, port = address.partition(":")
    return host, int(port), token, variables["WATTKEEPER_RUN"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [17])
def test_contradictions_change_nothing(seed: int, tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=3)
    run(path, "--out", "sim", cwd=tmp_path)
    rng = random.Random(seed)
    controller = subprocess.Popen(
        command("run", path, "--live", "--out", "live"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment(tmp_path),
        text=True,
    )
    sent = 0
    while controller.poll() is None:
        for pid in processes(tmp_path):
            found = link(pid)
            if found is None:
                continue
            host, port, token, name = found
            request = rng.choice(CONTRADICTIONS)
            envelope = {"token": token, "run": name, "rank": 0, "number": 1}
            try:
                with socket.create_connection((host, port), timeout=60) as peer:
                    peer.sendall(json.dumps(envelope | request).encode() + b"\n")
                    peer.recv(1000)  # nothing, a refusal, or what a repetition is told
            except (ConnectionResetError, ConnectionRefusedError, BrokenPipeError):
                continue  # it ends
            sent += 1
    _, said = controller.communicate(timeout=60)
    assert controller.returncode == 0, said
    assert "Traceback" not in said
    assert sent > 10
    assert learnt(tmp_path / "live") == learnt(tmp_path / "sim")
    expected, found_ = decisions(tmp_path / "sim"), decisions(tmp_path / "live")
    assert [row[:-1] for row in found_] == [row[:-1] for row in expected]
