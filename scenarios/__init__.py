"""Floor 5, the top: scenario files, their schema, sweeps and the command line.

From Python: `load` gives a scenario, its `run` a study, whose tables are pandas frames; `read`
gives the study that a folder holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattkeeper.scenarios.analysis.study import read
    from wattkeeper.scenarios.spec.loading import load

__all__ = ["load", "read"]

_HOMES = {"load": "spec.loading", "read": "analysis.study"}


def __getattr__(name: str) -> Any:
    """Load what is asked for, since the command line needs neither to show its help."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
