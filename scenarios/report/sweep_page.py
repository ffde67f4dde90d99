"""The page of a sweep, from its results folder."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.key_words import label_point, title_of_key
from wattkeeper.scenarios.analysis.learning.league import League, leagues_of_sweep
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.sweep_cautions import have_different_jobs, merge_cautions
from wattkeeper.scenarios.report import about, headline, markup
from wattkeeper.scenarios.report.charts.sweep_charts import draw_sweep
from wattkeeper.scenarios.report.league_section import league_section, league_sentences
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.page import assemble_page, figures, header, variant_chips
from wattkeeper.scenarios.report.phrases import name_baseline, variant_label
from wattkeeper.scenarios.report.points import (
    PointRow,
    all_shown_metrics,
    all_variants,
    read_points,
)
from wattkeeper.scenarios.report.sweep_headline import write_sentences
from wattkeeper.scenarios.report.tables import explain_verdicts, value_cell
from wattkeeper.scenarios.spec.wording import axis_text, count

MOST_ROWS = 500
"""Rows of the table of points."""


def render_sweep_page(folder: Path) -> str:
    """The page of a sweep as one HTML file.

    Args:
        folder: A folder with `sweep.json`, and the results of each point below `points`.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    sweep = study.read_sweep(folder)
    return draw_sweep_page(folder, sweep, read_points(folder, sweep))


def draw_sweep_page(folder: Path, sweep: Json, points: Sequence[PointRow]) -> str:
    """The page of a sweep, given its `sweep.json` and all that its points show."""
    studies = study.finished_points(folder, sweep, check=False)
    first = next((saved for _, saved in studies), None)
    variants = all_variants(points)
    charts = list(draw_sweep(sweep, points, variants))
    leagues = _read_leagues(sweep, points)
    body = [
        header(sweep["scenario"]),
        *write_answer(sweep, points, first),
        _summarise_basis(sweep, len(points), first),
        *([league] if (league := league_section(leagues)) is not None else []),
        variant_chips(variants),
        *figures(charts),
        tag("section", tag("h2", "Points"), *list_points(sweep, points), id="points"),
        *([_details(sweep, points[0].id, first.manifest)] if first else []),
    ]
    return assemble_page(sweep["scenario"], body, variants, charts)


def write_answer(sweep: Json, points: Sequence[PointRow], first: Study | None) -> Iterator[Element]:
    """The question of a sweep, and its answer in sentences; `first` is its first finished point."""
    variants, leagues = all_variants(points), _read_leagues(sweep, points)
    sentences = write_sentences(points, variants)
    if leagues:
        names = {"variants": dict.fromkeys(variants)}
        sentences = league_sentences(leagues, points[0].oracles, names)
    yield tag("h1", sweep["question"] or sweep["scenario"])
    yield tag("ul", *sentences, class_="answer")
    if first is not None:
        yield from markup.notes(headline.write_remarks(first.manifest, first.summary))
    yield from markup.notes(merge_cautions(sweep, [point.cautions for point in points]), "caution")
    failed = [point for point in sweep["points"] if point["state"] != "done"]
    if failed:
        yield _list_failures(failed)


def _read_leagues(sweep: Json, points: Sequence[PointRow]) -> list[tuple[str, League]]:
    return leagues_of_sweep([(p.values, p.summary) for p in points], list(sweep["axes"]))


def _list_failures(failed: Sequence[Json]) -> Element:
    """The points that failed, and their messages."""
    lines = []
    for point in failed:
        failures = point.get("failures") or [{"variant": "", "seed": "", "message": point["state"]}]
        lines += [
            tag(
                "li",
                f"{point['id']} ({label_point(point['values'])}), {failure['variant']}, seed "
                f"{failure['seed']}: {failure['message']}",
            )
            for failure in failures
        ]
    are = "is" if len(failed) == 1 else "are"
    return tag(
        "div",
        tag("b", f"{count(len(failed), 'point')} failed and {are} left out:"),
        tag("ul", *lines[:50]),
        class_="caution",
    )


def _summarise_basis(sweep: Json, done: int, first: Study | None) -> Element:
    axes = [
        tag("span", tag("b", path), f": {', '.join(map(axis_text, values))}")
        for path, values in sweep["axes"].items()
    ]
    facts: list[tuple[str, Sequence[Element | str]]] = [
        ("sweep", [f"{done} of {count(len(sweep['points']), 'point')} done"]),
        ("axes", axes),
    ]
    if first:
        seeds = first.manifest["seeds"]
        facts.append(("seeds", [f"{len(seeds)} at each point: {about.format_seeds(seeds)}"]))
    inputs = [about.describe_input(trace) for trace in sweep.get("inputs", ())]
    if inputs:
        facts.append(("input", inputs))
    if sweep.get("modelled"):
        facts.append(("modelled, not measured", ["; ".join(sweep["modelled"])]))
    return about.definition_list(facts)


def list_points(
    sweep: Json, points: Sequence[PointRow], most_rows: int = MOST_ROWS
) -> Iterator[Element]:
    """A table with a row a point and variant, and the meaning of its marks."""
    metrics = all_shown_metrics(points)
    names = {"variants": dict.fromkeys(all_variants(points))}
    titles = [title_of_key(path) for path in sweep["axes"]]
    jobs = ["jobs"] * have_different_jobs(point.cautions for point in points)
    heads = [tag("th", head, scope="col") for head in ("point", *titles, *jobs)]
    heads.append(tag("th", "variant", scope="col", class_="who"))
    heads += [tag("th", title, scope="col") for title in metrics.values()]
    every = ((point, *item) for point in points for item in point.summary["variants"].items())
    rows = [
        tag(
            "tr",
            tag("th", point.id, scope="row"),
            *(
                tag("td", axis_text(point.values.get(path)), data_label=title)
                for path, title in zip(sweep["axes"], titles, strict=True)
            ),
            *(tag("td", f"{point.cautions.jobs:,}", data_label=title) for title in jobs),
            tag(
                "td",
                variant_label(name, names),
                name_baseline(name, point.summary),
                class_="who",
                data_label="variant",
            ),
            *(value_cell(name, about_variant, metric, title) for metric, title in metrics.items()),
        )
        for point, name, about_variant in islice(every, most_rows)
    ]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="cards")
    total = sum(len(point.summary["variants"]) for point in points)
    if total > most_rows:
        text = f"The first {most_rows} of {total} rows; all are in metrics.parquet."
        table.append(tag("caption", text))
    yield tag("div", table, class_="scroll")
    yield from markup.notes(explain_verdicts(point.summary for point in points))


def _details(sweep: Json, first: str, manifest: Manifest) -> Element:
    """What a repetition needs; the digests of each point are in its manifest."""
    facts = {
        f"axis {path}": ", ".join(map(axis_text, values)) for path, values in sweep["axes"].items()
    } | {"digests of the results": "of each point, in points/*/manifest.json"}
    return about.details(manifest, facts, f" at point {first}")
