"""The colours of variants, as the page has them in its light theme."""

import re
from functools import cache
from importlib.resources import files

SHEETS = files("wattkeeper.scenarios.report")


@cache
def variant_colours() -> tuple[str, ...]:
    """Colours of variants by their index, which repeat."""
    light = SHEETS.joinpath("report.css").read_text("utf-8").partition("[data-theme")[0]
    return tuple(re.findall(r"--v\d: (#\w{6});", light))
