"""The commands `wattkeeper traces ...`.

Only what a command needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from wattkeeper.policies.errors import InputError, WattkeeperError
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_traces
from wattkeeper.scenarios.cli.generate import fit_jobs, generate
from wattkeeper.scenarios.cli.import_options import import_options, print_import
from wattkeeper.scenarios.cli.options import GPUS, PATH, json_option, number_type
from wattkeeper.traces.files.user_dirs import library_folder

if TYPE_CHECKING:
    from wattkeeper.traces.readers.base import ImportOptions

_ETA = number_type(
    "a number from 0 to 1 without unit, the weight of energy against time", lambda n: 0 <= n <= 1
)


@click.group("traces")
def traces() -> None:
    """Import, list and describe traces and profiles."""


@traces.command("list")
@json_option
def list_traces(as_json: bool) -> None:
    """List the traces of the library.

    Exit code 2: one is broken; all are listed.
    """
    from wattkeeper.traces.library import store

    rows = [_describe_trace(name) for name in store.names()]
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
    elif rows:
        _write_table(rows)
    else:
        terminal.write(
            f"No traces in {library_folder()}; import one: wattkeeper traces import --help"
        )
    if any("broken" in row for row in rows):
        raise click.exceptions.Exit(InputError.exit_code)


def _write_table(rows: Sequence[Mapping[str, Any]]) -> None:
    cells: list[tuple[str, ...]] = [
        ("name", "kind", "origin", "format", "rows", "most GPUs", "span")
    ]
    for row in rows:
        if "broken" in row:
            cells.append((row["name"], "broken"))
            continue
        span = "" if row["span_s"] is None else f"{row['span_s'] / 86400:,.1f} d"
        most = "" if row["most_gpus"] is None else f"{row['most_gpus']}"
        about = (row["name"], row["kind"], row["origin"], row["format"])
        cells.append((*about, f"{row['rows']:,}", most, span))
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    for line in cells:
        shown = [
            text.rjust(width) if n >= 4 else text.ljust(width)
            for n, (text, width) in enumerate(zip(line, widths, strict=False))
        ]
        terminal.write("  ".join(shown).rstrip())
    for row in rows:
        if "broken" in row:
            terminal.write(f"broken: {row['broken']}")


def _describe_trace(name: str) -> dict[str, Any]:
    """A row of the list; a broken trace has its error."""
    from wattkeeper.traces.library import store

    try:
        trace = store.find(name)
    except WattkeeperError as error:
        return {"name": name, "broken": str(error)}
    return {
        "name": name,
        "kind": trace.kind,
        "origin": trace.origin,
        "format": trace.format,
        **store.sizes(trace),
    }


@traces.command()
@click.argument("name", shell_complete=complete_traces)
@click.option("--gpu", help="Only this GPU type.")
@click.option("--eta", type=_ETA, default=0.5, help="Of the savings shown [0.5].")
@click.option("--gpus", type=GPUS, help="Hold jobs against a cluster of so many GPUs.")
@json_option
def describe(name: str, gpu: str | None, eta: float, gpus: int | None, as_json: bool) -> None:
    """Describe the trace NAME (or a path): its extent, its oddities, and possible savings."""
    from wattkeeper.traces.describe.report import describe as describe_trace
    from wattkeeper.traces.describe.report import render
    from wattkeeper.traces.library import store

    report = describe_trace(store.find(name), gpu_type=gpu, eta=eta, gpus=gpus)
    if as_json:
        terminal.write(json.dumps(report, indent=2))
    else:
        render(report, terminal.console())


class _Import(click.Command):
    """A command whose help ends with the list of formats."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the registered formats."""
        from wattkeeper.traces.formats import registry

        with formatter.section("Formats"):
            formatter.write_dl(
                [
                    (known.name, f"{known.summary}; takes {known.takes}")
                    for known in registry().values()
                ]
            )


@traces.command("import", cls=_Import)
@click.argument("form", metavar="FORMAT")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH)
@click.option("--name", help="Its name in the library; by default the format says it.")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
@click.option("--dry-run", is_flag=True, help="Only check the files; store nothing.")
@import_options
def import_(
    form: str,
    paths: tuple[Path, ...],
    name: str | None,
    replace: bool,
    dry_run: bool,
    options: ImportOptions,
    skip_bad: bool,
) -> None:
    """Read PATH... as FORMAT into the trace library; auto detects the format."""
    from wattkeeper.traces.library import store

    if not dry_run:
        added = store.add(form, paths, name, replace=replace, options=options, skip_bad=skip_bad)
        print_import(added, str(added.folder))
        return
    if replace:
        raise click.UsageError("--replace has no effect with --dry-run, which stores nothing")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "trace"
        added = store.add(form, paths, name, options=options, skip_bad=skip_bad, folder=folder)
        print_import(added, "can be imported; nothing was stored")


@traces.command()
@click.argument("known", metavar="[NAME]", required=False)
@click.option("--name", help="Its name in the library; by default the same.")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
@click.option("--url", help="Address of the file, or of the folder that has the files.")
@click.option("--sha256", multiple=True, metavar="HEX", help="Digest to check for, one a file.")
@click.option("--skip-bad", is_flag=True, help="Leave out malformed rows, and count them.")
def fetch(
    known: str | None,
    name: str | None,
    replace: bool,
    url: str | None,
    sha256: tuple[str, ...],
    skip_bad: bool,
) -> None:
    """Download the well-known trace NAME and import it; without NAME, list the known ones."""
    from wattkeeper.traces.library.catalogue import listing

    if known is None:
        if name or replace or url or sha256 or skip_bad:
            raise click.UsageError("these options need the NAME of a well-known trace")
        terminal.write("\n".join(listing()))
        return
    from wattkeeper.traces.library.fetch import fetch as fetch_trace
    from wattkeeper.traces.library.store import warn_left_out

    with _download_bar() as progress:
        done = fetch_trace(
            known,
            name=name,
            replace=replace,
            url=url,
            sha256=sha256,
            skip_bad=skip_bad,
            progress=progress,
        )
    for file, digest in done.digests.items():
        verdict = "as stated" if file in done.stated else "no digest is stated to compare with"
        terminal.write(f"{file}: sha256 {digest} ({verdict})")
    for text in done.changed:
        terminal.write(f"Note: {text}")
    for table, rows in done.added.rows.items():
        terminal.write(f"{rows:8} {table}")
    if warning := warn_left_out(done.added.quality):
        terminal.write(warning, err=True)
    terminal.write(
        f"{done.added.name} ({done.added.kind}, {done.added.origin}): {done.added.folder}"
    )


@contextmanager
def _download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar over bytes on a terminal; none in a pipe."""
    if not sys.stderr.isatty():
        yield lambda file, done, total: None
        return
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with terminal.show_bars(DownloadColumn(), TransferSpeedColumn()) as bar:
        tasks: dict[str, Any] = {}

        def update(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        yield update


traces.add_command(fit_jobs)
traces.add_command(generate)
