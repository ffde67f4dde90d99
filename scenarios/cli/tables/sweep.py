"""A sweep on the terminal: a row a point and variant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.markup import escape
from rich.table import Table

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import finished, read_sweep
from wattkeeper.scenarios.analysis.vocabulary import cautions, shown_metrics
from wattkeeper.scenarios.cli.tables.run import against, show_inputs, title_of
from wattkeeper.scenarios.spec.wording import axis_text

if TYPE_CHECKING:
    from rich.console import Console

MOST: Final = 100
"""Points that a table shows."""


def content(folder: Path) -> Json:
    """`sweep.json`, and the summary of each variant at each point that is done."""
    about = read_sweep(folder)
    for point in about["points"]:
        point["variants"] = None
    for point, study in finished(folder, about):
        point["variants"] = study.summary["variants"]
    return about


def show(console: Console, folder: Path) -> None:
    """Print the question and the comparison of variants at each point."""
    about = read_sweep(folder)
    console.print(f"[bold]{about['scenario']}[/bold]  {escape(about['question'])}")
    show_inputs(console, about["inputs"])
    warnings: dict[str, None] = {}
    first: list[tuple[Json, Json]] = []
    done = 0
    for done, (point, study) in enumerate(finished(folder, about), 1):
        warnings |= dict.fromkeys(cautions(study.manifest, study.summary))
        if done <= MOST:
            first.append((point["values"], study.summary))
    if not first:
        return
    for line in warnings:
        console.print(escape(line), style="bold yellow")
    console.print(_table(about, first))
    if done > MOST:
        console.print(f"The first {MOST} of {done} points; metrics.parquet has all of them.")


def _table(about: Json, points: list[tuple[Json, Json]]) -> Table:
    """A table of points, given the values and the summary of each."""
    metrics = shown_metrics(points[0][1])
    table = Table(title=title_of(len(about["seeds"]), len(about["variants"]), about["baseline"]))
    for axis in about["axes"]:
        table.add_column(escape(axis.replace(".", ".\n")), overflow="fold")
    table.add_column("variant")
    for name in metrics.values():
        table.add_column(name, justify="right", no_wrap=True)
    for values, summary in points:
        cells = [escape(axis_text(value)) for value in values.values()]
        for name, variant in summary["variants"].items():
            table.add_row(*cells, escape(name), *(against(variant, name, one) for one in metrics))
            cells = [""] * len(cells)
        table.add_section()
    return table
