"""The page of a sweep: every point against every other, from the folder that it left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.scenarios import study
from wattkeeper.scenarios.report import about, answer
from wattkeeper.scenarios.report.drawing import Chart, Json, numbers, unit_for
from wattkeeper.scenarios.report.front import Pair, energy_and_time, on_front, oracles, scatter
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.page import chips, figures, header, whole
from wattkeeper.scenarios.shown import knows_energy, shown_metrics, units_of, value_text

SWEEP = "sweep.json"

MOST_POINTS = 500
"""Rows of the table of points."""


OTHERS = (
    " The other axes vary too: the line joins means over them, and the band goes from the smallest "
    "lower bound to the largest upper one."
)


class Point(NamedTuple):
    """A point that was run.

    Attributes:
        id: Its folder.
        values: Of the axes, by path.
        summary: As in its `summary.json`.
        bounds: Variants whose policy knows the future.
    """

    id: str
    values: Json
    summary: Json
    bounds: list[str]


def sweep_page(folder: Path) -> str:
    """The page of a sweep.

    Args:
        folder: With `sweep.json`, and a folder of results for each point below `points`.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    folder = Path(folder)
    sweep = _read(folder)
    done = [_point(folder, one) for one in sweep["points"] if one["state"] == "done"]
    variants = list(dict.fromkeys(name for point in done for name in point.summary["variants"]))
    drawn = list(_charts(sweep, done, variants))
    failed = [one for one in sweep["points"] if one["state"] != "done"]
    body = [
        header(sweep["scenario"]),
        tag("h1", sweep["question"] or sweep["scenario"]),
        tag("ul", *_sentences(sweep, done, variants), class_="answer"),
        *([_failures(failed)] if failed else []),
        _basis(sweep, len(done)),
        chips(variants),
        *figures(drawn),
        _table(sweep, done, variants),
    ]
    return whole(sweep["scenario"], body, variants, drawn)


def _point(folder: Path, one: Json) -> Point:
    found = study.read(folder / "points" / one["id"])
    return Point(one["id"], one["values"], found.summary, oracles(found.manifest["scenario"]))


def _read(folder: Path) -> Json:
    path = folder / SWEEP
    try:
        found: Json = json.loads(path.read_text(encoding="utf-8"))
        known = {"scenario", "question", "axes", "points"} <= set(found)
    except (OSError, ValueError, TypeError):
        known = False
    if not known:
        raise InputError(Problem("is no sweep; give the folder of one", str(path)))
    return found


