"""Reading of regular files: a pipe or device may never begin, or never end."""

import errno
import stat
from io import BufferedReader
from pathlib import Path


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: If it cannot be read, or is a pipe, a socket or a device.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a directory raises an error
        raise OSError(errno.EINVAL, "is not a file", str(path))
    return path.open("rb")
