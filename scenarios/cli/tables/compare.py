"""Terminal tables of the comparison of results folders."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

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
from wattkeeper.scenarios.cli.tables.fitting import print_whole
from wattkeeper.scenarios.spec.wording import unlisted

MOST_ROWS = 40
"""Rows of a table; --json has all."""


def print_comparison(console: Console, content: Mapping[str, Any]) -> None:
    """Print each comparison: its verdict, differences of the scenarios, and metrics that differ."""
    console.print(describe_folder("reference", content["reference"]), style="dim")
    for comparison in content["comparisons"]:
        console.print(describe_folder("compared with it", comparison["other"]), style="dim")
        console.print(summarise(comparison), style="bold")
        for line in list_notes(comparison):
            console.print(line, style="yellow")
        differ = [row for row in comparison["rows"] if row["verdict"] not in (None, "identical")]
        if differ:
            print_whole(console, _table(differ))
    if any(comparison["differ"] for comparison in content["comparisons"]):
        console.print(NOTE, style="dim")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows that differ; where there are many, the most significant ones."""
    shown = sorted(range(len(rows)), key=lambda i: (rows[i]["p_holm"] or 0, i))[:MOST_ROWS]
    table = Table(caption=unlisted(len(rows), MOST_ROWS) or None)
    for title in ("variant", "metric", "reference", "other", "change", "d_z", "verdict"):
        left = title in ("variant", "metric", "verdict")
        table.add_column(title, justify="left" if left else "right", no_wrap=title != "variant")
    before = ""
    for row in (rows[index] for index in sorted(shown)):
        run = name_run(row)
        cells = (
            row["metric"],
            *(format_number(row[side], row) for side in ("reference", "other")),
            format_change(row),
            format_effect(row["effect"]),
            format_verdict(row),
        )
        table.add_row("" if run == before else run, *cells)
        before = run
    return table
