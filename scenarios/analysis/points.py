"""The finished points of a sweep, and the wording of where they lie."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.resolved.key_words import label_point
from wattkeeper.scenarios.analysis.sweep_cautions import PointCautions, read_cautions
from wattkeeper.scenarios.analysis.vocabulary import Tradeoff, oracle_variants
from wattkeeper.scenarios.spec.wording import MOST_NAMED, axis_text


class ShownKind(Protocol):
    """What a sweep shows of a kind of workload: `wattkeeper.scenarios.document.presenter`."""

    def metrics(self, summary: Json) -> tuple[str, ...]:
        """The metrics in which variants can differ."""
        ...

    def tradeoff(self, summary: Json) -> Tradeoff:
        """The metrics that policies trade off."""
        ...

    def warn(self, summary: Json) -> Iterable[str]:
        """Warnings that belong before the figures."""
        ...


class PointRow(NamedTuple):
    """The shown results of a finished point; a sweep may have thousands, so nothing else is kept.

    Attributes:
        id: Its folder.
        values: Values of the axes, by path.
        summary: Its `summary.json`, reduced to shown metrics of its variants and names of parts.
        metrics: The metrics in which its variants can differ.
        tradeoff: Those that policies trade off.
        oracles: Variants whose policy knows the future.
        etas: The eta of each variant.
        cautions: Warnings that belong before its figures, and its number of jobs.
    """

    id: str
    values: Json
    summary: Json
    metrics: tuple[str, ...]
    tradeoff: Tradeoff
    oracles: list[str]
    etas: tuple[float, ...]
    cautions: PointCautions


def read_points(
    folder: Path, sweep: Json, find_kind: Callable[[Json], ShownKind], *, check: bool = True
) -> list[PointRow]:
    """The finished points of a sweep; see `wattkeeper.scenarios.analysis.study.read`.

    `find_kind`: what is shown of the kind of a resolved scenario.
    """
    rows = []
    for point, saved in study.finished_points(folder, sweep, check=check):
        scenario, summary = saved.manifest["scenario"], saved.summary
        kind = find_kind(scenario)
        metrics, tradeoff = kind.metrics(summary), kind.tradeoff(summary)
        row = PointRow(
            point["id"],
            point["values"],
            _reduce(summary, (*metrics, tradeoff.time, tradeoff.energy)),
            metrics,
            tradeoff,
            oracle_variants(scenario),
            _etas(scenario),
            read_cautions(point["values"], saved.manifest, summary, kind.warn(summary)),
        )
        rows.append(row)
    return rows


def _reduce(summary: Json, metrics: Sequence[str]) -> Json:
    variants = {
        name: {
            "metrics": _pick(about["metrics"], metrics),
            "versus": _pick(about["versus"], ("baseline", *metrics)),
        }
        for name, about in summary["variants"].items()
    }
    by = {key: list(parts) for key, parts in summary["by"].items()}
    return {**summary, "variants": variants, "by": by}


def _pick(values: Json, keys: Sequence[str]) -> Json:
    return {key: values[key] for key in keys if key in values}


def _etas(scenario: Json) -> tuple[float, ...]:
    objectives = (variant.get("objective") or {} for variant in scenario["variants"].values())
    return tuple(own.get("eta", scenario["objective"]["eta"]) for own in objectives)


def describe_points(selected: Sequence[PointRow], among: Sequence[PointRow]) -> str:
    """Where points lie among all candidates, as `at eta = 0.75 to 1` or `at every point`."""
    if len(selected) == len(among) > 1:
        return "at every point"
    known = {path: _axis_values(path, among) for path in among[0].values}
    own = {path: _axis_values(path, selected) for path in known}
    combinations = {tuple(map(axis_text, values)) for values in product(*own.values())}
    existing = {tuple(axis_text(value) for value in point.values.values()) for point in among}
    if len(combinations & existing) != len(selected):
        labels = "; ".join(label_point(point.values) for point in selected[:MOST_NAMED])
        more = len(selected) - MOST_NAMED
        return f"at {labels}{f' and {more} more' if more > 0 else ''}"
    ranges = {
        path: _describe_values(values, known[path])
        for path, values in own.items()
        if len(values) < len(known[path]) or len(known[path]) == 1
    }
    return f"at {label_point(ranges, known)}"


def _axis_values(path: str, points: Sequence[PointRow]) -> list[Any]:
    """The values of an axis, each once, numbers in ascending order."""
    values = list({axis_text(point.values[path]): point.values[path] for point in points}.values())
    return sorted(values) if all(map(is_number, values)) else values


def _describe_values(values: list[Any], known: list[Any]) -> str:
    first = known.index(values[0])
    if len(values) > 2 and values == known[first : first + len(values)] and is_number(values[0]):
        return f"{axis_text(values[0])} to {axis_text(values[-1])}"
    return " and ".join(map(axis_text, values))


def all_shown_metrics(points: Sequence[PointRow]) -> list[str]:
    """Metrics that are shown of any point."""
    return list(dict.fromkeys(key for point in points for key in point.metrics))


def all_variants(points: Sequence[PointRow]) -> list[str]:
    """The variants of all points, each once."""
    return list(dict.fromkeys(name for point in points for name in point.summary["variants"]))


def all_oracles(points: Sequence[PointRow]) -> list[str]:
    """All variants that know the future at some point."""
    return list(dict.fromkeys(name for point in points for name in point.oracles))


def is_number(value: object) -> bool:
    """Whether a value is a number, not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def sort_points(points: Sequence[PointRow], path: str) -> Sequence[PointRow]:
    """Points by the value of an axis; in the given order if not all are numbers."""
    if not all(is_number(point.values[path]) for point in points):
        return points
    return sorted(points, key=lambda point: float(point.values[path]))
