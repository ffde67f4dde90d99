"""The command `wattkeeper compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattkeeper.scenarios.cli import terminal

if TYPE_CHECKING:
    from wattkeeper.scenarios.analysis.compare import ComparedFolder


@click.command()
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True,
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(folders: tuple[Path, ...], as_json: bool) -> None:
    """Compare results folders with the first of them, metric by metric, paired by seed.

    Of two folders of which one was run live and the other simulated, what was measured is compared
    with what was predicted, attempt by attempt. That results differ is no failure.
    """
    if len(folders) < 2:
        raise click.UsageError("give two results folders or more")
    from wattkeeper.traces.arrow import configure_arrow

    configure_arrow()
    from wattkeeper.scenarios.analysis import compare as studies
    from wattkeeper.sim.results.folder import to_json

    results = [studies.read(folder) for folder in folders]
    live = _twins(results)
    if live is not None:
        from wattkeeper.scenarios.analysis import sim_vs_live
        from wattkeeper.scenarios.cli.tables import sim_vs_live as table

        measured, predicted = sim_vs_live.read(folders[live]), sim_vs_live.read(folders[1 - live])
        found = sim_vs_live.compare(measured, predicted)
        show = table.show
    else:
        from wattkeeper.scenarios.cli.tables import compare as metrics_table

        found = studies.compare(results[0], results[1:])
        show = metrics_table.show
    if as_json:
        click.echo(to_json(found), nl=False)
    else:
        show(terminal.console(), found)


def _twins(results: list[ComparedFolder]) -> int | None:
    """Which of two folders was run live, if the other one was simulated."""
    if any(one.is_sweep for one in results):
        return None
    backends = [study.manifest.get("backend") for one in results for study in one.points.values()]
    return backends.index("live") if sorted(map(str, backends)) == ["live", "sim"] else None
