"""Folders and files as other users leave them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
"""Marks tests that give files to another user."""


def give_away(path: Path) -> None:
    """Give a file, or a folder with all in it, to another user."""
    for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)


def modes(folder: Path) -> dict[str, str]:
    """Modes of all in a folder, in octal, by path in it."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {str(path.relative_to(folder)): f"{path.lstat().st_mode & 0o7777:04o}" for path in paths}
