"""Panels of the page's charts, drawn on axes of matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from wattkeeper.scenarios.charts.chart import Axis, Chart, Dot, Line, Panel
from wattkeeper.scenarios.charts.pareto import find_front
from wattkeeper.scenarios.notebook.colours import VariantStyle
from wattkeeper.scenarios.notebook.frame import Frame, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

BAND: Final = 0.13
"""Opacity of bands."""

MARKER: Final = 8.0
"""Size of a marker, points."""

RING: Final = 5.0
"""How much wider a marker is than the one on top of it, points."""

MOST_RINGS: Final = 3
"""Rings in a place; where more variants are, their names stand beside it."""

STEPS: Final[Mapping[str, Literal["post", "mid"]]] = {"end": "post", "middle": "mid"}
"""Where a line steps: its name on the page, and in matplotlib."""


def draw_chart(chart: Chart, styles: Sequence[VariantStyle], title: str, frame: Frame) -> Axes:
    """Draw the only panel of a chart; its indices of variants are those of the styles.

    Raises:
        EnvironmentLacks: If matplotlib is not installed.
        InputError: If the frame has no axes.
    """
    (panel,) = chart.data["panels"]
    xs = panel.get("xs") or chart.data.get("xs") or ()
    lines = sorted(panel.get("lines", ()), key=itemgetter("v"))
    with frame.drawn(title) as axes:
        for line in lines:
            _draw_line(axes, line, styles[line["v"]], line.get("x") or xs, chart.data.get("step"))
        markers = _draw_dots(axes, panel, styles)
        _set_axis(axes, "x", panel["x"], (x for line in lines for x in line.get("x") or xs))
        _set_axis(axes, "y", panel["y"], (y for line in lines for y in line["y"]))
        axes.grid(alpha=0.3)
    if markers:
        _tell_apart(axes, markers, styles)
    return axes


def _draw_line(
    axes: Axes, line: Line, style: VariantStyle, x: Sequence[float | None], step: str | None
) -> None:
    where = STEPS.get(line.get("step") or step or "")
    axes.plot(
        _floats(x),
        _floats(line["y"]),
        label=literal(style.name),
        color=style.colour,
        linewidth=1.6,
        linestyle=style.line,
        drawstyle=f"steps-{where}" if where else "default",
    )
    if "low" in line:
        axes.fill_between(
            _floats(x),
            _floats(line["low"]),
            _floats(line["high"]),
            step=where,
            color=style.colour,
            alpha=BAND,
            linewidth=0,
        )


def _draw_dots(
    axes: Axes, panel: Panel, styles: Sequence[VariantStyle]
) -> list[tuple[Dot, Line2D]]:
    """Draw a marker a dot with its intervals, the front of the reachable ones, and paths."""
    dots = panel.get("dots", ())
    if not dots:
        return []
    axes.margins(0.1)
    reachable = [_position(dot) for dot in dots if not dot.get("bound")]
    front = [reachable[index] for index in find_front(reachable, panel["x"].get("more", False))]
    axes.plot(*zip(*front, strict=True), linestyle="--", color="0.5", zorder=1)
    markers: list[tuple[Dot, Line2D]] = []
    for index in dict.fromkeys(dot["v"] for dot in dots):
        own = [dot for dot in dots if dot["v"] == index]
        style = styles[index]
        if panel.get("path") and len(own) > 1:
            path = zip(*map(_position, own), strict=True)
            axes.plot(*path, color=style.colour, linewidth=1, alpha=0.7)
        label: str | None = literal(style.name) + " (a bound)" * own[0].get("bound", False)
        for dot in own:
            x, y = _position(dot)
            marker, *_ = axes.errorbar(
                x,
                y,
                xerr=_reach(dot, x, "xci"),
                yerr=_reach(dot, y, "yci"),
                color=style.colour,
                marker=style.marker,
                markersize=MARKER,
                linestyle="",
                markerfacecolor="none" if dot.get("bound") else style.colour,
                label=label,
            )
            assert marker is not None  # there is none only without a style
            markers.append((dot, marker))
            label = None
        _label_dots(axes, own)
    return markers


def _tell_apart(
    axes: Axes, markers: Sequence[tuple[Dot, Line2D]], styles: Sequence[VariantStyle]
) -> None:
    """Widen markers that those of other variants cover into rings around these.

    Two cover each other within a third of a marker; variants are drawn in their order. Where there
    are too many, their names stand beside them.
    """
    places = axes.transData.transform([_position(dot) for dot, _ in markers])
    near = MARKER / 3 * axes.figure.dpi / 72
    variants = np.array([dot["v"] for dot, _ in markers])
    for place, (dot, marker) in zip(places, markers, strict=True):
        here = sorted(set(variants[np.abs(places - place).max(axis=1) < near].tolist()))
        above = len(here) - 1 - here.index(dot["v"])
        marker.set_markersize(MARKER + min(above, MOST_RINGS) * RING)
        if len(here) > 1 and marker.get_markerfacecolor() != "none":
            marker.set_markeredgecolor("white")
        if above == len(here) - 1 > MOST_RINGS:
            right = axes.transAxes.inverted().transform(place)[0] < 0.5
            names = textwrap.fill(", ".join(styles[v].name for v in here), 24)
            axes.annotate(
                literal(names),
                _position(dot),
                ((1 if right else -1) * (MARKER + MOST_RINGS * RING), 0),
                textcoords="offset points",
                fontsize="small",
                ha="left" if right else "right",
                va="center",
                bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1},
            )


def _label_dots(axes: Axes, dots: Sequence[Dot]) -> None:
    """Write the values of dots beside them; those in the same place share a label."""
    values: dict[tuple[float, float], list[str]] = {}
    for dot in dots:
        if "value" in dot:
            values.setdefault(_position(dot), []).append(dot["value"])
    for position, own in values.items():
        text = own[0] if len(own) == 1 else f"{own[0]}–{own[-1]}"
        axes.annotate(literal(text), position, (6, 5), textcoords="offset points", fontsize="small")


def _reach(dot: Dot, value: float, interval: str) -> list[list[float]] | None:
    """How far an interval of a dot reaches below and above its value; None without one."""
    bounds = dot.get(interval)
    if not isinstance(bounds, list):
        return None
    low, high = _floats(bounds)
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def _position(dot: Dot) -> tuple[float, float]:
    x, y = _floats(dot["at"])
    return x, y


def _set_axis(axes: Axes, which: str, axis: Axis, values: Iterable[float | None]) -> None:
    """Name and scale an axis."""
    set_ = {name: getattr(axes, f"set_{which}{name}") for name in ("label", "lim", "scale")}
    set_["label"](_wrap(axes, literal(axis["name"])) if which == "y" else literal(axis["name"]))
    if axis.get("log"):
        set_["scale"]("log", base=axis.get("base", 10))
    if axis.get("percent"):
        from matplotlib.ticker import PercentFormatter

        getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1, decimals=0))
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int) for value in known):
        getattr(axes, f"{which}axis").get_major_locator().set_params(integer=True)
    ends = {"dataMin": min(known, default=None), "dataMax": max(known, default=None)}
    low, high = (ends.get(str(end), end) for end in (axis.get("min"), axis.get("max")))
    if low is None or low != high:
        set_["lim"](low, high)


def _wrap(axes: Axes, label: str) -> str:
    """The label of a vertical axis, in lines that a low figure has room for."""
    from matplotlib import rcParams

    height = axes.bbox.height / axes.figure.dpi * 72 / rcParams["font.size"]
    return textwrap.fill(label, max(12, int(1.6 * height)))


def _floats(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
