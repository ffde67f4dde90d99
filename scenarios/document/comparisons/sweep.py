"""The document of a sweep: the points of least energy and time, and a row for each point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.learning.league import League, leagues_of_sweep
from wattkeeper.scenarios.analysis.points import (
    PointRow,
    all_shown_metrics,
    all_variants,
    describe_points,
    read_points,
)
from wattkeeper.scenarios.analysis.resolved.key_words import label_point, title_of_key
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.sweep_cautions import have_different_jobs, merge_cautions
from wattkeeper.scenarios.analysis.vocabulary import (
    choose_unit,
    format_value,
    is_gain,
    label_of,
    metric_units,
)
from wattkeeper.scenarios.charts.sweep_charts import draw_sweep
from wattkeeper.scenarios.document import basis, blocks
from wattkeeper.scenarios.document.answer import describe_certainty
from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Chapter,
    Document,
    Facts,
    Figure,
    Paragraph,
    Small,
    Span,
    Strong,
    Table,
    TableRow,
    Text,
)
from wattkeeper.scenarios.document.presenters import find_presenter
from wattkeeper.scenarios.document.rankings import league_section, rank_in_words
from wattkeeper.scenarios.document.variants import explain_verdicts
from wattkeeper.scenarios.document.words import (
    FUTURE,
    compare_cell,
    describe_change,
    join_list,
    label_row,
    name_of,
)
from wattkeeper.scenarios.spec.wording import axis_text, count
from wattkeeper.sim.cluster_results.registry import METRICS

MOST_ROWS: Final = 500
"""Rows of the table of points."""

MOST_SENTENCES: Final = 5
"""Variants that get a sentence."""

MOST_FAILURES: Final = 50
"""Failures that are listed."""


def read_sweep_document(folder: Path, *, with_charts: bool = True) -> Document:
    """The document of the sweep in a folder.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    sweep = study.read_sweep(folder)
    points = read_rows(folder, sweep)
    first = next((saved for _, saved in study.finished_points(folder, sweep, check=False)), None)
    return describe_sweep(sweep, points, first, with_charts=with_charts)


def read_rows(folder: Path, sweep: Json, *, check: bool = True) -> list[PointRow]:
    """What is shown of each finished point of a sweep; see `read_points`."""
    return read_points(folder, sweep, find_presenter, check=check)


def describe_sweep(
    sweep: Json,
    points: Sequence[PointRow],
    first: Study | None,
    *,
    with_charts: bool = True,
    most_rows: int = MOST_ROWS,
) -> Document:
    """What a sweep says, given its `sweep.json`, what its points show, and its first study."""
    variants = all_variants(points)
    leagues = leagues_of_sweep([(p.values, p.summary) for p in points], list(sweep["axes"]))
    sections = [Chapter("answer", (), list(_open_sweep(sweep, points, first, leagues)))]
    if leagues:
        sections.append(league_section(leagues, variants))
    if with_charts:
        figures = [Figure(chart) for chart in draw_sweep(sweep, points, variants)]
        sections.append(Chapter("charts", (), figures, "page"))
    if points:
        place = "page" if leagues else "all"
        table = list(list_points(sweep, points, most_rows))
        sections.append(Chapter("points", ("Points",), table, place))  # type: ignore[arg-type]
    if first is not None:
        facts = {
            f"axis {path}": ", ".join(map(axis_text, values))
            for path, values in sweep["axes"].items()
        }
        facts["digests of the results"] = "of each point, in points/*/manifest.json"
        sections.append(basis.details(first.manifest, facts, f" at point {points[0].id}"))
    return Document(sweep["scenario"], sweep["question"] or sweep["scenario"], variants, sections)


def _open_sweep(
    sweep: Json,
    points: Sequence[PointRow],
    first: Study | None,
    leagues: Sequence[tuple[str, League]],
) -> Iterator[Block]:
    """The answer of a sweep, what belongs before its figures, and what it rests on."""
    variants = all_variants(points)
    if leagues:
        yield from rank_in_words(leagues, points[0].oracles, variants)
    else:
        yield from _write_sentences(points, variants)
    if first is not None and (remark := describe_certainty(first, [p.summary for p in points])):
        yield Paragraph("note", (remark,))
    failed = [point for point in sweep["points"] if point["state"] != "done"]
    yield from blocks.cautions(_list_failures(failed))
    yield from blocks.cautions(merge_cautions(sweep, [point.cautions for point in points]))
    yield _describe_basis(sweep, len(points), first)


