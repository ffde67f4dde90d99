"""Types of options that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class PathType(click.Path):
    """A path that is not empty, as that of a variable of the shell without a value."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=dir_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Make a path of a text."""
        if not str(value):
            self.fail("found ''; must be a path", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathType()
FILE = PathType(dir_okay=False)
GPUS = number_type("a whole number of GPUs >= 1", lambda n: n >= 1, whole=True)
