"""Files and folders that only their owner may read or write, whatever the umask is."""

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; one that is there stays as it is.

    Raises:
        OSError: If the file system refuses.
    """
    if folder.parent != folder and not folder.parent.exists():
        make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str | Path, flags: int) -> int:
    """An `opener` for `open`, whose file is private if it is made; its descriptor.

    Raises:
        OSError: If the file system refuses.
    """
    return os.open(path, flags, 0o600)


def make_private_file(path: Path) -> None:
    """Make an empty file; one that is there stays as it is.

    SQLite gives the files that it makes beside a database the permissions of the database.

    Raises:
        OSError: If the file system refuses.
    """
    os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