def _write_sentences(points: Sequence[PointRow], variants: Sequence[str]) -> Iterator[Paragraph]:
    """The points of least energy and time, or most goodput, and the ranges of changes."""
    if not points:
        yield Paragraph("lead", ("No point is done: there is nothing to compare.",))
        return
    time, energy, _ = points[0].tradeoff
    role: blocks.Role = "lead"
    for metric in (energy, time):
        if best := _describe_best(metric, points, variants):
            yield Paragraph(role, [*best, "."])
            role = "answer"
    baselines = {
        name: about["versus"]["baseline"] for name, about in points[0].summary["variants"].items()
    }
    others = [name for name, baseline in baselines.items() if name != baseline]
    for name in others[:MOST_SENTENCES]:
        ranges = [
            words for metric in (energy, time) if (words := _describe_range(name, metric, points))
        ]
        if ranges:
            oracle = any(name in point.oracles for point in points)
            yield Paragraph(
                "answer",
                [
                    name_of(name, variants),
                    f"{FUTURE if oracle else ''}: ",
                    *join_list(ranges),
                    ", against ",
                    name_of(baselines[name], variants),
                    ".",
                ],
            )


def _describe_best(metric: str, points: Sequence[PointRow], names: Sequence[str]) -> list[Span]:
    """The best value of reachable policies, then that of policies that know the future."""
    extreme, title = (max, "Most") if is_gain(metric) else (min, "Least")
    results = [
        (about["metrics"][metric], point, name)
        for point in points
        for name, about in point.summary["variants"].items()
        if about["metrics"][metric]["mean"] is not None
    ]
    noun = METRICS[metric].noun
    words: list[Span] = []
    for oracle in (False, True):
        group = [result for result in results if (result[2] in result[1].oracles) == oracle]
        if not group:
            continue
        statistics, _, first = extreme(group, key=lambda result: result[0]["mean"])
        best = format_value(statistics["mean"], metric)
        by_variant: dict[str, list[PointRow]] = {}
        for others, point, name in group:
            if format_value(others["mean"], metric) == best:
                by_variant.setdefault(name, []).append(point)
        where = describe_points(
            by_variant[first], [point for _, point, name in group if name == first]
        )
        if oracle:
            words += ["; " if words else f"{title} {noun}: ", best, " by "]
            words += [name_of(first, names), FUTURE, f", {where}"]
        else:
            ties = ", ".join(name for name in by_variant if name != first)
            as_good = f" (and as {'much' if is_gain(metric) else 'little'} by {ties})"
            words += [f"{title} {noun}: ", Strong(best), *_interval(statistics, metric), " by "]
            words += [name_of(first, names), f"{as_good if ties else ''} {where}"]
    return words


def _interval(statistics: Json, metric: str) -> Iterator[Small]:
    """The interval of a mean, in the unit of the mean."""
    if not statistics["ci95"] or statistics["ci95"][0] == statistics["ci95"][1]:
        return
    _, size = choose_unit([statistics["mean"]], metric_units(metric))
    low, high = (f"{bound / size:,.2f}" for bound in statistics["ci95"])
    yield Small(f" [{low}, {high}]")


