"""Import formats: one module each, found by listing this package.

A module that defines ``FORMAT`` is a format; its name without a leading underscore is all that
registers it. To add one, write its module.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.policies.errors import InputError

if TYPE_CHECKING:
    from wattkeeper.traces.trace import Trace


class Format(NamedTuple):
    """How to read one kind of input.

    Attributes:
        name: As written on the command line.
        summary: One line.
        takes: The paths that it needs, in words.
        read: From these paths to a trace with a default name; raises `TraceError`.
    """

    name: str
    summary: str
    takes: str
    read: Callable[[Sequence[Path]], Trace]


@cache
def registry() -> Mapping[str, Format]:
    """All formats by name, sorted."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    )
    found: list[Format] = [module.FORMAT for module in modules]
    return {form.name: form for form in sorted(found, key=lambda form: form.name)}


def import_trace(form: str, paths: Sequence[Path], name: str | None = None) -> Trace:
    """Read files of a format.

    Args:
        form: Name of the format.
        paths: What it reads.
        name: The trace's name; by default the format chooses.

    Raises:
        InputError: If there is no such format, or the name is not allowed.
        TraceError: If a file is missing or wrong.
    """
    formats = registry()
    if form not in formats:
        lines = "".join(f"\n  {f.name}: {f.summary}" for f in formats.values())
        raise InputError(f"unknown trace format {form!r}; there are{lines}")
    if not paths:
        raise InputError(f"format {form} needs paths: {formats[form].takes}")
    trace = formats[form].read(paths)
    return trace if name is None else replace(trace, name=name)
