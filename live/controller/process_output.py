"""What the processes of a live run said, in the files that their runner keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wattkeeper.live.controller.launchers.local import file_name

SHOWN: Final = 300
"""So many characters of a line are shown."""
LINES: Final = 5
"""So many of the last lines are shown of a process that failed."""


def said(folder: Path, run: str) -> str:
    """Where a process said something, and the last line of it."""
    spoken = _spoken(folder, run)
    if not spoken:
        return "it said nothing"
    return f"{_where(spoken)}; the last line: {''.join(_last(spoken[0], 1))}"


def last_said(folder: Path, run: str) -> str:
    """Where a process said something, and its last lines."""
    spoken = _spoken(folder, run)
    if not spoken:
        return "It said nothing."
    lines = "".join(f"\n  {line}" for line in _last(spoken[0], LINES))
    return f"{_where(spoken).capitalize()}; the last lines:{lines}"


def _spoken(folder: Path, run: str) -> list[Path]:
    """The files of a process that hold something, errors first."""
    found = sorted(folder.glob(f"{file_name(run)}.*"))
    return [path for path in found if path.stat().st_size]


def _where(spoken: list[Path]) -> str:
    return f"what it said is in {' and '.join(map(str, spoken))}"


def _last(path: Path, count: int) -> list[str]:
    """The last lines that hold something, as long as they are shown."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    spoken = [line.rstrip() for line in lines if line.strip()][-count:]
    return [(line.strip() if count == 1 else line)[:SHOWN] for line in spoken]
