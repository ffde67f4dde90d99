"""What charts share: their form, units of axes, and how many points are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.json_types import Json

SPANS = (("days", 3 * 86400.0, 86400.0), ("h", 10_800.0, 3600.0), ("min", 180.0, 60.0),
         ("s", 0.0, 1.0))  # fmt: skip
"""Units of a time axis, from which span on, and their size in s."""

WHOLE_SPAN = {"min": "dataMin", "max": "dataMax"}

POINTS = 12_000
"""Of all lines of a panel together."""

MOST = 1000
"""Points of a line."""


class Chart(NamedTuple):
    """A chart of the page.

    Attributes:
        id: In the page.
        title: What it shows.
        caption: What is drawn, in which units, and how it was reduced.
        drawn: What the script draws; see `report.js`.
    """

    id: str
    title: str
    caption: str
    drawn: Json


def numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON: five significant digits, None where there is none."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return [float(f"{one:.5g}") if math.isfinite(one) else None for one in listed]


def length(variants: Sequence[str]) -> int:
    """How many points a line may have, so that all of them together stay few."""
    return max(60, min(MOST, POINTS // len(variants)))


def unit_for(values: Iterable[float], units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The unit in which the largest of the values is at least 1."""
    most = max((abs(one) for one in values if math.isfinite(one)), default=0.0)
    return next((unit for unit in units if most >= unit[1]), units[-1])


def span_unit(span_s: float) -> tuple[str, float]:
    """The unit of a time axis of that length."""
    return next((name, size) for name, least, size in SPANS if span_s >= least)


def has_value(values: Floats) -> bool:
    """Whether any is known."""
    return bool(np.isfinite(values).any())
