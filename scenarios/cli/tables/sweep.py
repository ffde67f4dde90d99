"""Terminal table of a sweep: a row for each point and variant."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.key_words import short_keys
from wattkeeper.scenarios.analysis.learning.league import leagues_of_sweep
from wattkeeper.scenarios.analysis.study import finished_points, read_sweep
from wattkeeper.scenarios.analysis.sweep_cautions import have_different_jobs, merge_cautions
from wattkeeper.scenarios.analysis.vocabulary import label_variants, shown_metrics
from wattkeeper.scenarios.cli.tables.fitting import print_whole
from wattkeeper.scenarios.cli.tables.run import (
    format_comparison,
    make_title,
    print_heading,
    print_inputs,
    print_league,
)
from wattkeeper.scenarios.notebook.flat_rows import flatten, summary_rows
from wattkeeper.scenarios.report.points import PointRow
from wattkeeper.scenarios.spec.wording import axis_text

MOST_POINTS: Final = 100
"""Points of the table."""


def read_content(folder: Path) -> Json:
    """`sweep.json` with the summary of each variant at each point that was just finished."""
    about = read_sweep(folder)
    for point in about["points"]:
        point["variants"] = None
    for point, study in finished_points(folder, about, check=False):
        point["variants"] = study.summary["variants"]
    return about


def read_rows(folder: Path) -> Iterator[Json]:
    """A row for each metric at each point that was just finished; see `summary_rows`."""
    for point, study in finished_points(folder, read_sweep(folder), check=False):
        place = {"point": point["id"]} | flatten({"point": point["values"]})
        yield from (place | row for row in summary_rows(study.summary))


def print_sweep(console: Console, about: Json, points: Sequence[PointRow]) -> None:
    """Print the question and the comparison of variants at each point.

    Args:
        console: Where.
        about: Content of `sweep.json`.
        points: The finished points.
    """
    print_heading(console, about["scenario"], about["question"])
    print_inputs(console, about["inputs"])
    if not points:
        return
    warnings, first = [point.cautions for point in points], points[:MOST_POINTS]
    for line in merge_cautions(about, warnings):
        console.print(line, style="bold yellow")
    summaries = [(point.values, point.summary) for point in first]
    leagues = leagues_of_sweep(summaries, list(about["axes"]))
    if leagues:
        print_league(console, leagues)
        return
    print_whole(console, _table(about, first, have_different_jobs(warnings)))
    if len(points) > MOST_POINTS:
        text = f"The first {MOST_POINTS} of {len(points)} points; metrics.parquet has all of them."
        console.print(text)


def _table(about: Json, points: Sequence[PointRow], with_jobs: bool) -> Table:
    """A table of points."""
    metrics = shown_metrics(points[0].summary)
    variants = points[0].summary["variants"]
    table = Table(title=make_title(len(about["seeds"]), variants, about["baseline"]))
    for name in short_keys(about["axes"]).values():
        table.add_column(name.replace(".", ".\n"), overflow="fold")
    if with_jobs:
        table.add_column("jobs", justify="right")
    table.add_column("variant")
    for label in metrics.values():
        table.add_column(label, justify="right", no_wrap=True)
    for point in points:
        cells = [axis_text(value) for value in point.values.values()]
        if with_jobs:
            cells.append(f"{point.cautions.jobs:,}")
        of_point = point.summary["variants"]
        labels = label_variants(of_point)
        for name, variant in of_point.items():
            table.add_row(
                *cells,
                labels[name],
                *(format_comparison(variant, name, metric) for metric in metrics),
            )
            cells = [""] * len(cells)
        table.add_section()
    return table
