"""The trace library: a folder of traces, found by name.

It is ``$WATTKEEPER_TRACES``, by default ``wattkeeper/traces`` in the user's cache directory
(``$XDG_CACHE_HOME``, or ``~/.cache``).
"""

from __future__ import annotations

import os
from pathlib import Path

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.traces.folder import META, read, write
from wattkeeper.traces.names import check_name, is_name
from wattkeeper.traces.trace import Trace


def root() -> Path:
    """The folder of the library; it need not exist.

    Raises:
        EnvironmentLacks: If no home directory is known and nothing else is set.
    """
    if path := os.environ.get("WATTKEEPER_TRACES"):
        return Path(path)
    if path := os.environ.get("XDG_CACHE_HOME"):
        return Path(path) / "wattkeeper" / "traces"
    try:
        return Path.home() / ".cache" / "wattkeeper" / "traces"
    except RuntimeError as error:
        raise EnvironmentLacks("no home directory is known; set WATTKEEPER_TRACES") from error


def names() -> tuple[str, ...]:
    """The names of all traces in the library, sorted.

    Raises:
        EnvironmentLacks: If the library is there and cannot be listed.
    """
    try:
        with os.scandir(root()) as entries:
            return tuple(
                sorted(e.name for e in entries if is_name(e.name) and (Path(e) / META).is_file())
            )
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise EnvironmentLacks(f"cannot list {root()}: {error.strerror or error}") from error


def locate(name_or_path: str | Path) -> Path:
    """The folder of a trace.

    A name in the library goes before a folder of that name in the working directory (write
    ``./NAME`` for that one).

    Raises:
        InputError: If there is no such trace; the message lists what is there.
    """
    text = str(name_or_path)
    if is_name(text) and (root() / text).is_dir():
        return root() / text
    try:
        path = Path(text).expanduser()
        if text and path.exists():
            return path
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte, ~nobody
        pass
    known = ", ".join(names()) or "nothing yet"
    raise InputError(
        f"no trace named {text!r}: in the library ({root()}) there is {known}. Import one with "
        "`wattkeeper traces import FORMAT PATH...`, or give the path of a trace's folder"
    )


def find(name_or_path: str | Path) -> Trace:
    """Read a trace by its name in the library or by the path of its folder.

    Raises:
        InputError: If there is no such trace; the message lists what is there.
        TraceError: If it is there and broken.
    """
    return read(locate(name_or_path))


def save(trace: Trace, *, replace: bool = False) -> Path:
    """Put a trace into the library under its name.

    Returns:
        Its folder.

    Raises:
        InputError: If the name is taken and `replace` is not given.
        EnvironmentLacks: If the file system refuses.
    """
    folder = root() / check_name(trace.name)
    write(trace, folder, overwrite=replace)
    return folder
