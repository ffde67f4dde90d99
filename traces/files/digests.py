"""Digests of files."""

import hashlib
from pathlib import Path

from wattkeeper.traces.files.regular import open_file


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file.

    Raises:
        OSError: If it cannot be read.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
