"""numpy and Arrow, as a process that runs wattkeeper only wants them."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

_THREADS: Final = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Where OpenBLAS reads the number of its threads, in this order."""


class _Hidden(MetaPathFinder):
    """Reports pandas as not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ImportError("pandas is hidden from Arrow")


def configure_process() -> None:
    """Import numpy and Arrow for a process that runs wattkeeper only; call it before others do.

    OpenBLAS has one thread, unless the environment says otherwise or numpy was imported before: no
    matrix here is large, and threads that wait for work spin. Arrow's memory comes from the same
    heap as numpy's, which lowers the peak of a run. Arrow imports pandas with its first array,
    which no run needs: it is hidden from Arrow.
    """
    _import_numpy()
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


def _import_numpy() -> None:
    """Import numpy, which reads the number of threads now; child processes do not inherit it."""
    if any(name in os.environ for name in _THREADS):
        return
    os.environ[_THREADS[0]] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_THREADS[0]]
