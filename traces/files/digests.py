"""Digests of files."""

import hashlib
from pathlib import Path


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
