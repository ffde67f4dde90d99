"""Copies of the sources of wattkeeper, to plant faults in; their core is not compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT

FLOORS = ("policies", "traces", "sim", "live", "scenarios")


class SourceCopy:
    """A copy in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for floor in FLOORS:
            left_out = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / floor, root / "wattkeeper" / floor, ignore=left_out)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python on the copy."""
        env = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "COLUMNS": "120",
            "WATTKEEPER_TRACES": str(self.root / "library"),
        }
        asked = [sys.executable, *arguments]
        return subprocess.run(
            asked, capture_output=True, text=True, cwd=self.root, env=env, check=False
        )

    @contextmanager
    def changed(self, path: str, old: str | None, new: str) -> Iterator[None]:
        """Inside, a text that stands once in a file is another one; None: the end of the file."""
        file = self.root / "wattkeeper" / path
        source = file.read_text(encoding="utf-8")
        assert old is None or source.count(old) == 1, (
            f"{path} has {old!r} {source.count(old)} times"
        )
        planted = source + new if old is None else source.replace(old, new)
        file.write_text(planted, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(source, encoding="utf-8")
