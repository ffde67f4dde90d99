"""What tests of sweeps share: a small sweep, and what is the same in two results folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TWO = "variants={default: {}, zeus: {policies: {configure: zeus, tune: zeus-jit}}}"

SMALL = ("--set", "workload.workloads=[image]", "--set", "workload.recurrences=4", "--set", TWO)
"""Settings that leave two quick variants of the quickstart."""


def content(folder: Path) -> dict[str, bytes | str]:
    """All files of a results folder, without what depends on host and time."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name == "SHA256SUMS":  # digests of manifests
            continue
        name = path.relative_to(folder).as_posix()
        if path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            del manifest["wall_s"], manifest["host"]
            found[name] = json.dumps(manifest)
        else:
            found[name] = path.read_bytes()
    return found


def start(*arguments: str | Path, cwd: Path, path: Path | None = None) -> subprocess.Popen[str]:
    """Begin `wattkeeper run` in a process group of its own.

    Args:
        arguments: Of the command.
        cwd: Where.
        path: A folder for PYTHONPATH.
    """
    places = [str(path)] if path else []
    places += filter(None, [os.environ.get("PYTHONPATH")])
    return subprocess.Popen(
        [sys.executable, "-m", "wattkeeper.scenarios", "run", *map(str, arguments)],
        cwd=cwd,
        env={
            **os.environ,
            "WATTKEEPER_TRACES": str(cwd / "library"),
            "COLUMNS": "120",
            "PYTHONPATH": os.pathsep.join(places),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What a command said, once it has ended with a code."""
    out, err = process.communicate()
    assert process.returncode == code, out + err
    assert "Traceback" not in err, err
    return out, err


def workers(parent: int) -> list[int]:
    """Worker processes of a command."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if (
            int(stat.rpartition(")")[2].split()[1]) == parent
            and b"wattkeeper.scenarios.run.worker" in line
        ):
            found.append(int(entry.name))
    return found


def units(kept: Path) -> int:
    """How many finished runs are kept in a folder, those of finished points not counted."""
    try:
        return sum(path.is_file() for path in kept.rglob("[0-9]*-[0-9]*"))
    except FileNotFoundError:  # it went meanwhile
        return 0


def until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Wait; whether it came to be so before the process ended."""
    while not is_so():
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        return is_so()
    return True
