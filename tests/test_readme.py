"""Every command of the README runs as it stands there."""

from __future__ import annotations

import gzip
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import Command

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(README)
COMMANDS = [
    line.removeprefix("$ ")
    for kind, block in BLOCKS
    if kind == "console"
    for line in block.splitlines()
]


def needs_data(line: str) -> bool:
    known = "my-jobs" in line or "made-up" in line
    return not known and ("zeus-" in line or "groups" in line or "traces" in line)


def test_all_commands_are_known() -> None:
    assert len(COMMANDS) > 10
    assert all(line.startswith("wattkeeper ") for line in COMMANDS)
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["quickstart", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_commands_without_data(command: Command, tmp_path: Path) -> None:
    (scenario,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "mine.yaml").write_text(scenario, encoding="utf-8")
    rows = [f"{n},{37 * n % 9000},{60 + 97 * n % 5000},{1 << n % 4}" for n in range(300)]
    header = "job_id,submit_time,duration,num_gpus"
    (tmp_path / "jobs.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    for line in COMMANDS:
        if not needs_data(line):
            command(*shlex.split(line)[1:])
    assert (tmp_path / "results/mine/jobs.parquet").is_file()
    (example,) = (block for kind, block in BLOCKS if kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "batch_size" in done.stdout


def test_commands_on_the_zeus_traces(command: Command, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "zeus-traces").symlink_to(shared / "data/zeus-nsdi23")
    groups = gzip.decompress((shared / "reference/zeus/overlapping_groups.csv.gz").read_bytes())
    (tmp_path / "groups.csv").write_bytes(groups)
    for line in COMMANDS:
        if needs_data(line):
            command(*shlex.split(line)[1:])
    assert (tmp_path / "results/zeus-overlap/jobs.parquet").is_file()


def test_policies_are_all_named() -> None:
    from wattkeeper.policies.registry import POINTS, policies

    for point in POINTS:
        for kind in policies(point):
            assert f"`{point}: {kind}`" in README
