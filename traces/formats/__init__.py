"""Import formats: one module each, discovered by listing this package.

A module or package without a leading underscore that defines ``FORMAT`` is a format; nothing else
registers it. A `JobsFormat` reads logs of any size in batches; `wattkeeper.traces.library.importer`
does the rest. A `Format` reads small files at once.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from wattkeeper.policies.errors import InputError, TraceError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.readers.base import Format, JobsFormat

AUTO = "auto"
"""Name that stands for the format that recognises the files."""


@cache
def registry() -> Mapping[str, Format | JobsFormat]:
    """All formats by name, sorted."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    )
    formats: list[Format | JobsFormat] = [module.FORMAT for module in modules]
    return {form.name: form for form in sorted(formats, key=lambda form: form.name)}


def recognise(paths: Sequence[Path]) -> list[Format | JobsFormat]:
    """The formats that recognise one of the paths, by name."""
    return [form for form in registry().values() if any(form.sniff(path) for path in paths)]


def find_format(form: str, paths: Sequence[Path]) -> Format | JobsFormat:
    """The format of a name; for `AUTO` the only one that recognises one of the paths.

    Raises:
        InputError: If there is no such format, or no paths.
        TraceError: If none or several formats recognise the paths; the message lists them.
    """
    formats = registry()
    if form not in (AUTO, *formats):
        lines = "".join(f"\n  {f.name}: {f.summary}" for f in formats.values())
        meant = did_you_mean(form, (AUTO, *formats))
        raise InputError(f"unknown trace format {form!r}{meant}; there are{lines}")
    if not paths:
        takes = "the files to import" if form == AUTO else formats[form].takes
        raise InputError(f"format {form} needs paths: {takes}")
    if form != AUTO:
        return formats[form]
    fits = recognise(paths)
    if len(fits) == 1:
        return fits[0]
    where = ", ".join(map(str, paths))
    if fits:
        raise TraceError(f"{where}: could be {' or '.join(f.name for f in fits)}; name the format")
    from wattkeeper.traces.readers.textfile import check_text

    for path in paths:
        check_text(path)
    raise TraceError(f"{where}: no format recognises this; name it: {', '.join(formats)}")