def _describe_range(name: str, metric: str, points: Sequence[PointRow]) -> Text:
    """The smallest and the largest change of a variant against its baseline, and where."""
    compared = [
        (versus, point)
        for point in points
        if name in point.summary["variants"]
        and (versus := point.summary["variants"][name]["versus"].get(metric))
    ]
    changes = [(versus, point) for versus, point in compared if versus["ratio"] is not None]
    if not changes:
        return ()
    noun, among = METRICS[metric].noun, [point for _, point in compared]
    verdicts = {versus.get("verdict") for versus, _ in changes}
    if verdicts <= {"noise", "cannot tell"}:
        where = describe_points([point for _, point in changes], among)
        open_ = "no difference beyond noise in" if "noise" in verdicts else "too few seeds to tell"
        return (f"{open_} {noun} {where}",)
    ends: list[list[Span]] = []
    texts = [describe_change(metric, versus)[0] for versus, _ in changes]
    for extreme in (min, max):
        versus, _ = extreme(changes, key=lambda change: change[0]["ratio"])
        text, interval = describe_change(metric, versus)
        there = [point for (_, point), other in zip(changes, texts, strict=True) if other == text]
        end: list[Span] = [
            *_describe_end(versus, text, interval),
            f" {describe_points(there, among)}",
        ]
        if len(there) == len(changes):
            return [f"{noun} ", *end]
        ends.append(end)
    return [f"{noun} from ", *ends[0], " to ", *ends[1]]


def _describe_end(versus: Json, text: str, interval: str) -> list[Span]:
    bounds: list[Span] = [Small(f" {interval}")] * bool(interval)
    match versus.get("verdict"):
        case "noise":
            return [f"only noise ({text}", *bounds, ")"]
        case "cannot tell":
            return [f"open with so few seeds ({text}", *bounds, ")"]
        case "identical":
            return ["the same"]
    return [Strong(text), *bounds]


def _list_failures(failed: Sequence[Json]) -> Iterator[str]:
    """The points that failed, and their messages."""
    if not failed:
        return
    are = "is" if len(failed) == 1 else "are"
    yield f"{count(len(failed), 'point')} failed and {are} left out:"
    lines = []
    for point in failed:
        failures = point.get("failures") or [{"variant": "", "seed": "", "message": point["state"]}]
        lines += [
            f"{point['id']} ({label_point(point['values'])}), {failure['variant']}, seed "
            f"{failure['seed']}: {failure['message']}"
            for failure in failures
        ]
    yield from lines[:MOST_FAILURES]


def _describe_basis(sweep: Json, done: int, first: Study | None) -> Facts:
    facts: list[tuple[str, Sequence[Text]]] = [
        ("sweep", [(f"{done} of {count(len(sweep['points']), 'point')} done",)]),
        (
            "axes",
            [
                (Strong(path), f": {', '.join(map(axis_text, values))}")
                for path, values in sweep["axes"].items()
            ],
        ),
    ]
    if first:
        seeds = first.manifest["seeds"]
        text = f"{len(seeds)} at each point: {basis.format_seeds(seeds)}"
        facts.append(("seeds", [(text,)]))
    inputs = [basis.describe_input(trace) for trace in sweep.get("inputs", ())]
    if inputs:
        facts.append(("input", inputs))
    if sweep.get("modelled"):
        facts.append(("modelled, not measured", [("; ".join(sweep["modelled"]),)]))
    return Facts(facts)


def list_points(sweep: Json, points: Sequence[PointRow], most_rows: int) -> Iterator[Block]:
    """A table with a row a point and variant, and the meaning of its marks."""
    metrics = all_shown_metrics(points)
    titles = [title_of_key(path) for path in sweep["axes"]]
    with_jobs = have_different_jobs(point.cautions for point in points)
    every = [
        (point, name, about)
        for point in points
        for name, about in point.summary["variants"].items()
    ]
    rows = []
    for point, name, about in every[:most_rows]:
        cells = [Cell((axis_text(point.values.get(path)),)) for path in sweep["axes"]]
        cells += [Cell((f"{point.cautions.jobs:,}",))] * with_jobs
        cells.append(Cell(label_row(name, point.summary)))
        cells += [compare_cell(name, about, metric) for metric in metrics]
        rows.append(TableRow((point.id,), cells))
    heads = ["point", *titles, *["jobs"] * with_jobs, "variant", *map(label_of, metrics)]
    text = f"The first {most_rows} of {len(every)} rows; all are in metrics.parquet."
    table = Table(blocks.heads(*heads), rows, "", text * (len(every) > most_rows))
    yield table
    yield from blocks.notes(explain_verdicts(point.summary for point in points))
