"""What messages advise where a trace is not in the library, or is not imported yet."""

import shlex
from pathlib import Path

from wattkeeper.traces.formats import recognise, registry
from wattkeeper.traces.library.catalogue import WELL_KNOWN

IMPORT = "wattkeeper traces import"


def advise_import(path: Path) -> str:
    """How a file becomes a trace; names the format if exactly one recognises the file."""
    fits = recognise([path])
    form = fits[0].name if len(fits) == 1 else "FORMAT"
    return f"import it first with `{IMPORT} {form} {shlex.quote(str(path))} --name NAME`"


def advise_source(name: str) -> str:
    """Where the trace of a name comes from, if it is well known or has the name of a format."""
    if f"{name}-csv" in WELL_KNOWN:  # the smaller one, which shipped scenarios are about
        return f"Download it with `wattkeeper traces fetch {name}-csv --name {name}`"
    if name in WELL_KNOWN:
        return f"Download it with `wattkeeper traces fetch {name}`"
    form = registry().get(name)
    if form is None:
        return f"Import one with `{IMPORT} FORMAT PATH...`"
    return f"Import one with `{IMPORT} {name} PATH --name {name}` ({form.takes}; {form.summary})"
