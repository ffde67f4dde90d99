"""The command `wattkeeper run`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_scenarios, complete_settings
from wattkeeper.scenarios.cli.options import PATH, output_options

if TYPE_CHECKING:
    from wattkeeper.policies.json_types import Json
    from wattkeeper.scenarios.spec.loading import LoadedScenario

FAILED: Final = 1

settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    shell_complete=complete_settings,
    metavar="PATH.TO.KEY=VALUE",
    help="Change a value of the scenario; may be repeated.",
)

axes_option = click.option(
    "--sweep",
    "axes",
    multiple=True,
    shell_complete=complete_settings,
    metavar="PATH.TO.KEY=VALUE,VALUE,...",
    help="Run at each of these values, instead of the scenario's sweep; with several, each "
    "with each. Values are YAML, with a comma between them.",
)

policies_option = click.option(
    "--policy",
    "policy_files",
    multiple=True,
    metavar="FILE.py",
    help="A file with policies that the scenario can name; may be repeated.",
)


@click.command()
@click.argument("scenario", shell_complete=complete_scenarios)
@click.option("--out", type=PATH, help="Folder to replace [results/NAME].")
@click.option("--seeds", metavar="N|A..B", help="Seeds 1 to N, or A to B.")
@settings_option
@click.option("--workers", type=click.IntRange(1), default=1, help="Processes to run in [1].")
@click.option("--live", is_flag=True, help="Train for real, or rehearse; resume if interrupted.")
@click.option("--ray", metavar="ADDRESS", help="Run on the hosts of a Ray cluster.")
@click.option("--check", is_flag=True, help="Check laws of conservation in all results.")
@axes_option
@policies_option
@output_options("the summary")
def run(
    scenario: str,
    out: Path | None,
    seeds: str | None,
    settings: tuple[str, ...],
    workers: int,
    live: bool,
    ray: str | None,
    check: bool,
    axes: tuple[str, ...],
    policy_files: tuple[str, ...],
    form: str | None,
) -> None:
    """Run SCENARIO, a shipped one's name or a file, and compare its variants."""
    if live and workers > 1:
        raise click.UsageError("--workers is for the simulator: leave it out with --live")
    if ray is not None and workers > 1:
        raise click.UsageError("--workers is for this machine: leave it out with --ray")
    if live and check:
        raise click.UsageError("--check is for the simulator: leave it out with --live")
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.run.run import run as run_scenario
    from wattkeeper.scenarios.spec.loading import describe_overridden, load
    from wattkeeper.sim.cluster_results.schemas import CLUSTER
    from wattkeeper.sim.results.folder import check_folder, work_folder
    from wattkeeper.traces.files.atomic import resolve, scratch_folder

    numbers = None if seeds is None else _parse_seeds(seeds)
    loaded = load(scenario, settings, numbers, axes, policy_files)
    folder = out or Path("results") / loaded.scenario.name
    check_folder(folder, CLUSTER, sweep=loaded.scenario.sweep is not None)
    if loaded.scenario.sweep is not None:
        if live:
            raise click.UsageError(
                "a sweep is simulated: leave out --live, or the sweep (--set sweep=null)"
            )
        if check:
            raise click.UsageError(
                "--check is for single scenarios: leave it out, or the sweep (--set sweep=null)"
            )
        _run_sweep(loaded, folder, workers, ray, form)
        return
    live_folder = work_folder(folder, "live") if live else None
    trainings = work_folder(folder, "trainings")
    tell = partial(terminal.write, err=True)
    for line in describe_overridden(loaded.document):
        tell(line)
    with scratch_folder(resolve(folder)) as scratch:
        with terminal.trainings(loaded.scenario.name, live=live) as (progress, watch):
            done = run_scenario(
                loaded,
                workers,
                progress,
                trainings,
                live_folder,
                ray,
                tell,
                watch,
                (),
                scratch,
                check,
            )
        done.save(folder)
        if live_folder is not None:
            from wattkeeper.scenarios.run.live_folder import mark_done

            mark_done(live_folder)
        if form is not None:
            terminal.write(_format_summary(done.summary, form), end="")
            return
        from wattkeeper.scenarios.cli.tables.document import print_document
        from wattkeeper.scenarios.document.study import describe_study

        print_document(terminal.console(), describe_study(done, with_charts=False))
    terminal.write_results(folder)


def _format_summary(summary: Json, form: str) -> str:
    from wattkeeper.scenarios.notebook.flat_rows import summary_rows, to_csv
    from wattkeeper.sim.results.folder import to_json

    return to_csv(summary_rows(summary)) if form == "csv" else to_json(summary)


def _run_sweep(
    loaded: LoadedScenario, folder: Path, workers: int, ray: str | None, form: str | None
) -> None:
    from wattkeeper.scenarios.cli.tables.document import print_document
    from wattkeeper.scenarios.notebook.flat_rows import sweep_content, sweep_rows, to_csv
    from wattkeeper.scenarios.sweep.points import describe_overridden_axes, expand_sweep
    from wattkeeper.scenarios.sweep.run import run_sweep
    from wattkeeper.sim.results.folder import to_json

    tell = partial(terminal.write, err=True)
    points = expand_sweep(loaded)
    for line in describe_overridden_axes(points):
        tell(line)
    with terminal.progress(loaded.scenario.name) as progress:
        finished, failures = run_sweep(points, folder, workers, ray, progress, tell)
    if form == "json":
        terminal.write(to_json(sweep_content(folder)), end="")
    elif form == "csv":
        terminal.write(to_csv(sweep_rows(folder)), end="")
    else:
        print_document(terminal.console(), finished)
        terminal.write_results(folder)
    for line in failures:
        tell(line)
    if failures:
        tell("The same command tries the failed runs again, and keeps the others.")
        click.get_current_context().exit(FAILED)


def _parse_seeds(text: str) -> range:
    from wattkeeper.scenarios.spec.schema import MAX_SEEDS

    match = re.fullmatch(r"(?:([0-9]{1,9})\.\.)?([0-9]{1,9})", text)
    if match:
        seeds = range(int(match[1] or 1), int(match[2]) + 1)
        if 0 < len(seeds) <= MAX_SEEDS:
            return seeds
    allowed = f"allowed: N (1 to N) or A..B, at most {MAX_SEEDS} seeds"
    raise click.BadParameter(f"found {text!r}; {allowed}", param_hint="--seeds")
