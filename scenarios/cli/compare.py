"""The command `wattkeeper compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, PATH, output_options

if TYPE_CHECKING:
    from wattkeeper.policies.json_types import Json
    from wattkeeper.scenarios.document.blocks import Document


@click.command()
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True, type=PATH)
@output_options("the comparison")
@click.option("--html", metavar="FILE", type=FILE, help="Write a page of the comparison, too.")
def compare(folders: tuple[Path, ...], form: str | None, html: Path | None) -> None:
    """Compare results folders with the first of them, metric by metric, paired by seed.

    Of a live run and a simulated one, measured values are compared with predicted ones, attempt by
    attempt. Different results are no failure.
    """
    if len(folders) < 2:
        raise click.UsageError("give two results folders or more")
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.analysis import compare as studies
    from wattkeeper.sim.results.folder import to_json

    results = [studies.read(folder) for folder in folders]
    live = studies.find_live(results)
    if live is not None:
        from wattkeeper.scenarios.analysis import sim_vs_live
        from wattkeeper.scenarios.document.comparisons.sim_vs_live import describe_predictions

        measured, predicted = (results[index].points["{}"] for index in (live, 1 - live))
        comparison = sim_vs_live.compare(measured, predicted)
        document = describe_predictions(comparison)
    else:
        from wattkeeper.scenarios.document.comparisons.compare import describe_comparison

        comparison = studies.compare(results[0], results[1:])
        document = describe_comparison(comparison, next(iter(results[0].points.values())))
    if form == "json":
        terminal.write(to_json(comparison), end="")
    elif form == "csv":
        terminal.write(_format_rows(comparison), end="")
    else:
        from wattkeeper.scenarios.cli.tables.document import print_document

        print_document(terminal.console(), document)
    if html is not None:
        _write_page(html, document)


def _format_rows(content: Json) -> str:
    """The rows of a comparison as CSV; of several, with the folder that is compared."""
    from wattkeeper.scenarios.notebook.flat_rows import comparison_rows, to_csv

    if "comparisons" not in content:
        return to_csv(comparison_rows(content))
    return to_csv(
        {"folder": one["other"]["folder"]} | row
        for one in content["comparisons"]
        for row in comparison_rows(one)
    )


def _write_page(path: Path, document: Document) -> None:
    from wattkeeper.scenarios.report.page import render_document
    from wattkeeper.traces.files.atomic import replace_file

    with replace_file(path) as fresh:
        fresh.write_text(render_document(document), encoding="utf-8", newline="\n")
    terminal.write(f"Page: {path}", err=True)
