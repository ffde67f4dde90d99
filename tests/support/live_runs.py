"""What tests of live runs share: scenarios, commands, and what is the same in two runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.conftest import run_command

REHEARSED: dict[str, Any] = {
    "name": "rehearsed",
    "cluster": {"gpu": "SYN-250W", "gpus": 2, "gpus_per_node": 1, "idle_power_w": 40},
    "workload": {
        "kind": "recurring",
        "profiles": {"synthetic": {}},
        "workloads": ["image", "recommendation"],
        "recurrences": 6,
    },
    "live": {"speed": 1e7, "lease_s": 60},
    "variants": {"zeus": {"policies": {"configure": "zeus", "tune": "zeus-jit"}}},
    "baseline": "zeus",
}

Row = dict[str, Any]


def scenario(folder: Path, content: dict[str, Any], **workload: Any) -> Path:
    """A scenario file in a folder."""
    path = folder / f"{content['name']}.yaml"
    content = content | {"workload": content["workload"] | workload}
    path.write_text(yaml.safe_dump(content))
    return path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a command whose state stays in a folder."""
    return {
        **os.environ,
        "WATTKEEPER_TRACES": str(folder / "library"),
        "COLUMNS": "120",
        "WATTKEEPER_STATE": str(folder / "state"),
        **more,
    }


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "wattkeeper.scenarios", *map(str, arguments)]


def run(
    *arguments: str | Path, cwd: Path, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """`wattkeeper run`, with a trace library in the folder."""
    return run_command("run", *arguments, traces=cwd / "library", cwd=cwd, code=code, **more)


def rows(folder: Path, table: str) -> list[Row]:
    found: list[Row] = pq.read_table(folder / f"{table}.parquet").to_pylist()
    return found


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def decisions(folder: Path) -> list[tuple[Any, ...]]:
    """What was decided, in order, without its times; bounds are numbers apart."""
    found = []
    for row in rows(folder, "decisions"):
        text, _, bound = row["chose"].partition(" cost_bound=")
        found.append((row["point"], row["policy"], row["job_id"], row["attempt"], text, bound))
    return found


def learnt(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What policies learnt from, in order, by group: attempts that were not lost."""
    attempts = manifest(folder).get("live", {}).get("attempts", ())
    lost = {(one["job_id"], one["attempt"]) for one in attempts}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows(folder, "jobs"):
        if (row["job_id"], row["attempt"]) not in lost:
            found.setdefault(row["group_id"], []).append(
                (
                    row["job_id"],
                    row["batch_size"],
                    row["power_limit_w"],
                    row["epochs"],
                    row["reached_target"],
                    round(row["cost"], 3),
                )
            )
    return found


def processes(folder: Path) -> dict[int, bool]:
    """Processes of live runs whose state is in a folder; whether each one guards a limit."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not re.fullmatch("[0-9]+", entry.name):
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            guard = b"wattkeeper.live.devices.restore_guard" in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        mine = f"WATTKEEPER_STATE={folder / 'state'}".encode() in variables
        if mine and any(one.startswith(b"WATTKEEPER_RUN=") for one in variables):
            found[int(entry.name)] = guard
    return found


def kill(pid: int) -> bool:
    """Kill a process; whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
