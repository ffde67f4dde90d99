"""The points of a sweep: where they lie, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.vocabulary import (
    QUEUE,
    SHOWN,
    ZOO,
    cautions,
    oracle_variants,
    shown_metrics,
)
from wattkeeper.scenarios.spec.wording import axis_text

METRICS = tuple(SHOWN | QUEUE | ZOO)
"""All that the page of any sweep shows."""

MOST_NAMED = 3
"""Points that a sentence names one by one."""


class PointRow(NamedTuple):
    """What is shown of a point that was run; there may be thousands, so no more is kept.

    Attributes:
        id: Its folder.
        values: Of the axes, by path.
        summary: As in its `summary.json`: METRICS of its variants, and which parts there are.
        bounds: Variants whose policy knows the future.
        etas: Of the variants, how energy and time are weighed.
        cautions: What a reader must know before its figures.
    """

    id: str
    values: Json
    summary: Json
    bounds: list[str]
    etas: tuple[float, ...]
    cautions: tuple[str, ...]


def finished(folder: Path, sweep: Json) -> list[PointRow]:
    """The points of a sweep that are done."""
    return [
        PointRow(
            one["id"],
            one["values"],
            _brief(found.summary),
            oracle_variants(found.manifest["scenario"]),
            _etas(found.manifest["scenario"]),
            tuple(cautions(found.manifest, found.summary)),
        )
        for one, found in study.finished(folder, sweep)
    ]


def _brief(summary: Json) -> Json:
    variants = {
        name: {"metrics": _some(one["metrics"], METRICS),
               "versus": _some(one["versus"], ("baseline", *METRICS))}
        for name, one in summary["variants"].items()
    }  # fmt: skip
    by = {key: list(parts) for key, parts in summary["by"].items()}
    return {**summary, "variants": variants, "by": by}


def _some(found: Json, keys: Sequence[str]) -> Json:
    return {key: found[key] for key in keys if key in found}


def _etas(scenario: Json) -> tuple[float, ...]:
    own = (variant.get("objective") or {} for variant in scenario["variants"].values())
    return tuple(one.get("eta", scenario["objective"]["eta"]) for one in own)


def place(values: Mapping[str, Any]) -> str:
    """Where a point lies, as `eta = 0.5, gpus = 3`: the last key of a path suffices mostly."""
    names = {path: path.rpartition(".")[2] for path in values}
    unique = len(set(names.values())) == len(names)
    return ", ".join(
        f"{names[path] if unique else path} = {axis_text(value)}" for path, value in values.items()
    )


def places(found: Sequence[PointRow], among: Sequence[PointRow]) -> str:
    """Where some of the points lie, as `at eta = 0.75 to 1` or `at every point`.

    Args:
        found: Those.
        among: All that could be meant, with the same axes, in the order of the sweep.
    """
    if len(found) == len(among) > 1:
        return "at every point"
    known = {path: _values(path, among) for path in among[0].values}
    mine = {path: _values(path, found) for path in known}
    combined = {tuple(map(axis_text, values)) for values in product(*mine.values())}
    there = {tuple(axis_text(value) for value in point.values.values()) for point in among}
    if len(combined & there) != len(found):
        named = "; ".join(place(point.values) for point in found[:MOST_NAMED])
        more = len(found) - MOST_NAMED
        return f"at {named}{f' and {more} more' if more > 0 else ''}"
    said = {
        path: _together(values, known[path])
        for path, values in mine.items()
        if len(values) < len(known[path]) or len(known[path]) == 1
    }
    return f"at {place(said)}"


def _values(path: str, points: Sequence[PointRow]) -> list[Any]:
    """Of an axis, each once, numbers in their order."""
    values = list({axis_text(point.values[path]): point.values[path] for point in points}.values())
    return sorted(values) if all(map(is_number, values)) else values


def _together(values: list[Any], known: list[Any]) -> str:
    first = known.index(values[0])
    if len(values) > 2 and values == known[first : first + len(values)] and is_number(values[0]):
        return f"{axis_text(values[0])} to {axis_text(values[-1])}"
    return " and ".join(map(axis_text, values))


def metrics_of(done: Sequence[PointRow]) -> dict[str, str]:
    """What is shown of any point."""
    found: dict[str, str] = {}
    for point in done:
        found |= shown_metrics(point.summary)
    return found


def bounds_of(done: Sequence[PointRow]) -> list[str]:
    """All variants that know the future at some point."""
    return list(dict.fromkeys(name for point in done for name in point.bounds))


def is_number(value: object) -> bool:
    """Whether it is a plain number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_order(done: Sequence[PointRow], path: str) -> Sequence[PointRow]:
    """By the value of an axis if all are numbers."""
    if not all(is_number(point.values[path]) for point in done):
        return done
    return sorted(done, key=lambda point: float(point.values[path]))
