"""The command `wattkeeper timeline`."""

from pathlib import Path

import click

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_variants
from wattkeeper.scenarios.cli.options import PATH


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option(
    "--variant", metavar="NAME", shell_complete=complete_variants, help="Which variant [the first]."
)
@click.option("--seed", type=int, metavar="N", help="Which seed [the first].")
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="File to write; .gz: compressed [DIR/timeline.json.gz].",
)
def timeline(folder: Path, variant: str | None, seed: int | None, out: Path | None) -> None:
    """Write the timeline of a run in DIR as a trace, for https://ui.perfetto.dev or chrome://tracing."""
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.analysis import study
    from wattkeeper.scenarios.timeline.perfetto import write_trace
    from wattkeeper.scenarios.timeline.run_tables import select_run

    saved = study.read(folder)
    name, number = select_run(saved, variant, seed)
    path = out or folder / "timeline.json.gz"
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is no folder: name another file (--out)")
    written = write_trace(saved, name, number, path)
    terminal.write(
        f"{name}, seed {number}: {written.jobs:,} jobs, {written.slices:,} slices, "
        f"{written.decisions:,} decisions; open it at https://ui.perfetto.dev or chrome://tracing"
    )
    terminal.write(f"Timeline: {path}")
