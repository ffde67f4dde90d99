"""What the page on live elastic trainings shows runs as it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.messages import assert_states

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs/live-elastic.md").read_text(encoding="utf-8")


def run(folder: Path, *arguments: str) -> str:
    pytest.importorskip("torch")
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command(tmp_path: Path) -> None:
    line = re.search(r"^\$ python (.*)$", PAGE, re.MULTILINE)
    assert line is not None
    said = run(tmp_path, *shlex.split(line[1]))
    assert_states(said, "150 steps", "workers lost", "equal in each step", "results/elastic")
    rows = pq.read_table(tmp_path / "results/elastic/shapes.parquet").to_pylist()
    assert sum(row["samples"] for row in rows) == 150 * 64


def test_the_script(tmp_path: Path) -> None:
    script = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert script is not None
    (tmp_path / "train.py").write_text(script[1], encoding="utf-8")
    assert_states(run(tmp_path, "train.py"), "last loss", "0 steps trained again")
    assert (tmp_path / "results/small/state.pt").exists()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--replan", "{"], ["--replan is '{'", "JSON"]),
        (["--replan", "nobody"], ["'nobody'", "oobleck"]),
        (["--nodes", "0"], ["--nodes is 0", "at least 1"]),
        (["--kills", "-1"], ["--kills is -1", "at least 0"]),
        (["--away-s", "nan"], ["--away-s is nan", "finite"]),
        (["--least-nodes", "5"], ["least_nodes=5", "nodes=4"]),
    ],
)
def test_options_that_are_refused(
    options: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from wattkeeper.live.examples.elastic import main

    assert main(options) == 2
    assert_states(capsys.readouterr().err, *facts)
