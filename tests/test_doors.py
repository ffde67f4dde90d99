"""The first page leads to three others, each of which ends in a result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.test_readme import commands, needs_data, save_sacct, save_yaml, words

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [block for each, block in BLOCK.findall(text) if each == kind]


def run_python(code: str, folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_the_first_page_has_a_picture_and_three_doors() -> None:
    first_screen = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.search(r"!\[[^]]+\]\(pictures/page.png\)", first_screen)
    doors = re.findall(r"^\| \[[^]]+\]\((first-\w+\.md)\)", first_screen, re.MULTILINE)
    assert doors == ["first-log.md", "first-policy.md", "first-training.md"]


def test_the_log_ends_in_a_page(inside: Command, tmp_path: Path) -> None:
    save_sacct(tmp_path)
    save_yaml(tmp_path, [("yaml", block) for block in blocks("first-log.md", "yaml")])
    for line in commands("first-log.md"):
        inside(*words(line))
    for folder in ("study/results", "results/made"):
        page = (tmp_path / folder / "report.html").read_text(encoding="utf-8")
        answer = page.partition('<ul class="answer">')[2].partition("</ul>")[0]
        assert "kWh" in answer or "MWh" in answer
        assert "EUR" in answer


def test_the_policy_ends_in_a_verdict_and_a_figure(inside: Command, tmp_path: Path) -> None:
    lines = [line for line in commands("first-policy.md") if not needs_data(line)]
    said = [inside(*words(line)).stdout for line in lines]
    table, _, verdict, with_grid, new, mine = said
    assert "zeus" in table
    assert "grid" not in table
    assert "comparisons" in verdict
    assert "grid" in with_grid
    assert "my_batch_size.py" in new
    assert "mine" in mine
    (code,) = blocks("first-policy.md", "python")
    run_python(code, tmp_path, MPLBACKEND="agg")
    assert (tmp_path / "regret.pdf").stat().st_size > 1000


def test_the_training_ends_in_what_was_learnt(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
    script, learnt = blocks("first-training.md", "python")
    store = str(tmp_path / "sessions.sqlite")
    lines = run_python(
        script * 4 + learnt,
        tmp_path,
        WATTKEEPER_STORE=store,
        WATTKEEPER_DEVICE="synthetic:SYN-250W",
    )
    form = r"run \d: batch size (32|64|128), \d+ W, [\d,]+ J, (reached|bound|epochs)"
    assert len(lines) >= 4
    for line in (*lines, *blocks("first-training.md", "text")[0].splitlines()):
        assert re.fullmatch(form, line), line
