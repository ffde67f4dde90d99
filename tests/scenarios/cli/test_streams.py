"""Closed and full standard streams end in a message and an exit code, never in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import small

RUN = ("run", "small.yaml", "--out", "out")
UNKNOWN = ("run", "nope")


@pytest.fixture(
    autouse=True,
    params=["", pytest.param("1", marks=pytest.mark.slow)],
    ids=["buffered", "unbuffered"],
)
def buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python could not write from a buffer, it writes again as it ends."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


def shell(tmp_path: Path, redirections: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command with these redirections of a shell."""
    (tmp_path / "small.yaml").write_text(small())
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'exec "$@" {redirections}',
            "sh",
            sys.executable,
            "-m",
            "wattkeeper.scenarios",
            *arguments,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "WATTKEEPER_TRACES": str(tmp_path / "library")},
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [RUN, ("scenarios",), ("--help",)])
def test_a_closed_output_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    code, _, errors = shell(tmp_path, ">&-", *arguments)
    assert code == 3
    assert "standard output is closed" in errors
    assert shell(tmp_path, ">&- 2>&-", *arguments) == (3, "", "")
    assert not (tmp_path / "out").exists()


def test_what_a_closed_error_would_get_goes_to_the_output(tmp_path: Path) -> None:
    code, output, _ = shell(tmp_path, "2>&-", *UNKNOWN)
    assert (code, output.startswith("no scenario 'nope'")) == (2, True)
    code, output, _ = shell(tmp_path, "2>&- 0<&-", *RUN)
    assert (code, output.splitlines()[-1]) == (0, "Page: out/report.html")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_output_is_an_error_and_results_stay(tmp_path: Path) -> None:
    for arguments in (RUN, ("--help",)):
        code, _, errors = shell(tmp_path, ">/dev/full", *arguments)
        assert (code, "No space left on device" in errors) == (3, True)
    assert (tmp_path / "out/manifest.json").exists()
    assert shell(tmp_path, "2>/dev/full", *UNKNOWN) == (2, "", "")


@pytest.mark.parametrize(
    "arguments",
    [RUN, ("scenarios",), ("scenarios", "--json"), ("schema",), ("--help",), ("run", "--help")],
)
def test_a_closed_pipe_is_silent_and_ends_with_3(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """As `wattkeeper ... | head -1` closes it, at the latest; not all output was written."""
    reader, writer = os.pipe()
    os.close(reader)
    (tmp_path / "small.yaml").write_text(small())
    done = subprocess.run(
        [sys.executable, "-m", "wattkeeper.scenarios", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "WATTKEEPER_TRACES": str(tmp_path / "library")},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, b"")
    assert arguments != RUN or (tmp_path / "out/manifest.json").exists()


def test_a_wrong_argument_with_a_full_error_output_keeps_its_exit_code(tmp_path: Path) -> None:
    for redirections in ("2>/dev/full", "2>&-"):
        assert shell(tmp_path, redirections, "run", "--nonsense")[0] == 2
