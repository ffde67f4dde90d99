"""Floor 5, the top: scenario files, their schema, sweeps and the command line.

From Python: `load` gives a scenario, its `run` a study, whose tables are pandas frames; `read`
gives the study or sweep that a folder holds, and `compare` the differences of two.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattkeeper.scenarios.api import compare, load, read

__all__ = ["compare", "load", "read"]


def __getattr__(name: str) -> Any:
    """Import on first use, since the command line needs none of them to show its help."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)
