"""The page of a sweep: every point against every other, from the folder that it left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.report import about, answer
from wattkeeper.scenarios.report.along import charts
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.page import chips, figures, header, whole
from wattkeeper.scenarios.report.phrases import variant
from wattkeeper.scenarios.report.points import Point, finished, metrics_of, place
from wattkeeper.scenarios.report.sweep_answer import sentences
from wattkeeper.scenarios.report.tables import value_cell, verdicts
from wattkeeper.scenarios.shown import cautions
from wattkeeper.scenarios.study import read_sweep
from wattkeeper.scenarios.sweep import shown
from wattkeeper.scenarios.words import count

MOST_POINTS = 500
"""Rows of the table of points."""


def sweep_page(folder: Path) -> str:
    """The page of a sweep.

    Args:
        folder: With `sweep.json`, and a folder of results for each point below `points`.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    sweep = read_sweep(folder)
    done = finished(folder, sweep)
    variants = list(dict.fromkeys(name for point in done for name in point.summary["variants"]))
    drawn = list(charts(sweep, done, variants))
    failed = [one for one in sweep["points"] if one["state"] != "done"]
    body = [
        header(sweep["scenario"]),
        tag("h1", sweep["question"] or sweep["scenario"]),
        tag("ul", *sentences(sweep, done, variants), class_="answer"),
        *(
            tag("p", line, class_="note")
            for point in done[:1]
            for line in answer.remarks(len(point.manifest["seeds"]), point.summary)
        ),
        *(tag("p", line, class_="caution") for line in _cautions(done)),
        *([_failures(failed)] if failed else []),
        _basis(sweep, done),
        chips(variants),
        *figures(drawn),
        _table(sweep, done, variants),
        *([_repeat(sweep, done)] if done else []),
    ]
    return whole(sweep["scenario"], body, variants, drawn)


def _cautions(done: Sequence[Point]) -> Iterable[str]:
    """What a reader must know before the figures of any point, each once."""
    return dict.fromkeys(line for point in done for line in cautions(point.manifest, point.summary))


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


def _basis(sweep: Json, done: Sequence[Point]) -> Element:
    axes = [tag("span", tag("b", path), f": {', '.join(map(shown, values))}")
            for path, values in sweep["axes"].items()]  # fmt: skip
    facts: list[tuple[str, Sequence[Element | str]]] = [
        ("sweep", [f"{len(done)} of {count(len(sweep['points']), 'point')} done"]),
        ("axes", axes),
    ]
    if done:
        seeds = done[0].manifest["seeds"]
        facts.append(("seeds", [f"{len(seeds)} at each point: {about.seeds_text(seeds)}"]))
    inputs = [about.input_of(one) for one in sweep.get("inputs", ())]
    if inputs:
        facts.append(("input", inputs))
    if sweep.get("modelled"):
        facts.append(("modelled, not measured", ["; ".join(sweep["modelled"])]))
    return about.listed(facts)


def _table(sweep: Json, done: Sequence[Point], variants: Sequence[str]) -> Element:
    """A row a point and variant."""
    metrics = metrics_of(done)
    names = {"variants": dict.fromkeys(variants)}
    heads = [tag("th", head, scope="col") for head in ("point", *sweep["axes"])]
    heads.append(tag("th", "variant", scope="col", class_="who"))
    heads += [tag("th", title, scope="col") for title in metrics.values()]
    rows = []
    for point in done:
        for name, one in point.summary["variants"].items():
            rows.append(
                tag("tr", tag("th", point.id, scope="row"),
                    *(tag("td", shown(point.values.get(path))) for path in sweep["axes"]),
                    tag("td", variant(name, names), class_="who"),
                    *(value_cell(name, one, metric, title)
                      for metric, title in metrics.items()))
            )  # fmt: skip
    table = tag("table", tag("thead", tag("tr", *heads)),
                tag("tbody", *rows[:MOST_POINTS]))  # fmt: skip
    if len(rows) > MOST_POINTS:
        said = f"The first {MOST_POINTS} of {len(rows)} rows; all are in metrics.parquet."
        table.append(tag("caption", said))
    marks = [tag("p", line, class_="note") for line in verdicts(point.summary for point in done)]
    inside = (tag("h2", "Points"), tag("div", table, class_="scroll"), *marks)
    return tag("section", *inside, id="points")


def _repeat(sweep: Json, done: Sequence[Point]) -> Element:
    """What is needed to do it again; the digests of each point are in its manifest."""
    first = done[0]
    axes = {f"axis {path}": ", ".join(map(shown, values)) for path, values in sweep["axes"].items()}
    return tag(
        "section",
        tag("h2", "To repeat it"),
        about.facts(
            {"scenario": sweep["scenario"], "seeds": about.seeds_text(first.manifest["seeds"])}
            | axes
            | {"digests of the results": "of each point, in points/*/manifest.json"}
            | about.sources(first.manifest)
        ),
        about.resolved(first.manifest, f" at point {first.id}"),
        id="details",
    )
