"""The charts of a sweep: energy against time, and each metric along each axis."""

import math
from collections.abc import Iterator, Sequence

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.points import (
    PointRow,
    all_oracles,
    all_shown_metrics,
    is_number,
    sort_points,
)
from wattkeeper.scenarios.analysis.resolved.key_words import (
    key_words,
    label_point,
    short_keys,
    title_of_key,
)
from wattkeeper.scenarios.analysis.vocabulary import (
    choose_unit,
    is_gain,
    label_of,
    metric_units,
    own_baselines,
)
from wattkeeper.scenarios.charts.chart import (
    Axis,
    Chart,
    Line,
    Panel,
    is_spread,
    label_axis,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import spaced_indices
from wattkeeper.scenarios.charts.pareto import (
    EnergyTime,
    describe_front,
    limit_points,
    scatter,
    title_tradeoff,
)
from wattkeeper.scenarios.spec.wording import axis_text

DASHES = ("solid", "dashed", "dotted", "dash-dotted")
"""Styles of lines that differ in the other axes, as `report.js` draws them."""

APART = 0.05
"""Lines whose values differ by so much of the larger one are told apart."""

Spread = tuple[float, float, float]
"""A mean and the bounds of its interval; NaN where there is none."""


def draw_sweep(sweep: Json, points: Sequence[PointRow], variants: list[str]) -> Iterator[Chart]:
    """All charts of a sweep."""
    if not points:
        return
    yield from draw_sweep_tradeoff(sweep, points, variants)
    metrics = all_shown_metrics(points)
    relative = len({point.etas for point in points}) > 1  # costs weigh energy differently
    costs = (
        " Costs under different eta are not compared: cost is shown as its change against "
        "the baseline at the same point."
    ) * relative
    has_own = any(own_baselines(point.summary["variants"]) for point in points)
    baseline = "its baseline" if has_own else sweep["baseline"]
    names = short_keys(sweep["axes"])
    for number, path in enumerate(sweep["axes"]):
        others, left_out = _select_others(path, points)
        views = _metric_views(path, others, points, variants, metrics, baseline, relative)
        if views:
            keys = [
                f"{d}: {label_point(other, sweep['axes'])}"
                for d, other in zip(DASHES, others, strict=False)
            ]
            lines = f" Lines are {'; '.join(keys)}." if any(others) else ""
            if left_out:
                lines += f" {left_out} more values of the other axes are left out here."
            yield Chart(
                f"axis{number}",
                f"Along {key_words(path)[0]}",
                f"The mean of a metric at each value of {names[path]}, a line a variant; the band "
                f"is the 95 % interval where there are several seeds.{lines}{costs}",
                {"views": views},
            )


def draw_sweep_tradeoff(
    sweep: Json, points: Sequence[PointRow], variants: list[str]
) -> Iterator[Chart]:
    """Energy against time or goodput, each variant at each point; none without energy."""
    time, energy, labels = points[0].tradeoff
    single = len(sweep["axes"]) == 1
    dots = [
        EnergyTime(
            variants.index(name),
            about["metrics"][time],
            about["metrics"][energy],
            label_point(point.values),
            axis_text(next(iter(point.values.values()))) if single else "",
            name in point.oracles,
        )
        for point in (sort_points(points, *sweep["axes"]) if single else points)
        for name, about in point.summary["variants"].items()
    ]
    drawn, reduction = limit_points(dots, is_gain(time))
    data = scatter(drawn, (time, energy), labels, path=single)
    if data is None:
        return
    title = title_of_key(next(iter(sweep["axes"])))
    path = f"Thin lines join the points of a variant; labels are values of {title}. " * single
    yield Chart(
        "pareto",
        title_tradeoff(time),
        f"Each variant at each point: {labels[0]} and {labels[1]}, means over seeds with 95 % "
        "intervals where there are several seeds. "
        f"{path}{reduction}{describe_front(all_oracles(points))}",
        data,
    )


def _select_others(path: str, points: Sequence[PointRow]) -> tuple[list[Json], int]:
    """Values of the other axes for which lines are drawn, and how many are left out."""
    known: dict[str, Json] = {}
    counts: dict[str, set[str]] = {}
    for point in points:
        others = _without(point.values, path)
        known[label_point(others)] = others
        counts.setdefault(label_point(others), set()).add(axis_text(point.values[path]))
    several = [known[label] for label, values in counts.items() if len(values) > 1]
    selected = [several[index] for index in spaced_indices(len(several), len(DASHES))]
    return selected, len(several) - len(selected)


def _without(values: Json, path: str) -> Json:
    return {other: value for other, value in values.items() if other != path}


def _metric_views(
    path: str,
    others: Sequence[Json],
    points: Sequence[PointRow],
    variants: list[str],
    metrics: Sequence[str],
    baseline: str,
    relative: bool,
) -> dict[str, list[Panel]]:
    """A view of each metric along one axis; none if only one value of the axis is done.

    The first metric whose lines are told apart comes first. Each of the values of the other axes
    has a line. A relative cost is drawn as its change.
    """
    values = list({axis_text(point.values[path]): point.values[path] for point in points}.values())
    numeric = all(map(is_number, values))
    if numeric:
        values.sort()
    axis: Axis = (
        {"name": title_of_key(path)}
        if numeric
        else {"name": title_of_key(path), "names": list(map(axis_text, values))}
    )
    x = values if numeric else list(range(len(values)))
    by_place = {
        (axis_text(point.values[path]), label_point(_without(point.values, path))): point
        for point in points
    }
    views: dict[str, list[Panel]] = {}
    for metric in metrics:
        title = label_of(metric)
        as_change = relative and metric == "cost"
        spreads = [
            (
                v,
                dash,
                [
                    _spread(metric, name, by_place.get((axis_text(value), place)), as_change)
                    for value in values
                ],
            )
            for v, name in enumerate(variants)
            for dash, place in enumerate(map(label_point, others))
        ]
        highs = [high for _, _, line_spreads in spreads for _, _, high in line_spreads]
        if all(map(math.isnan, highs)):
            continue
        unit, size = ("", 1.0) if as_change else choose_unit(highs, metric_units(metric))
        lines: list[Line] = []
        for v, dash, line_spreads in spreads:
            y, low, high = (
                to_numbers([spread[column] / size for spread in line_spreads])
                for column in range(3)
            )
            line: Line = {"v": v, "x": x, "marked": True, "y": y, "low": low, "high": high}
            if others[dash]:
                line |= {"dash": dash, "label": label_point(others[dash], points[0].values)}
            lines.append(line)
        y_axis: Axis = {"name": label_axis(title, unit)}
        if not as_change and is_spread([value for line in lines for value in line["y"]]):
            y_axis["log"] = True
            y_axis["name"] += " (logarithmic)"
        if as_change:
            y_axis = {"name": f"{title} against {baseline}", "percent": True}
        views[title] = [{"x": axis, "y": y_axis, "lines": lines}]
    first = next((title for title, (panel,) in views.items() if _are_apart(panel["lines"])), None)
    return views if first is None else {first: views[first], **views}


def _are_apart(lines: Sequence[Line]) -> bool:
    """Whether lines of variants, at the same values of the other axes, part at some place."""
    by_dash: dict[int, list[Line]] = {}
    for line in lines:
        by_dash.setdefault(line.get("dash", 0), []).append(line)
    places = [
        [value for value in place if value is not None]
        for alike in by_dash.values()
        for place in zip(*(line["y"] for line in alike), strict=True)
    ]
    return any(max(place) - min(place) > APART * max(map(abs, place)) for place in places if place)


def _spread(metric: str, name: str, point: PointRow | None, as_change: bool) -> Spread:
    """Mean and interval of a variant's metric, or of its change against the baseline."""
    mean, interval = None, None
    about = point and point.summary["variants"].get(name)
    if about and not as_change:
        statistics = about["metrics"].get(metric) or {"mean": None}
        mean, interval = statistics["mean"], statistics.get("ci95")
    elif about and about["versus"]["baseline"] == name:
        mean = 0.0
    elif about:
        versus = about["versus"].get(metric) or {"ratio": None}
        mean = None if versus["ratio"] is None else versus["ratio"] - 1
        interval = versus.get("ci95") and [bound - 1 for bound in versus["ci95"]]
    if mean is None:
        return math.nan, math.nan, math.nan
    low, high = interval or (mean, mean)
    return mean, low, high
