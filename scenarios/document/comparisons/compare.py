"""Comparisons of results folders: sentences and tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.compare import LEVEL, is_significant
from wattkeeper.scenarios.analysis.resolved.key_words import label_point
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import format_value, label_of
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Chapter,
    Document,
    Paragraph,
    Strong,
    Table,
    TableRow,
)
from wattkeeper.scenarios.document.presenters import find_presenter
from wattkeeper.scenarios.spec.wording import count, percent, unlisted
from wattkeeper.sim.results.statistics import FEWEST

MOST_LINES = 40
"""Lines of a list; --json has all."""

MOST_ROWS = 40
"""Rows of a table; --json has all."""

MAIN = ("energy_j", "cluster_energy_j", "time_s", "cost", "jct_s", "queue_delay_s")
"""Metrics that the sentence prefers."""

WIDEST = 50
"""Characters of a scenario's value, at most."""

NOTE = (
    "change: mean of the ratios seed by seed, with its 95 % interval; of the differences where a "
    "value of the reference is 0 or near it. d_z: mean difference over its standard deviation, "
    "seed by seed. verdict: of this one comparison; (alone): not among all "
    f"that differ here (Holm, {100 * LEVEL:g} %)."
)


def summarise(comparison: Mapping[str, Any]) -> str:
    """The verdict of a comparison in one sentence."""
    compared, differ = comparison["compared"], comparison["differ"]
    unmatched = comparison["only_reference"] or comparison["only_other"]
    of_both = " in what both have" if unmatched else ""
    some = f"{differ} of {count(compared, 'comparison')}"
    match comparison["verdict"]:
        case "identical" if comparison["identical"]:
            return "The results are identical, all tables of them (results_digest)."
        case "identical":
            return f"All {count(compared, 'metric')} of whole runs are identical{of_both}."
        case "noise":
            return (
                f"They differ only by noise{of_both}: {some} differ, none of them by more than "
                "chance explains."
            )
        case "one seed" | "undecided" | "cannot tell" if not comparison["random"]:
            return f"They differ{of_both}: {some}. Nothing is drawn at random here."
        case "cannot tell":
            seeds = count(len(comparison["seeds"]), "seed")
            return (
                f"Cannot tell with {seeds}{of_both}: {some} differ, none of them by more than "
                f"chance explains. Run both with more (--seeds {FEWEST})."
            )
        case "undecided":
            significant = sum(map(is_significant, comparison["rows"]))
            return (
                f"Undecided{of_both}: {some} differ, {significant} of them significantly by "
                "themselves, none when adjusted for their number. Run more seeds (--seeds)."
            )
        case "one seed":
            return (
                f"They differ{of_both}: {some}. One seed cannot tell that from noise: run both "
                "with more (--seeds 5)."
            )
        case _:
            held = comparison["hold"]
            return f"They differ{of_both}: {held} of {count(compared, 'comparison')} by more " + (
                f"than noise{_largest(comparison['rows'])}."
            )


