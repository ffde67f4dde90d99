"""Paths that name nothing that can be read or written are refused at once, in one message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "quickstart", "--out", ""),
        ("run", ""),
        ("validate", ""),
        ("report", ""),
        ("timeline", ""),
        ("compare", "", ""),
        ("traces", "import", "csv", ""),
        ("traces", "import", "csv", "jobs.csv", "--name", ""),
        ("zoo", "list", "--zoo", ""),
        ("bench", "--baselines", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_or_name_is_refused(
    arguments: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    """As where a variable of the shell has no value; it is not the current folder."""
    (tmp_path / "jobs.csv").write_text("submit_time_s,gpus\n0,1\n")
    refused = inside(*arguments, code=2).stderr
    assert any(text in refused for text in ("found ''", "''", "empty")), refused
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


@pytest.mark.parametrize("target", ["LOOP", "LOOP/x", "LOOP/x/y"])
def test_a_loop_of_links_is_refused_by_name(target: str, inside: Command, tmp_path: Path) -> None:
    (tmp_path / "LOOP").symlink_to("LOOP")
    refused = inside("run", "quickstart", "--seeds", "1", "--out", target, code=2)
    assert_states(refused.stderr, target, "loop of symbolic links")
    imported = inside("traces", "import", "csv", target, code=2)
    assert_states(imported.stderr, target, "symbolic links")


def test_a_dangling_link_is_no_file_to_read(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    for arguments in (("validate",), ("report",), ("traces", "import", "csv")):
        refused = inside(*arguments, "gone", code=2)
        assert_states(refused.stderr, "gone")


@pytest.mark.parametrize(
    "arguments",
    [
        ("traces", "import", "csv", "pipe"),
        ("traces", "import", "auto", "pipe"),
        ("traces", "import", "philly-json", "pipe"),
        ("traces", "describe", "trace"),
        (
            "traces",
            "generate",
            "jobs",
            "--fit",
            "pipe",
            "--jobs",
            "9",
            "--load",
            "1",
            "--gpus",
            "9",
            "--name",
            "made",
        ),
        ("bench", "--baselines", "pipe"),
        ("validate", "pipe"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    arguments: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "trace").mkdir()
    os.mkfifo(tmp_path / "trace/trace.json")
    assert_states(inside(*arguments, code=2).stderr, "is not a file")


def test_a_file_name_with_a_line_feed_is_shown_in_one_line(inside: Command) -> None:
    for arguments in (("traces", "import", "csv"), ("validate",)):
        (line,) = inside(*arguments, "no\nsuch", code=2).stderr.splitlines()
        assert_states(line, r"no\nsuch")
