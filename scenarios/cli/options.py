"""Types of options that several commands share."""

import math
from collections.abc import Callable
from functools import wraps
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

    parse_number.__name__ = "number"  # as --help names the value
    return parse_number


json_option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


def output_options(content: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options `--json` and `--csv` of a command that prints this content; it gets `form`."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--json", "as_json", is_flag=True, help=f"Print {content} as JSON.")
        @click.option("--csv", "as_csv", is_flag=True, help=f"Print {content} as CSV.")
        @wraps(command)
        def with_form(as_json: bool, as_csv: bool, **arguments: Any) -> Any:
            if as_json and as_csv:
                raise click.UsageError("--json and --csv exclude each other")
            form = "json" if as_json else "csv" if as_csv else None
            return command(form=form, **arguments)

        return with_form

    return add


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
