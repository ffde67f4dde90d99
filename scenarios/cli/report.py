"""The command `wattkeeper report`."""

from pathlib import Path

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, PATH


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--out", type=FILE, help="[DIR/report.html].")
def report(folder: Path, out: Path | None) -> None:
    """Write the page of the results in DIR again, of a run or of a sweep."""
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios import read
    from wattkeeper.scenarios.report import render_page, render_sweep_page
    from wattkeeper.sim.results.folder import is_sweep
    from wattkeeper.traces.files.atomic import replace_file

    text = render_sweep_page(folder) if is_sweep(folder) else render_page(read(folder))
    path = out or folder / "report.html"
    with replace_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8", newline="\n")
    terminal.write(f"Report: {path}")
