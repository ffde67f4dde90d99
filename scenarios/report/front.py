"""Energy against time, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wattkeeper.scenarios.report.drawing import Chart, Json, numbers, unit_for
from wattkeeper.scenarios.report.reduce import pareto
from wattkeeper.scenarios.shown import ENERGIES, TIMES, knows_energy
from wattkeeper.scenarios.study import Study


def energy_against_time(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Energy against time, a point a variant."""
    if "saved" in study.summary:
        return
    if study.summary["by"]["workload"] and not knows_energy(study.summary):
        return
    time, energy, names = energy_and_time(study.summary)
    found = [
        (study.summary["variants"][name]["metrics"][time],
         study.summary["variants"][name]["metrics"][energy]) for name in variants
    ]  # fmt: skip
    points = [Pair(at, *pair) for at, pair in enumerate(found)]
    drawn = scatter(points, names)
    if drawn is None:
        return
    yield Chart(
        "pareto",
        "Energy against time",
        f"A point a variant: {names[0]} and {names[1]}, means over seeds, with 95 % intervals "
        "where there are several seeds. The dashed line is the Pareto front: no variant on it is "
        "beaten in both.",
        drawn,
    )


def energy_and_time(summary: Json) -> tuple[str, str, tuple[str, str]]:
    """The metrics of time and of energy that policies trade off, and what they are called."""
    if summary["by"]["workload"]:
        return "time_s", "energy_j", ("training time of all jobs", "energy of all jobs")
    return "jct_s", "cluster_energy_j", ("mean job completion time", "energy of the cluster")


class Pair(NamedTuple):
    """A point of energy against time: statistics as in `summary.json`."""

    variant: int
    time: Json
    energy: Json
    label: str = ""


def scatter(points: Sequence[Pair], names: tuple[str, str]) -> Json | None:
    """A chart of energy against time with its front; None if no point is known."""
    nan = math.nan

    def means(which: str) -> list[float]:
        found = (getattr(point, which)["mean"] for point in points)
        return [nan if mean is None else mean for mean in found]

    x, y = means("time"), means("energy")
    front = pareto(list(zip(x, y, strict=True)))
    if not front:
        return None
    (x_unit, x_size), (y_unit, y_size) = unit_for(x, TIMES), unit_for(y, ENERGIES)
    dots = []
    for at, point in enumerate(points):
        if not (math.isfinite(x[at]) and math.isfinite(y[at])):
            continue
        dot: Json = {"v": point.variant, "at": numbers([x[at] / x_size, y[at] / y_size])}
        for key, of, size in (("xci", point.time, x_size), ("yci", point.energy, y_size)):
            if of["ci95"]:
                dot[key] = numbers([bound / size for bound in of["ci95"]])
        if point.label:
            dot["label"] = point.label
        dots.append(dot)
    return {
        "panels": [
            {
                "x": {"name": f"{names[0]}, {x_unit}"},
                "y": {"name": f"{names[1]}, {y_unit}"},
                "dots": dots,
                "front": [numbers([x[at] / x_size, y[at] / y_size]) for at in front],
            }
        ]
    }
