"""Charts of a sweep: energy against time, and each metric along each axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import knows_energy, tradeoff_metrics, units_of
from wattkeeper.scenarios.report.charts.chart import Chart, numbers, unit_for
from wattkeeper.scenarios.report.charts.downsample import thinned
from wattkeeper.scenarios.report.charts.pareto import (
    EnergyTime,
    fewer,
    on_front,
    scatter,
)
from wattkeeper.scenarios.report.points import (
    PointRow,
    bounds_of,
    in_order,
    is_number,
    metrics_of,
    place,
)
from wattkeeper.scenarios.spec.wording import axis_text

DASHES = ("solid", "dashed", "dotted", "dash-dotted")
"""How lines are told apart that differ in the other axes; as `report.js` draws them."""


def charts(sweep: Json, done: Sequence[PointRow], variants: list[str]) -> Iterator[Chart]:
    """All charts of a sweep."""
    if not done:
        return
    drawn = _energy_against_time(sweep, done, variants)
    if drawn is not None:
        yield drawn
    metrics, relative = metrics_of(done), _eta_varies(done)
    costs = (
        " Costs under different eta are not compared: cost is shown as its change against "
        "the baseline at the same point."
    ) * relative
    for at, path in enumerate(sweep["axes"]):
        others, left_out = _others(path, done)
        views = _along(path, others, done, variants, metrics, sweep["baseline"], relative=relative)
        if views:
            said = [f"{dash}: {place(one)}" for dash, one in zip(DASHES, others, strict=False)]
            lines = f" Lines are {'; '.join(said)}." if any(others) else ""
            if left_out:
                lines += f" {left_out} more values of the other axes are left out here."
            yield Chart(
                f"axis{at}",
                f"Along {path}",
                f"The mean of a metric at each value of {path}, a line a variant; the band is the "
                f"95 % interval where there are several seeds.{lines}{costs}",
                {"views": views},
            )


def _energy_against_time(
    sweep: Json, done: Sequence[PointRow], variants: list[str]
) -> Chart | None:
    summary = done[0].summary
    if summary["by"]["workload"] and not knows_energy(summary):
        return None
    time, energy, names = tradeoff_metrics(summary)
    single = len(sweep["axes"]) == 1
    ordered = in_order(done, *sweep["axes"]) if single else done
    points = [
        EnergyTime(variants.index(name), one["metrics"][time], one["metrics"][energy],
             place(point.values), axis_text(next(iter(point.values.values()))) if single else "",
             name in point.bounds)
        for point in ordered for name, one in point.summary["variants"].items()
    ]  # fmt: skip
    kept, said = fewer(points)
    drawn = scatter(kept, names, path=single)
    labels = (
        f"Thin lines join the points of a variant; labels are values of {next(iter(sweep['axes']))}"
        ". "
    ) * single
    if drawn is None:
        return None
    return Chart(
        "pareto",
        "Energy against time",
        f"Each variant at each point: {names[0]} and {names[1]}, means over seeds with 95 % "
        f"intervals where there are several seeds. {labels}{said}{on_front(bounds_of(done))}",
        drawn,
    )


def _eta_varies(done: Sequence[PointRow]) -> bool:
    """Whether costs of different points weigh energy and time differently."""
    return len({point.etas for point in done}) > 1


def _others(path: str, done: Sequence[PointRow]) -> tuple[list[Json], int]:
    """Values of the other axes for which lines are drawn, and how many are left out."""
    known: dict[str, Json] = {}
    counts: dict[str, set[str]] = {}
    for point in done:
        values = {other: value for other, value in point.values.items() if other != path}
        known[place(values)] = values
        counts.setdefault(place(values), set()).add(axis_text(point.values[path]))
    several = [known[key] for key, found in counts.items() if len(found) > 1]
    kept = [several[at] for at in thinned(len(several), len(DASHES))]
    return kept, len(several) - len(kept)


def _along(path: str, others: Sequence[Json], done: Sequence[PointRow], variants: list[str],
           metrics: Mapping[str, str], baseline: str, *, relative: bool) -> Json:  # fmt: skip
    """Each metric against one axis; empty if only one value of it is done.

    Args:
        path: The axis.
        others: Values of the other axes, a line each.
        done: All points.
        variants: In the order of the page.
        metrics: What is shown, and what it is called.
        baseline: What changes are against.
        relative: Whether cost is shown as its change.
    """
    known = list({axis_text(point.values[path]): point.values[path] for point in done}.values())
    plain = all(map(is_number, known))
    if plain:
        known.sort()
    axis: Json = {"name": path} if plain else {"name": path, "names": list(map(axis_text, known))}
    x = known if plain else list(range(len(known)))
    at = {(axis_text(point.values[path]),
           place({k: v for k, v in point.values.items() if k != path})): point
          for point in done}  # fmt: skip
    views = {}
    for metric, title in metrics.items():
        as_change = relative and metric == "cost"
        spread = [
            (v, dash, [
                _spread(metric, name, at.get((axis_text(value), place(other))), as_change)
                for value in known
            ])
            for v, name in enumerate(variants) for dash, other in enumerate(others)
        ]  # fmt: skip
        tops = [high for _, _, those in spread for _, _, high in those]
        if all(map(math.isnan, tops)):
            continue
        unit, size = ("", 1.0) if as_change else unit_for(tops, units_of(metric))
        lines = [
            {"v": v, "x": x, "marked": True}
            | ({"dash": dash, "label": place(others[dash])} if others[dash] else {})
            | {
                key: numbers([one[column] / size for one in those])
                for column, key in enumerate(("y", "low", "high"))
            }
            for v, dash, those in spread
        ]
        label = f"{title} against {baseline}" if as_change else title
        named = {"name": ", ".join(filter(None, (label, unit)))} | (
            {"percent": True} if as_change else {}
        )
        views[title] = [{"x": axis, "y": named, "lines": lines}]
    return views


def _spread(
    metric: str, name: str, point: PointRow | None, as_change: bool
) -> tuple[float, float, float]:
    """Mean and the bounds of its interval, or those of the change against the baseline."""
    nothing = (math.nan,) * 3
    one = point and point.summary["variants"].get(name)
    if not one:
        return nothing
    if not as_change:
        of = one["metrics"].get(metric) or {"mean": None}
        mean, interval = of["mean"], of.get("ci95")
    elif one["versus"]["baseline"] == name:
        mean, interval = 0.0, None
    else:
        of = one["versus"].get(metric) or {"ratio": None}
        mean = None if of["ratio"] is None else of["ratio"] - 1
        interval = of.get("ci95") and [bound - 1 for bound in of["ci95"]]
    if mean is None:
        return nothing
    return mean, *(interval or (mean, mean))
