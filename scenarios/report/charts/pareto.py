"""Energy against time, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    ENERGIES,
    TIMES,
    knows_energy,
    oracle_variants,
    tradeoff_metrics,
)
from wattkeeper.scenarios.report.charts.chart import Chart, numbers, unit_for
from wattkeeper.scenarios.report.charts.downsample import thinned

FRONT = (
    "The dashed line is the Pareto front: of the variants that are shown, none on it is beaten in "
    "both."
)

MOST_DOTS = 2_000
"""Points that are drawn."""

BOUND = (
    " Hollow: a bound that no policy can reach, since {} knows the future; it is never on the "
    "front."
)


def energy_against_time(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Energy against time, a point a variant."""
    if "saved" in study.summary:
        return
    if study.summary["by"]["workload"] and not knows_energy(study.summary):
        return
    time, energy, names = tradeoff_metrics(study.summary)
    found = [
        (study.summary["variants"][name]["metrics"][time],
         study.summary["variants"][name]["metrics"][energy]) for name in variants
    ]  # fmt: skip
    bounds = oracle_variants(study.manifest["scenario"])
    points = [EnergyTime(at, *pair, bound=variants[at] in bounds) for at, pair in enumerate(found)]
    drawn = scatter(points, names)
    if drawn is None:
        return
    yield Chart(
        "pareto",
        "Energy against time",
        f"A point a variant: {names[0]} and {names[1]}, means over seeds, with 95 % intervals "
        f"where there are several seeds. {on_front(bounds)}",
        drawn,
    )


class EnergyTime(NamedTuple):
    """A point of energy against time.

    Attributes:
        variant: Its place among the variants.
        time: Statistics as in `summary.json`, like energy.
        energy: See there.
        label: Where it lies, in full.
        value: Of the only axis, in short.
        bound: Whether its policy knows the future.
    """

    variant: int
    time: Json
    energy: Json
    label: str = ""
    value: str = ""
    bound: bool = False


def on_front(bounds: Collection[str]) -> str:
    """What the front is, and who is not on it."""
    return FRONT + (BOUND.format(" and ".join(bounds)) if bounds else "")


def fewer(points: Sequence[EnergyTime]) -> tuple[list[EnergyTime], str]:
    """The points to draw, `MOST_DOTS` at most, in their order, and what to say if some are not.

    Each variant keeps what no other point of its own beats, so that the front is right whichever
    variants are shown; and of its other points some, evenly spaced.
    """
    known: dict[tuple[int, bool], list[int]] = {}
    for at, point in enumerate(points):
        if point.time["mean"] is not None and point.energy["mean"] is not None:
            known.setdefault((point.variant, point.bound), []).append(at)
    many = sum(map(len, known.values()))
    if many <= MOST_DOTS:
        return list(points), ""
    each = max(1, MOST_DOTS // len(known))
    kept: list[int] = []
    whole = True
    for mine in known.values():
        best = _unbeaten(points, mine)
        rest = sorted(set(mine) - set(best))
        whole &= len(best) <= each
        kept += [best[at] for at in thinned(len(best), each)]
        kept += [rest[at] for at in thinned(len(rest), max(0, each - len(best)))]
    what = (
        "those that no other one of the same variant beats in both, and evenly spaced others"
        if whole
        else "evenly spaced ones, so that some of the front are missing, too"
    )
    return [points[at] for at in sorted(kept)], f"Drawn are {len(kept):,} of {many:,}: {what}. "


def _unbeaten(points: Sequence[EnergyTime], mine: Sequence[int]) -> list[int]:
    """Those of some points that no other one of them beats, by time."""
    found: list[int] = []
    least = math.inf
    for at in sorted(mine, key=lambda at: (points[at].time["mean"], points[at].energy["mean"])):
        if points[at].energy["mean"] < least:
            least = points[at].energy["mean"]
            found.append(at)
    return found


def scatter(
    points: Sequence[EnergyTime], names: tuple[str, str], path: bool = False
) -> Json | None:
    """A chart of energy against time; None if no point is known.

    Args:
        points: Of all variants.
        names: Of time and energy.
        path: Whether a line joins the points of a variant in their order.
    """
    nan = math.nan

    def means(which: str) -> list[float]:
        found = (getattr(point, which)["mean"] for point in points)
        return [nan if mean is None else mean for mean in found]

    x, y = means("time"), means("energy")
    (x_unit, x_size), (y_unit, y_size) = unit_for(x, TIMES), unit_for(y, ENERGIES)
    dots = []
    for at, point in enumerate(points):
        if not (math.isfinite(x[at]) and math.isfinite(y[at])):
            continue
        dot: Json = {"v": point.variant, "at": numbers([x[at] / x_size, y[at] / y_size])}
        for key, of, size in (("xci", point.time, x_size), ("yci", point.energy, y_size)):
            if of["ci95"]:
                dot[key] = numbers([bound / size for bound in of["ci95"]])
        dot |= {key: said for key in ("label", "value", "bound") if (said := getattr(point, key))}
        dots.append(dot)
    if not dots:
        return None
    return {
        "panels": [
            {
                "x": {"name": f"{names[0]}, {x_unit}"},
                "y": {"name": f"{names[1]}, {y_unit}"},
                "dots": dots,
                "path": path,
            }
        ]
    }