def _shown(values: Mapping[str, Any]) -> str:
    """Where a point lies, as `eta = 0.5, gpus = 3`: the last key of a path suffices mostly."""
    names = {path: path.rpartition(".")[2] for path in values}
    unique = len(set(names.values())) == len(names)
    return ", ".join(
        f"{names[path] if unique else path} = {_text(value)}" for path, value in values.items()
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _sentences(sweep: Json, done: Sequence[Point], variants: Sequence[str]) -> Iterator[Element]:
    """Where energy and time are smallest, and what each variant changes from where to where."""
    if not done:
        yield tag("li", "No point is done: there is nothing to compare.")
        return
    names = {"variants": dict.fromkeys(variants)}
    time, energy, _ = energy_and_time(done[0].summary)
    for metric in (energy, time):
        found = [
            (mean, point, name)
            for point in done
            for name, one in point.summary["variants"].items()
            if (mean := one["metrics"][metric]["mean"]) is not None
        ]
        if not found:
            continue
        least, point, name = min(found, key=lambda one: one[0])
        yield tag(
            "li", f"Least {answer.WORDS[metric][0]}: ", tag("strong", value_text(least, metric)),
            " by ", answer.variant(name, names), f" at {_shown(point.values)}.",
        )  # fmt: skip
    for name in [name for name in variants if name != sweep["baseline"]][: answer.SENTENCES]:
        ranges = [_range(name, metric, done) for metric in (energy, time)]
        said = [words for words in ranges if words]
        if said:
            joined = answer.listed(said)
            baseline = answer.variant(sweep["baseline"], names)
            yield tag("li", answer.variant(name, names), ": ", *joined, " than ", baseline, ".")


def _range(name: str, metric: str, done: Sequence[Point]) -> list[Element | str | None]:
    """From which to which change against the baseline a variant goes, and where."""
    found = [
        (versus[metric], point)
        for point in done
        if name in point.summary["variants"]
        and (versus := point.summary["variants"][name]["versus"]).get(metric)
        and versus[metric]["ratio"] is not None
    ]
    if not found:
        return []
    least, most = (best(found, key=lambda one: one[0]["ratio"]) for best in (min, max))
    low, _ = answer.change(metric, least[0])
    high, _ = answer.change(metric, most[0])
    noun = answer.WORDS[metric][0]
    if low == high:
        return [tag("strong", low), f" {noun} at every point"]
    return [
        "from ", tag("strong", low), f" {noun} ({_shown(least[1].values)}) to ",
        tag("strong", high), f" ({_shown(most[1].values)})",
    ]  # fmt: skip


def _metrics(done: Sequence[Point]) -> dict[str, str]:
    """What is shown of any point."""
    found: dict[str, str] = {}
    for point in done:
        found |= shown_metrics(point.summary)
    return found


def _failures(failed: Sequence[Json]) -> Element:
    """Which points failed, and what they said."""
    lines = []
    for one in failed:
        said = one.get("failures") or [{"variant": "", "seed": "", "message": one["state"]}]
        lines += [
            tag("li", f"{one['id']} ({_shown(one['values'])}), {what['variant']}, seed "
                      f"{what['seed']}: {what['message']}") for what in said
        ]  # fmt: skip
    count = about.count(len(failed), "point")
    return tag(
        "div", tag("b", f"{count} failed and {'is' if len(failed) == 1 else 'are'} left out:"),
        tag("ul", *lines[:50]), class_="caution",
    )  # fmt: skip


def _basis(sweep: Json, done: int) -> Element:
    axes = [tag("span", tag("b", path), f": {', '.join(map(_text, values))}")
            for path, values in sweep["axes"].items()]  # fmt: skip
    facts: list[tuple[str, Sequence[Element | str]]] = [
        ("sweep", [f"{done} of {about.count(len(sweep['points']), 'point')} done"]),
        ("axes", axes),
    ]
    inputs = [about.input_of(one) for one in sweep.get("inputs", ())]
    if inputs:
        facts.append(("input", inputs))
    if sweep.get("modelled"):
        facts.append(("modelled, not measured", ["; ".join(sweep["modelled"])]))
    if sweep.get("versions"):
        facts.append(("versions", [", ".join(f"{k} {v}" for k, v in sweep["versions"].items())]))
    return about.listed(facts)


def _charts(sweep: Json, done: Sequence[Point], variants: list[str]) -> Iterator[Chart]:
    if not done:
        return
    summary = done[0].summary
    if not summary["by"]["workload"] or knows_energy(summary):
        time, energy, names = energy_and_time(summary)
        single = len(sweep["axes"]) == 1
        ordered = _in_order(done, *sweep["axes"]) if single else done
        points = [
            Pair(variants.index(name), one["metrics"][time], one["metrics"][energy],
                 _shown(point.values), *map(_text, point.values.values() if single else [""]),
                 bound=name in point.bounds)
            for point in ordered for name, one in point.summary["variants"].items()
        ]  # fmt: skip
        drawn = scatter(points, names, path=single)
        if drawn is not None:
            yield Chart(
                "pareto",
                "Energy against time",
                f"Each variant at each point: {names[0]} and {names[1]}, means over seeds with "
                f"95 % intervals. {_labels(sweep) if single else ''}{on_front(_bounds(done))}",
                drawn,
            )  # fmt: skip
    for at, path in enumerate(sweep["axes"]):
        drawn = _along(path, done, variants)
        if drawn is not None:
            others = OTHERS if len(sweep["axes"]) > 1 else ""
            yield Chart(
                f"axis{at}",
                f"Along {path}",
                f"The mean of a metric at each value of {path}, a line a variant; the band is the "
                f"95 % interval.{others}",
                drawn,
            )


def _labels(sweep: Json) -> str:
    (path,) = sweep["axes"]
    return f"Thin lines join the points of a variant; labels are values of {path}. "


def _bounds(done: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(name for point in done for name in point.bounds))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_order(done: Sequence[Point], path: str) -> Sequence[Point]:
    """By the value of an axis if all are numbers."""
    if not all(_is_number(point.values[path]) for point in done):
        return done
    return sorted(done, key=lambda point: float(point.values[path]))


def _along(path: str, done: Sequence[Point], variants: list[str]) -> Json | None:
    """Each metric against one axis; None if only one value of it is done."""
    known = list({_text(point.values.get(path)): point.values.get(path) for point in done}.values())
    if len(known) < 2:
        return None
    plain = all(map(_is_number, known))
    if plain:
        known.sort()
    axis: Json = {"name": path} if plain else {"name": path, "names": list(map(_text, known))}
    x = known if plain else list(range(len(known)))
    views = {}
    for metric, title in _metrics(done).items():
        spread = {
            at: [_spread(metric, name, path, value, done) for value in known]
            for at, name in enumerate(variants)
        }
        tops = [high for those in spread.values() for _, _, high in those]
        if all(map(math.isnan, tops)):
            continue
        unit, size = unit_for(tops, units_of(metric))
        lines = [
            {"v": at, "x": x, "marked": True}
            | {
                key: numbers([one[column] / size for one in those])
                for column, key in enumerate(("y", "low", "high"))
            }
            for at, those in spread.items()
        ]
        named = {"name": ", ".join(filter(None, (title, unit)))}
        views[title] = [{"x": axis, "y": named, "lines": lines}]
    return {"views": views} if views else None


def _spread(
    metric: str, name: str, path: str, value: object, done: Sequence[Point]
) -> tuple[float, float, float]:
    """Mean over the points with that value of an axis, and the bounds of their intervals."""
    there = [
        point.summary["variants"][name]["metrics"].get(metric)
        for point in done
        if _text(point.values.get(path)) == _text(value) and name in point.summary["variants"]
    ]
    found = [of for of in there if of is not None and of["mean"] is not None]
    if not found:
        return (math.nan,) * 3
    means = [of["mean"] for of in found]
    bounds = [of["ci95"] or (of["mean"], of["mean"]) for of in found]
    return sum(means) / len(means), min(b[0] for b in bounds), max(b[1] for b in bounds)


def _table(sweep: Json, done: Sequence[Point], variants: Sequence[str]) -> Element:
    """A row a point and variant."""
    metrics = _metrics(done)
    names = {"variants": dict.fromkeys(variants)}
    heads = ("point", *sweep["axes"], "variant", *metrics.values())
    rows = []
    for point in done:
        for name, one in point.summary["variants"].items():
            values = [one["metrics"].get(metric, {}).get("mean") for metric in metrics]
            rows.append(
                tag("tr", tag("th", point.id, scope="row"),
                    *(tag("td", _text(point.values.get(path))) for path in sweep["axes"]),
                    tag("td", answer.variant(name, names)),
                    *(tag("td", value_text(value, metric))
                      for value, metric in zip(values, metrics, strict=True)))
            )  # fmt: skip
    table = tag("table", tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
                tag("tbody", *rows[:MOST_POINTS]))  # fmt: skip
    if len(rows) > MOST_POINTS:
        text = f"The first {MOST_POINTS} of {len(rows)} rows; all are in metrics.parquet."
        table.append(tag("caption", text))
    return tag("section", tag("h2", "Points"), tag("div", table, class_="scroll"), id="points")
