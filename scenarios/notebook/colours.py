"""How variants are drawn: in the colours of the page's light theme, and told apart in grey."""

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

SHEETS = files("wattkeeper.scenarios.report")

LINES: Final = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)))
MARKERS: Final = ("o", "s", "^", "D", "v", "p", "<", ">")


@cache
def variant_colours() -> tuple[str, ...]:
    """Colours of variants by their index, which repeat."""
    light = SHEETS.joinpath("report.css").read_text("utf-8").partition("[data-theme")[0]
    return tuple(re.findall(r"--v\d: (#\w{6});", light))


class VariantStyle(NamedTuple):
    """How a variant is drawn.

    Attributes:
        name: Its name.
        number: Its position among all variants of the results, from 0.
    """

    name: str
    number: int

    @property
    def colour(self) -> str:
        """Its colour on the page."""
        colours = variant_colours()
        return colours[self.number % len(colours)]

    @property
    def line(self) -> str | tuple[float, tuple[float, ...]]:
        """Its line style."""
        return LINES[self._shift % len(LINES)]

    @property
    def marker(self) -> str:
        """Its marker."""
        return MARKERS[self._shift % len(MARKERS)]

    @property
    def _shift(self) -> int:
        """Its number, moved on by one for each round of colours, so that the pairs differ."""
        return self.number + self.number // len(variant_colours())
