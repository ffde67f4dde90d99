"""Types of options that several commands share."""

import math
from collections.abc import Callable

import click


def number_type(
    requirement: str, is_allowed: Callable[[float], bool], *, whole: bool = False
) -> Callable[[str], float]:
    """A parser of an option's number; its message states the requirement."""

    def parse_number(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
            if math.isfinite(value) and is_allowed(value):
                return value
        except ValueError:
            pass
        raise click.BadParameter(f"found {str(text)!r}; must be {requirement}")

    return parse_number


GPUS = number_type("a whole number of GPUs >= 1", lambda n: n >= 1, whole=True)
