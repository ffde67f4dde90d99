"""Parts shared by all charts: their data, units of axes, and bounds on drawn points."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Required, TypedDict

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.vocabulary import Unit

Numbers = list[float | None]
TIME_AXIS_UNITS = (
    ("days", 3 * 86400.0, 86400.0),
    ("h", 10_800.0, 3600.0),
    ("min", 180.0, 60.0),
    ("s", 0.0, 1.0),
)
"""Units of a time axis: name, shortest span (s), and size (s)."""

SPREAD = 50
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""

PANEL_POINTS = 12_000
"""Points of all lines of a panel together."""

LINE_POINTS = 1000
"""Points of one line, at most."""


RECORD = -1
"""In place of a variant: what a log recorded."""


class Axis(TypedDict, total=False):
    """An axis: `names` for categories, `min` and `max` as in ECharts; `more`: more is better."""

    name: Required[str]
    names: list[str]
    log: bool
    base: int
    min: float | str
    max: float | str
    percent: bool
    more: bool


class Line(TypedDict, total=False):
    """A line of variant `v`, or an area if that is `RECORD`; with a band from `low` to `high`."""

    v: Required[int]
    x: Sequence[float | None]
    y: Required[Numbers]
    low: Numbers
    high: Numbers
    step: str
    dash: int
    label: str
    marked: bool


class Dot(TypedDict, total=False):
    """A point of variant `v`, with its 95 % intervals; `bound`: its policy knows the future."""

    v: Required[int]
    at: Required[Numbers]
    xci: Numbers
    yci: Numbers
    label: str
    value: str
    bound: bool


class Panel(TypedDict, total=False):
    """Lines or dots over two axes; `path` joins the dots of a variant.

    `xs` are the x values of its lines without their own.
    """

    x: Required[Axis]
    y: Required[Axis]
    lines: list[Line]
    dots: list[Dot]
    path: bool
    xs: Sequence[float | None]


class ChartData(TypedDict, total=False):
    """What `report.js` draws: panels, or `views` of panels that the reader chooses from.

    `xs` are the x values of lines without their own; `zoom` adds a slider.
    """

    panels: list[Panel]
    views: dict[str, list[Panel]]
    xs: Sequence[float | None]
    zoom: bool
    step: str


class Chart(NamedTuple):
    """A chart of the page.

    Attributes:
        id: Its id in the page.
        title: Heading.
        caption: What is drawn, in which units, and how it was reduced.
        data: Input of the script.
        names: Names of lines of several variants; their positions follow those of the variants.
    """

    id: str
    title: str
    caption: str
    data: ChartData
    names: tuple[str, ...] = ()


def to_numbers(values: Iterable[float]) -> Numbers:
    """Numbers for JSON: five significant digits, None for those that are not finite."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in listed]


def points_per_line(variants: Sequence[str]) -> int:
    """Points that a line may have, so that the lines of all variants stay within a panel's."""
    return max(60, min(LINE_POINTS, PANEL_POINTS // len(variants)))


def is_spread(values: Iterable[float | None]) -> bool:
    """Whether a linear axis would crush most values: all are positive, and differ `SPREAD`-fold."""
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) > SPREAD * min(known)


def choose_time_unit(span_s: float) -> Unit:
    """The unit of a time axis of that length."""
    return next((name, size) for name, shortest, size in TIME_AXIS_UNITS if span_s >= shortest)


def label_axis(name: str, unit: str) -> str:
    """The name of an axis with its unit, if it has one."""
    return f"{name}, {unit}" if unit else name


def data_axis(name: str) -> Axis:
    """An axis that ends where the data end."""
    return {"name": name, "min": "dataMin", "max": "dataMax"}


def has_values(values: Floats) -> bool:
    """Whether any value is finite."""
    return bool(np.isfinite(values).any())


def first_seed_note(manifest: Manifest) -> str:
    """Says which seed is drawn, where there are several."""
    seeds = manifest["seeds"]
    return f" Of seed {seeds[0]}." if len(seeds) > 1 else ""
