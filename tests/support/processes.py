"""What tests ask of the processes that they start."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

WAIT_S = 120
"""Longer than a slow machine takes for anything here."""


def finish(process: subprocess.Popen[bytes], code: int = 0) -> str:
    """What it says on its standard error until it ends, which it does with that exit code."""
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == code, said.decode()
    return said.decode()


def lines(log: Path, word: str) -> list[list[str]]:
    """The words of the lines of a log that begin with one."""
    text = log.read_text() if log.exists() else ""
    return [line.split() for line in text.splitlines() if line.startswith(word)]


def until(true: Callable[[], object]) -> None:
    """Wait for something."""
    end_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.01)
