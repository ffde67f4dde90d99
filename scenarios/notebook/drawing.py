"""Panels of the page's charts, drawn on axes of matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.charts.chart import Axis, Chart, Dot, Line, Panel
from wattkeeper.scenarios.charts.pareto import find_front
from wattkeeper.scenarios.notebook.colours import variant_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND: Final = 0.13
"""Opacity of bands."""

LINE_STYLES: Final = ("-", (0, (7, 4)), (0, (2, 3)), (0, (8, 3, 2, 3)))
MARKERS: Final = ("o", "s", "^", "D")
STEPS: Final[Mapping[str, Literal["post", "mid"]]] = {"end": "post", "middle": "mid"}
"""Where a line steps: its name on the page, and in matplotlib."""


def choose_axes(ax: Axes | None) -> Axes:
    """The given axes; those of a new figure if there are none.

    Raises:
        EnvironmentLacks: If matplotlib is not installed.
        InputError: If something else was given.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError as error:
        raise EnvironmentLacks(
            "plots need matplotlib; install it: pip install 'wattkeeper[plots]'"
        ) from error
    if ax is None:
        ax = pyplot.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise InputError(f"ax: found {type(ax).__name__}; must be one matplotlib Axes")
    return ax


def literal(text: str) -> str:
    """A text that matplotlib shows as it is: no TeX, and no name that legends leave out."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def draw_chart(chart: Chart, variants: Sequence[str], title: str, ax: Axes | None) -> Axes:
    """Draw the only panel of a chart in the colours of the page; its names are those of variants.

    Raises:
        EnvironmentLacks: If matplotlib is not installed.
        InputError: If `ax` is no axes.
    """
    axes = choose_axes(ax)
    (panel,) = chart.data["panels"]
    xs = panel.get("xs") or chart.data.get("xs") or ()
    for line in panel.get("lines", ()):
        _draw_line(axes, line, variants, line.get("x") or xs, chart.data.get("step"))
    if "dots" in panel:
        _draw_dots(axes, panel, variants)
    _set_axis(
        axes, "x", panel["x"], (x for line in panel.get("lines", ()) for x in line.get("x") or xs)
    )
    _set_axis(axes, "y", panel["y"], (y for line in panel.get("lines", ()) for y in line["y"]))
    axes.grid(alpha=0.3)
    axes.set_title(literal(title))
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(framealpha=0.7)
    return axes


def _draw_line(
    axes: Axes, line: Line, variants: Sequence[str], x: Sequence[float | None], step: str | None
) -> None:
    index = line["v"]
    where = STEPS.get(line.get("step") or step or "")
    style: dict[str, Any] = {"color": colour_of(index)}
    axes.plot(
        _floats(x),
        _floats(line["y"]),
        label=literal(variants[index]),
        linewidth=1.6,
        linestyle=LINE_STYLES[index // len(variant_colours()) % 3],
        drawstyle=f"steps-{where}" if where else "default",
        **style,
    )
    if "low" in line:
        axes.fill_between(
            _floats(x),
            _floats(line["low"]),
            _floats(line["high"]),
            step=where,
            alpha=BAND,
            linewidth=0,
            **style,
        )


def _draw_dots(axes: Axes, panel: Panel, variants: Sequence[str]) -> None:
    """Draw a marker a dot with its intervals, the front of the reachable ones, and paths."""
    dots = panel["dots"]
    reachable = [_position(dot) for dot in dots if not dot.get("bound")]
    front = [reachable[index] for index in find_front(reachable, panel["x"].get("more", False))]
    axes.plot(*zip(*front, strict=True), linestyle="--", color="0.5", zorder=1)
    for index in dict.fromkeys(dot["v"] for dot in dots):
        own = [dot for dot in dots if dot["v"] == index]
        colour = colour_of(index)
        if panel.get("path") and len(own) > 1:
            axes.plot(*zip(*map(_position, own), strict=True), color=colour, linewidth=1, alpha=0.7)
        label: str | None = literal(variants[index]) + " (a bound)" * own[0].get("bound", False)
        for dot in own:
            x, y = _position(dot)
            axes.errorbar(
                x,
                y,
                xerr=_reach(dot, x, "xci"),
                yerr=_reach(dot, y, "yci"),
                color=colour,
                marker=MARKERS[index // len(variant_colours()) % 4],
                markersize=8,
                linestyle="",
                markerfacecolor="none" if dot.get("bound") else colour,
                label=label,
            )
            label = None
        _label_dots(axes, own)


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
    set_["label"](literal(axis["name"]))
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
    set_["lim"](low, high)


def _floats(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def colour_of(index: int) -> str:
    """The colour of a variant by its index."""
    colours = variant_colours()
    return colours[index % len(colours)]
