"""Where wattkeeper keeps what must outlive a process: a folder of the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import EnvironmentLacks

VARIABLE: Final = "WATTKEEPER_STATE"


def state_folder() -> Path:
    """`$WATTKEEPER_STATE`, else `wattkeeper` in `$XDG_STATE_HOME` or in `~/.local/state`.

    It need not exist.

    Raises:
        EnvironmentLacks: If no home directory is known and nothing else is set.
    """
    if path := os.environ.get(VARIABLE):
        return Path(path).absolute()
    if path := os.environ.get("XDG_STATE_HOME"):
        return Path(path).absolute() / "wattkeeper"
    try:
        return Path.home() / ".local" / "state" / "wattkeeper"
    except RuntimeError:
        raise EnvironmentLacks(
            f"no home directory is known; set {VARIABLE} to a folder to keep state in"
        ) from None
