"""Garbage collection while a process starts.

What is imported stays, so that there is nothing to collect; by Python's default, its import would
be interrupted two hundred times to look.
"""

import gc
from typing import Final

_MANY: Final = 400_000
"""More objects than a start makes."""

_usual: list[tuple[int, int, int]] = []
"""When garbage is collected, other than while this process starts; empty if it does not."""


def begin_start() -> None:
    """Collect no garbage, unless a great many objects come together."""
    _usual[:] = [gc.get_threshold()]
    gc.set_threshold(_MANY)


def end_start() -> None:
    """Collect garbage as usual from now on, but nothing that is there now."""
    if _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())
