"""The page of a comparison of results folders."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.compare_text import (
    NOTE,
    describe_folder,
    format_change,
    format_effect,
    format_number,
    format_verdict,
    list_notes,
    name_run,
    summarise,
)
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.page import assemble_page, header
from wattkeeper.scenarios.report.phrases import typeset_minus

MOST_ROWS = 400
"""Rows of a table; --json has all."""

Row = Mapping[str, Any]


def render_comparison(content: Json, metrics: Mapping[str, str]) -> str:
    """The page of a comparison as one HTML file; it loads nothing from a network.

    Args:
        content: What `wattkeeper.scenarios.analysis.compare.compare` returned.
        metrics: The metrics of the overview, and their labels.
    """
    reference, comparisons = content["reference"], content["comparisons"]
    others = [comparison["other"]["folder"] for comparison in comparisons]
    body = [
        header(reference["scenario"] or "comparison"),
        tag("h1", f"{', '.join(others)} against {reference['folder']}"),
        tag(
            "ul",
            *(
                tag("li", tag("b", comparison["other"]["folder"]), f": {summarise(comparison)}")
                for comparison in comparisons
            ),
            class_="answer",
        ),
        *markup.notes([describe_folder("reference", reference)]),
        _overview(reference, comparisons, metrics),
        *(_section(comparison) for comparison in comparisons),
        *markup.notes([NOTE]),
    ]
    return assemble_page("comparison", body, [], [])


def _overview(reference: Json, comparisons: Sequence[Json], metrics: Mapping[str, str]) -> Element:
    """The main metrics of each variant, folder by folder."""
    rows: dict[tuple[str, str], dict[int, Row]] = {}
    for number, comparison in enumerate(comparisons):
        for row in comparison["rows"]:
            if row["metric"] in metrics:
                rows.setdefault((name_run(row), row["metric"]), {})[number] = row
    lines = []
    for (run, metric), by_number in list(rows.items())[:MOST_ROWS]:
        first = next(iter(by_number.values()))
        cells = [
            tag("td", run),
            tag("td", metrics[metric]),
            tag("td", typeset_minus(format_number(first["reference"], first))),
        ]
        for number in range(len(comparisons)):
            cells.append(_value_cell(by_number.get(number)))
        lines.append(tag("tr", *cells))
    titles = ["variant", "metric", reference["folder"]]
    titles += [comparison["other"]["folder"] for comparison in comparisons]
    return tag(
        "section",
        tag("h2", "Main metrics"),
        markup.build_table(titles, lines),
        *_count_left(len(rows)),
        id="overview",
    )


def _value_cell(row: Row | None) -> Element:
    """A value, and below it the change and the verdict."""
    if row is None:
        return tag("td", "-")
    value = typeset_minus(format_number(row["other"], row))
    if row["verdict"] in (None, "identical"):
        return tag("td", value, tag("small", " " + (row["verdict"] or "not compared")))
    change = typeset_minus(format_change(row))
    return tag("td", value, tag("br"), tag("small", f"{change}, {format_verdict(row)}"))


def _section(comparison: Json) -> Element:
    """What differs between a folder and the reference: settings, and all metrics."""
    differ = [row for row in comparison["rows"] if row["verdict"] not in (None, "identical")]
    titles = ("variant", "metric", "reference", "other", "change", "d_z", "verdict")
    lines = []
    for row in differ[:MOST_ROWS]:
        numbers = (
            format_number(row["reference"], row),
            format_number(row["other"], row),
            format_change(row),
            format_effect(row["effect"]),
        )
        texts = name_run(row), row["metric"], *map(typeset_minus, numbers), format_verdict(row)
        lines.append(tag("tr", *(tag("td", text) for text in texts)))
    settings = [tag("li", line.strip()) for line in list_notes(comparison)]
    return tag(
        "section",
        tag("h2", describe_folder("Compared", comparison["other"])),
        tag("ul", *settings) if settings else None,
        markup.build_table(titles, lines) if lines else tag("p", "No metric differs."),
        *_count_left(len(differ)),
    )


def _count_left(rows: int) -> list[Element]:
    left = rows - MOST_ROWS
    return markup.notes([f"... and {left:,} more rows (--json has all)."] if left > 0 else [])
