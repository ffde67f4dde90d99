"""Folders of the user: state that outlives a process, and the trace library."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import platformdirs

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.private import check_own_folder

STATE: Final = "WATTKEEPER_STATE"
TRACES: Final = "WATTKEEPER_TRACES"


def state_folder() -> Path:
    """`$WATTKEEPER_STATE`, else `wattkeeper` in `$XDG_STATE_HOME` or in `~/.local/state`.

    It need not exist.

    Raises:
        EnvironmentLacks: If no home directory is known and nothing else is set.
        StoreError: If it belongs to another user, or others may write it.
    """
    folder = _folder(STATE, platformdirs.user_state_path)
    if os.path.lexists(folder):
        check_own_folder(folder, STATE)
    return folder


def library_folder() -> Path:
    """`$WATTKEEPER_TRACES`, else `wattkeeper/traces` in `$XDG_CACHE_HOME` or in `~/.cache`.

    It need not exist.

    Raises:
        EnvironmentLacks: If no home directory is known and nothing else is set.
    """
    return _folder(TRACES, platformdirs.user_cache_path, "traces")


def _folder(variable: str, default: Callable[[str], Path], *parts: str) -> Path:
    if path := os.environ.get(variable):
        return Path(path).absolute()
    try:
        return default("wattkeeper").joinpath(*parts)
    except RuntimeError:
        text = f"no home directory is known; set {variable} to a folder"
        raise EnvironmentLacks(text) from None
