"""The page of a sweep."""

from __future__ import annotations

from pathlib import Path


def sweep_page(folder: Path) -> str:
    """Stub."""
    raise NotImplementedError
