"""The page of a sweep: every point against every other, from the folder that it left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.report import about, headline
from wattkeeper.scenarios.report.charts.sweep_charts import charts
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.page import chips, figures, header, whole
from wattkeeper.scenarios.report.phrases import variant
from wattkeeper.scenarios.report.points import PointRow, finished, metrics_of, place
from wattkeeper.scenarios.report.sweep_headline import sentences
from wattkeeper.scenarios.report.tables import value_cell, verdicts
from wattkeeper.scenarios.spec.wording import axis_text, count

MOST_ROWS = 500
"""Rows of the table of points."""


def sweep_page(folder: Path) -> str:
    """The page of a sweep.

    Args:
        folder: With `sweep.json`, and a folder of results for each point below `points`.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    sweep = study.read_sweep(folder)
    done = finished(folder, sweep)
    first = next((found for _, found in study.finished(folder, sweep)), None)
    variants = list(dict.fromkeys(name for point in done for name in point.summary["variants"]))
    drawn = list(charts(sweep, done, variants))
    remarks = headline.remarks(len(first.manifest["seeds"]), first.summary) if first else ()
    cautions = dict.fromkeys(line for point in done for line in point.cautions)
    failed = [one for one in sweep["points"] if one["state"] != "done"]
    body = [
        header(sweep["scenario"]),
        tag("h1", sweep["question"] or sweep["scenario"]),
        tag("ul", *sentences(sweep, done, variants), class_="answer"),
        *(tag("p", line, class_="note") for line in remarks),
        *(tag("p", line, class_="caution") for line in cautions),
        *([_failures(failed)] if failed else []),
        _basis(sweep, len(done), first),
        chips(variants),
        *figures(drawn),
        _table(sweep, done, variants),
        *([_repeat(sweep, done[0].id, first.manifest)] if first else []),
    ]
    return whole(sweep["scenario"], body, variants, drawn)


def _failures(failed: Sequence[Json]) -> Element:
    """Which points failed, and what they said."""
    lines = []
    for one in failed:
        said = one.get("failures") or [{"variant": "", "seed": "", "message": one["state"]}]
        lines += [
            tag("li", f"{one['id']} ({place(one['values'])}), {what['variant']}, seed "
                      f"{what['seed']}: {what['message']}") for what in said
        ]  # fmt: skip
    are = "is" if len(failed) == 1 else "are"
    return tag(
        "div", tag("b", f"{count(len(failed), 'point')} failed and {are} left out:"),
        tag("ul", *lines[:50]), class_="caution",
    )  # fmt: skip


def _basis(sweep: Json, done: int, first: Study | None) -> Element:
    axes = [tag("span", tag("b", path), f": {', '.join(map(axis_text, values))}")
            for path, values in sweep["axes"].items()]  # fmt: skip
    facts: list[tuple[str, Sequence[Element | str]]] = [
        ("sweep", [f"{done} of {count(len(sweep['points']), 'point')} done"]),
        ("axes", axes),
    ]
    if first:
        seeds = first.manifest["seeds"]
        facts.append(("seeds", [f"{len(seeds)} at each point: {about.seeds_text(seeds)}"]))
    inputs = [about.input_of(one) for one in sweep.get("inputs", ())]
    if inputs:
        facts.append(("input", inputs))
    if sweep.get("modelled"):
        facts.append(("modelled, not measured", ["; ".join(sweep["modelled"])]))
    return about.listed(facts)


def _table(sweep: Json, done: Sequence[PointRow], variants: Sequence[str]) -> Element:
    """A row a point and variant."""
    metrics = metrics_of(done)
    names = {"variants": dict.fromkeys(variants)}
    heads = [tag("th", head, scope="col") for head in ("point", *sweep["axes"])]
    heads.append(tag("th", "variant", scope="col", class_="who"))
    heads += [tag("th", title, scope="col") for title in metrics.values()]
    every = ((point, *one) for point in done for one in point.summary["variants"].items())
    rows = [
        tag("tr", tag("th", point.id, scope="row"),
            *(tag("td", axis_text(point.values.get(path))) for path in sweep["axes"]),
            tag("td", variant(name, names), class_="who"),
            *(value_cell(name, one, metric, title) for metric, title in metrics.items()))
        for point, name, one in islice(every, MOST_ROWS)
    ]  # fmt: skip
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    total = sum(len(point.summary["variants"]) for point in done)
    if total > MOST_ROWS:
        said = f"The first {MOST_ROWS} of {total} rows; all are in metrics.parquet."
        table.append(tag("caption", said))
    marks = [tag("p", line, class_="note") for line in verdicts(point.summary for point in done)]
    inside = (tag("h2", "Points"), tag("div", table, class_="scroll"), *marks)
    return tag("section", *inside, id="points")


def _repeat(sweep: Json, first: str, manifest: Json) -> Element:
    """What is needed to do it again; the digests of each point are in its manifest."""
    axes = {
        f"axis {path}": ", ".join(map(axis_text, values)) for path, values in sweep["axes"].items()
    }
    return tag(
        "section",
        tag("h2", "To repeat it"),
        about.facts(
            {"scenario": sweep["scenario"], "seeds": about.seeds_text(manifest["seeds"])}
            | axes
            | {"digests of the results": "of each point, in points/*/manifest.json"}
            | about.sources(manifest)
        ),
        about.resolved(manifest, f" at point {first}"),
        id="details",
    )
