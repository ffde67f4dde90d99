"""The results folder of a run or of a sweep, and what is kept beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

SWEEP: Final = "sweep.json"
"""What the results folder of a sweep alone has: its axes and its points."""


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    return (folder / SWEEP).is_file()


def kept_beside(results: Path, what: Literal["live", "sweep", "trainings"]) -> Path:
    """Where a results folder's unfinished work is kept, so that it goes on after an end."""
    whole = results.resolve()
    return whole.with_name(f"{whole.name}.{what}")