def _largest(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest change beyond noise, preferably of a metric of MAIN."""
    held = [row for row in rows if row["holds"] and row["ratio"] is not None]
    held = [row for row in held if row["metric"] in MAIN] or held
    if not held:
        return ""
    row = max(held, key=lambda row: abs(row["ratio"] - 1))
    change = percent(row["ratio"] - 1, fine=True)
    return f", most of all {row['metric']} of {name_run(row)}: {change} %"


def describe_folder(role: str, about: Mapping[str, Any]) -> str:
    """The role, the folder and the scenario of compared results."""
    failed = len(about["failed_points"])
    without = f", {count(failed, 'point')} without results" if failed else ""
    return f"{role}: {about['folder']} ({about['scenario']}, {about['backend']}{without})"


def list_notes(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Differences of scenarios, inputs and omissions, and what only one side has."""
    differences = comparison["differences"]
    for row in differences[:MOST_LINES]:
        yield f"{row['path']}: {_short(row['reference'])} -> {_short(row['other'])}"
    yield from _more(differences)
    for side, where in (("only_reference", "the reference"), ("only_other", "the other")):
        for name in comparison[side][:MOST_LINES]:
            yield f"only in {where}: {name}"
        yield from _more(comparison[side])
    if comparison["windows_differ"]:
        yield (
            "the clusters are charged over different times (windows): their energy, money and "
            "emissions are not comparable; state one time for both (accounting)"
        )
    if any(row["metric"] == "jobs" and row["difference"] for row in comparison["rows"]):
        yield "other jobs were run: the pairs of a seed do not share their random draws"
    if comparison["only_reference"] or comparison["only_other"]:
        yield f"seeds of both: {', '.join(map(str, comparison['seeds']))}"
    absent = [row for row in comparison["rows"] if row["verdict"] is None]
    if absent:
        names = ", ".join(dict.fromkeys(row["metric"] for row in absent))
        yield f"not compared, without values or under another eta: {names}"


def _more(rows: Sequence[object]) -> Iterator[str]:
    if rest := unlisted(len(rows), MOST_LINES):
        yield f"{rest}"


def _short(value: object) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def name_run(row: Mapping[str, Any]) -> str:
    """The variant of a row, and the point of the sweep that it belongs to."""
    values = label_point(row.get("point", {}))
    return f"{row['variant']} ({values})" if values else str(row["variant"])


def format_change(row: Mapping[str, Any]) -> str:
    """The change of a row in per cent and its interval; the difference where it has no ratio."""
    if row["ratio"] is None:
        bounds = ", ".join(f"{bound:+.4g}" for bound in row["difference_ci95"] or ())
        return f"{row['difference']:+.4g}" + f" [{bounds}]" * bool(bounds)
    bounds = ", ".join(percent(bound - 1, fine=True) for bound in row["ci95"] or ())
    return f"{percent(row['ratio'] - 1, fine=True)} %" + f" [{bounds}]" * bool(bounds)


def format_number(value: float | None, row: Mapping[str, Any]) -> str:
    """A value of a row in its unit."""
    if value is None or row["unit"] in ("J", "s"):
        return format_value(value, row["metric"])
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_effect(value: float | None) -> str:
    """The effect size d_z."""
    if value is None:
        return "-"
    return f"{value:+.1f}" if abs(value) < 10 else "> 10" if value > 0 else "< -10"


def format_verdict(row: Mapping[str, Any]) -> str:
    """The verdict on a row, and whether it does not hold among all rows that differ."""
    return str(row["verdict"]) + " (alone)" * (is_significant(row) and not row["holds"])


def describe_comparison(content: Json, first: Study) -> Document:
    """What a comparison says.

    Args:
        content: What `wattkeeper.scenarios.analysis.compare.compare` returned.
        first: A study of the reference, whose metrics the overview of a page shows.
    """
    reference, comparisons = content["reference"], content["comparisons"]
    others = [comparison["other"]["folder"] for comparison in comparisons]
    answer: list[Block] = [Paragraph("note", (describe_folder("reference", reference),))]
    metrics = find_presenter(first.manifest["scenario"]).metrics(first.summary)
    sections = [Chapter("answer", (), answer), _overview(reference, comparisons, metrics)]
    for number, comparison in enumerate(comparisons):
        answer.append(
            Paragraph("lead", (Strong(comparison["other"]["folder"]), f": {summarise(comparison)}"))
        )
        sections.append(_compare_section(number, comparison))
    if any(comparison["differ"] for comparison in comparisons):
        sections.append(Chapter("meaning", (), list(blocks.notes([NOTE]))))
    title = f"{', '.join(others)} against {reference['folder']}"
    return Document(reference["scenario"] or "comparison", title, [], sections)


def _overview(reference: Json, comparisons: Sequence[Json], metrics: Sequence[str]) -> Chapter:
    """The main metrics of each variant, folder by folder."""
    rows: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for number, comparison in enumerate(comparisons):
        for row in comparison["rows"]:
            if row["metric"] in metrics:
                rows.setdefault((name_run(row), row["metric"]), {})[number] = row
    lines = []
    for (run, metric), by_number in list(rows.items())[:MOST_ROWS]:
        first = next(iter(by_number.values()))
        cells = [Cell((label_of(metric),)), Cell((format_number(first["reference"], first),))]
        cells += [_value_cell(by_number.get(number)) for number in range(len(comparisons))]
        lines.append(TableRow((run,), cells))
    titles = ["variant", "metric", reference["folder"]]
    titles += [comparison["other"]["folder"] for comparison in comparisons]
    table = Table(blocks.heads(*titles), lines, "", unlisted(len(rows), MOST_ROWS))
    return Chapter("overview", ("Main metrics",), [table], "page")


def _value_cell(row: Mapping[str, Any] | None) -> Cell:
    """A value, and below it the change and the verdict."""
    if row is None:
        return Cell(("-",))
    value = (format_number(row["other"], row),)
    if row["verdict"] in (None, "identical"):
        return Cell(value, row["verdict"] or "not compared")
    return Cell(value, format_change(row), "", format_verdict(row))


def _compare_section(number: int, comparison: Json) -> Chapter:
    """What differs between results and the reference: settings, and all metrics.

    Where there are many, those that differ most significantly.
    """
    differ = [row for row in comparison["rows"] if row["verdict"] not in (None, "identical")]
    chosen = sorted(range(len(differ)), key=lambda i: (differ[i]["p_holm"] or 0, i))[:MOST_ROWS]
    rows = [
        TableRow(
            (name_run(row),),
            [
                Cell((text,))
                for text in (
                    row["metric"],
                    format_number(row["reference"], row),
                    format_number(row["other"], row),
                    format_change(row),
                    format_effect(row["effect"]),
                    format_verdict(row),
                )
            ],
        )
        for row in (differ[index] for index in sorted(chosen))
    ]
    content: list[Block] = list(blocks.cautions(list_notes(comparison)))
    titles = ("variant", "metric", "reference", "other", "change", "d_z", "verdict")
    if rows:
        caption = unlisted(len(differ), MOST_ROWS)
        content.append(Table(blocks.heads(*titles), rows, "", caption))
    else:
        content += blocks.notes(["No metric differs."])
    title = describe_folder("Compared", comparison["other"])
    return Chapter(f"compared-{number}", (title,), content)
