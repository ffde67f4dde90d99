"""The chart of energy against time, with its Pareto front."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    Tradeoff,
    choose_unit,
    is_gain,
    metric_units,
    oracle_variants,
)
from wattkeeper.scenarios.charts.chart import (
    Axis,
    Chart,
    ChartData,
    Dot,
    is_spread,
    label_axis,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import spaced_indices

FRONT = (
    "The dashed line is the Pareto front of the variants that are shown: none of them is better in "
    "both than one on the line."
)

MOST_DOTS = 2_000
"""Points that are drawn, at most."""

BOUND = (
    " Hollow: a bound that no policy can reach, since {} {} the future; it is never on the front."
)


class EnergyTime(NamedTuple):
    """A point of energy against time.

    Attributes:
        variant: Index of its variant.
        time: Statistics of the time, as in `summary.json`.
        energy: Statistics of the energy, as in `summary.json`.
        label: Its values of all axes of a sweep.
        value: Its value of the only axis, in short.
        bound: Whether its policy knows the future.
    """

    variant: int
    time: Json
    energy: Json
    label: str = ""
    value: str = ""
    bound: bool = False


def draw_tradeoff(study: Study, variants: list[str], tradeoff: Tradeoff) -> Iterator[Chart]:
    """Energy against what it is traded off with, a point a variant; none without energy."""
    summary = study.summary
    time, energy, labels = tradeoff
    metrics = [summary["variants"][name]["metrics"] for name in variants]
    oracles = oracle_variants(study.manifest["scenario"])
    points = [
        EnergyTime(v, of_variant[time], of_variant[energy], bound=variants[v] in oracles)
        for v, of_variant in enumerate(metrics)
    ]
    data = scatter(points, (time, energy), labels)
    if data is not None:
        across = labels[0].partition(",")[0]  # without its unit
        yield Chart(
            "pareto",
            title_tradeoff(time),
            f"A point a variant: {across} and {labels[1]}, means over seeds, with 95 % intervals "
            f"where there are several seeds. {describe_front(oracles)}",
            data,
        )


def title_tradeoff(metric: str) -> str:
    """The title of energy against a metric of time, or goodput."""
    return f"Energy against {'goodput' if is_gain(metric) else 'time'}"


def describe_front(oracles: Collection[str]) -> str:
    """Caption of the front; variants that know the future are not on it."""
    if not oracles:
        return FRONT
    return FRONT + BOUND.format(" and ".join(oracles), "know" if len(oracles) > 1 else "knows")


def limit_points(points: Sequence[EnergyTime], more: bool = False) -> tuple[list[EnergyTime], str]:
    """At most `MOST_DOTS` points in their order, and a caption if some are left out.

    Each variant keeps its own Pareto-optimal points, so that the front is right whichever variants
    are shown; its other points are thinned evenly. `more`: whether more time, or what stands in
    its place, is better.
    """
    by_variant: dict[tuple[int, bool], list[int]] = {}
    for index, point in enumerate(points):
        if point.time["mean"] is not None and point.energy["mean"] is not None:
            by_variant.setdefault((point.variant, point.bound), []).append(index)
    total = sum(map(len, by_variant.values()))
    if total <= MOST_DOTS:
        return list(points), ""
    share = max(1, MOST_DOTS // len(by_variant))
    drawn: list[int] = []
    complete = True
    for own in by_variant.values():
        means = [(points[index].time["mean"], points[index].energy["mean"]) for index in own]
        front = [own[place] for place in find_front(means, more)]
        others = sorted(set(own) - set(front))
        complete &= len(front) <= share
        drawn += [front[i] for i in spaced_indices(len(front), share)]
        drawn += [others[i] for i in spaced_indices(len(others), max(0, share - len(front)))]
    selection = (
        "those that no other one of the same variant beats in both, and evenly spaced others"
        if complete
        else "evenly spaced ones, so that some of the front are missing, too"
    )
    caption = f"Drawn are {len(drawn):,} of {total:,}: {selection}. "
    return [points[index] for index in sorted(drawn)], caption


def find_front(positions: Sequence[tuple[float, float]], more: bool = False) -> list[int]:
    """The indices of (x, y) that none of the others beats in both, by x, the best first.

    A smaller y is better; so is a smaller x, or a larger one with `more`.
    """

    def rank(index: int) -> tuple[float, float]:
        x, y = positions[index]
        return -x if more else x, y

    front: list[int] = []
    for index in sorted(range(len(positions)), key=rank):
        if not front or positions[index][1] < positions[front[-1]][1]:
            front.append(index)
    return front


def scatter(
    points: Sequence[EnergyTime],
    metrics: tuple[str, str],
    labels: tuple[str, str],
    path: bool = False,
) -> ChartData | None:
    """The data of energy against time; None if no point is known.

    Args:
        points: Points of all variants.
        metrics: The metrics of time, or goodput, and of energy.
        labels: Their names.
        path: Whether a line joins the points of a variant in their order.
    """
    x, y = _means(points, "time"), _means(points, "energy")
    (x_unit, x_size), (y_unit, y_size) = (
        choose_unit(values, metric_units(metric))
        for values, metric in zip((x, y), metrics, strict=True)
    )
    dots: list[Dot] = []
    for point, time, energy in zip(points, x, y, strict=True):
        if not (math.isfinite(time) and math.isfinite(energy)):
            continue
        dot: Dot = {"v": point.variant, "at": to_numbers([time / x_size, energy / y_size])}
        if point.time["ci95"]:
            dot["xci"] = to_numbers([end / x_size for end in point.time["ci95"]])
        if point.energy["ci95"]:
            dot["yci"] = to_numbers([end / y_size for end in point.energy["ci95"]])
        if point.label:
            dot["label"] = point.label
        if point.value:
            dot["value"] = point.value
        if point.bound:
            dot["bound"] = True
        dots.append(dot)
    if not dots:
        return None
    names = label_axis(labels[0], x_unit), label_axis(labels[1], y_unit)
    axes = [_axis(name, [dot["at"][index] for dot in dots]) for index, name in enumerate(names)]
    if is_gain(metrics[0]):
        axes[0]["more"] = True
    return {"panels": [{"x": axes[0], "y": axes[1], "dots": dots, "path": path}]}


def _axis(name: str, values: Sequence[float | None]) -> Axis:
    """An axis of dots, logarithmic where they lie far apart."""
    if is_spread(values):
        return {"name": f"{name} (logarithmic)", "log": True}
    return {"name": name}


def _means(points: Sequence[EnergyTime], quantity: Literal["time", "energy"]) -> list[float]:
    means = (getattr(point, quantity)["mean"] for point in points)
    return [math.nan if mean is None else mean for mean in means]
