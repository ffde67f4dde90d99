"""Types of options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable

import click


def number_type(
    what: str, allowed: Callable[[float], bool], *, whole: bool = False
) -> Callable[[str], float]:
    """A reader of an option's number; its message says what the number must be."""

    def number(text: str) -> float:
        try:
            found = int(text) if whole else float(text)
            if math.isfinite(found) and allowed(found):
                return found
        except ValueError:
            pass
        raise click.BadParameter(f"found {str(text)!r}; must be {what}")

    return number


GPUS = number_type("a whole number of GPUs >= 1", lambda n: n >= 1, whole=True)
