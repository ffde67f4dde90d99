"""The command `wattkeeper`.

Only what a subcommand needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.scenarios import terminal
from wattkeeper.scenarios.bench_cli import bench
from wattkeeper.scenarios.compare_cli import compare
from wattkeeper.scenarios.record_cli import record
from wattkeeper.scenarios.report_cli import report
from wattkeeper.scenarios.timeline_cli import timeline
from wattkeeper.scenarios.zoo_cli import zoo

if TYPE_CHECKING:
    from wattkeeper.scenarios.loading import Loaded

FAILED = 1
INTERRUPTED = 130
LACKING = 3
CLOSED_PIPE = 141
MAX_SEEDS = 10_000


class Group(click.Group):
    """Turns what wattkeeper raises on purpose into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except WattkeeperError as error:
            _fail(ctx, str(error), error.exit_code)
        except KeyboardInterrupt:
            _fail(ctx, "interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader has seen enough, as with `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(CLOSED_PIPE)
        except OSError as error:
            _fail(ctx, f"{error.filename or 'system'}: {error.strerror or error}", LACKING)


def _fail(ctx: click.Context, message: str, code: int) -> None:
    click.echo(message, err=True)
    ctx.exit(code)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wattkeeper")
def main() -> None:
    """Replay deep-learning jobs on a simulated cluster, and compare what policies make of them."""


def _overrides(command: Callable[..., None]) -> Callable[..., None]:
    option = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH.TO.KEY=VALUE",
        help="Change a value of the scenario; may be repeated.",
    )
    return option(command)


def _axes(command: Callable[..., None]) -> Callable[..., None]:
    option = click.option(
        "--sweep",
        "axes",
        multiple=True,
        metavar="PATH.TO.KEY=VALUE,VALUE,...",
        help="Run at each of these values, instead of the scenario's sweep; with several, each "
        "with each. Values are YAML, with a comma between them.",
    )
    return option(command)


@main.command()
@click.argument("scenario")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder to replace [results/NAME].",
)
@click.option("--seeds", metavar="N|A..B", help="Seeds 1 to N, or A to B.")
@_overrides
@click.option("--workers", type=click.IntRange(1), default=1, help="Processes to run in [1].")
@click.option("--live", is_flag=True, help="Train for real, or rehearse; go on if interrupted.")
@click.option("--ray", metavar="ADDRESS", help="Run on the hosts of a Ray cluster.")
@_axes
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(
    scenario: str,
    out: Path | None,
    seeds: str | None,
    settings: tuple[str, ...],
    workers: int,
    live: bool,
    ray: str | None,
    axes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run SCENARIO, a shipped one's name or a file, and compare its variants."""
    if live and workers > 1:
        raise click.UsageError("--workers is for the simulator: leave it out with --live")
    if ray is not None and workers > 1:
        raise click.UsageError("--workers is for this machine: leave it out with --ray")
    from wattkeeper.scenarios.arrow import settle

    settle()
    from wattkeeper.scenarios.loading import load
    from wattkeeper.scenarios.run import run as run_scenario
    from wattkeeper.scenarios.searches import trainings_folder
    from wattkeeper.sim.results import check_folder, to_json

    loaded = load(scenario, settings, None if seeds is None else _seeds(seeds), axes)
    folder = out or Path("results") / loaded.scenario.name
    check_folder(folder)
    _check_kind(folder, sweep=loaded.scenario.sweep is not None)
    if loaded.scenario.sweep is not None:
        if live:
            raise click.UsageError(
                "a sweep is simulated: leave out --live, or the sweep (--set sweep=null)"
            )
        _run_sweep(loaded, folder, workers, ray, as_json)
        return
    kept = _live_folder(folder) if live else None
    with terminal.trainings(loaded.scenario.name, live=live) as (progress, watch):
        tell = partial(click.echo, err=True)
        done = run_scenario(
            loaded, workers, progress, trainings_folder(folder), kept, ray, tell, watch
        )
    done.save(folder)
    if kept is not None:
        from wattkeeper.scenarios.live import finish

        finish(kept)
    if as_json:
        click.echo(to_json(done.summary), nl=False)
        return
    from wattkeeper.scenarios.table import show

    show(terminal.console(), loaded.scenario, done)
    click.echo(f"\nResults: {folder}")


def _check_kind(folder: Path, *, sweep: bool) -> None:
    """Let no run take the place of a sweep, nor the other way round."""
    there = (folder / "sweep.json").is_file()
    if (there or (folder / "manifest.json").is_file()) and there != sweep:
        kinds = ("a sweep", "a run")
        raise click.UsageError(
            f"{folder} holds the results of {kinds[sweep]}: name another folder (--out)"
        )


def _run_sweep(loaded: Loaded, folder: Path, workers: int, ray: str | None, as_json: bool) -> None:
    from wattkeeper.scenarios import sweep_table
    from wattkeeper.scenarios.sweep import points
    from wattkeeper.scenarios.sweep_run import run_sweep
    from wattkeeper.sim.results import to_json

    tell = partial(click.echo, err=True)
    with terminal.progress(loaded.scenario.name) as progress:
        failures = run_sweep(points(loaded), folder, workers, ray, progress, tell)
    if as_json:
        click.echo(to_json(sweep_table.content(folder)), nl=False)
    else:
        sweep_table.show(terminal.console(), folder)
        click.echo(f"\nResults: {folder}")
    for line in failures:
        tell(line)
    if failures:
        tell("The same command tries the failed runs again, and keeps the others.")
        click.get_current_context().exit(FAILED)


def _live_folder(results: Path) -> Path:
    from wattkeeper.scenarios.live import live_folder

    return live_folder(results)


def _seeds(text: str) -> range:
    found = re.fullmatch(r"(?:([0-9]{1,9})\.\.)?([0-9]{1,9})", text)
    if found:
        seeds = range(int(found[1] or 1), int(found[2]) + 1)
        if 0 < len(seeds) <= MAX_SEEDS:
            return seeds
    allowed = f"allowed: N (1 to N) or A..B, at most {MAX_SEEDS} seeds"
    raise click.BadParameter(f"found {text!r}; {allowed}", param_hint="--seeds")


@main.command()
@click.argument("scenario")
@_overrides
@_axes
def validate(scenario: str, settings: tuple[str, ...], axes: tuple[str, ...]) -> None:
    """Check SCENARIO and the traces that it names, without running it."""
    from wattkeeper.scenarios.assemble import read_inputs, run_specs
    from wattkeeper.scenarios.check import check_policies
    from wattkeeper.scenarios.loading import load
    from wattkeeper.scenarios.usable import left_out, ran_on_any

    loaded = load(scenario, settings, axes=axes)
    if loaded.scenario.sweep is not None:
        _validate_sweep(loaded)
        return
    simulated = getattr(loaded.scenario.workload, "profiles", None) is not None
    inputs = read_inputs(loaded, live=loaded.scenario.live is not None and not simulated)
    check_policies(loaded, inputs)
    for line in (*left_out(inputs.dropped), *ran_on_any(inputs.ignored)):
        click.echo(line)
    runs, variants = len(run_specs(loaded.scenario)), len(loaded.scenario.variants)
    click.echo(
        f"{loaded.document.name}: good; {variants} variant{'s' * (variants != 1)}, "
        f"{runs} run{'s' * (runs != 1)}"
    )


def _validate_sweep(loaded: Loaded) -> None:
    from wattkeeper.scenarios.sweep import points, with_inputs

    found = points(loaded)
    for _ in with_inputs(found):
        pass
    scenario, document = loaded
    runs = len(found) * len(scenario.variants) * len(scenario.all_seeds)
    click.echo(
        f"{document.name}: good; {len(found)} points, {len(scenario.variants)} variants, "
        f"{runs} runs"
    )


@main.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def scenarios(name: str | None, as_json: bool) -> None:
    """List the shipped scenarios, or print the file of the one called NAME."""
    from wattkeeper.scenarios.loading import find, load, shipped

    if name is not None:
        click.echo(find(name).read_text(encoding="utf-8"), nl=False)
        return
    known = {name: load(name).scenario.question for name in shipped()}
    if as_json:
        click.echo(json.dumps(known, indent=2))
        return
    width = max(map(len, known))
    for each, question in known.items():
        click.echo(f"{each:{width}}  {question}")


@main.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    from wattkeeper.scenarios.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


def _number(
    what: str, allowed: Callable[[float], bool], *, whole: bool = False
) -> Callable[[str], float]:
    """A reader of an option's number; its message says what the number must be."""

    def number(text: str) -> float:
        try:
            found = int(text) if whole else float(text)
            if math.isfinite(found) and allowed(found):
                return found
        except ValueError:
            pass
        raise click.BadParameter(f"found {str(text)!r}; must be {what}")

    return number


_FACTOR = "a number > 0 without unit, times"
_ETA = _number(
    "a number from 0 to 1 without unit, the weight of energy against time", lambda n: 0 <= n <= 1
)
_GPUS = _number("a whole number of GPUs >= 1", lambda n: n >= 1, whole=True)
_JOBS = _number("a whole number of jobs >= 1", lambda n: n >= 1, whole=True)
_SEED = _number("a whole number >= 0", lambda n: n >= 0, whole=True)
_RATE = _number(f"{_FACTOR} the fit's arrival rate", lambda n: n > 0)
_LOAD = _number(f"{_FACTOR} the cluster's GPU time (0.8 is 80 %)", lambda n: n > 0)


@main.group()
def traces() -> None:
    """Import, list and describe traces and profiles."""


@traces.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_traces(as_json: bool) -> None:
    """List the traces of the library."""
    from wattkeeper.traces import library

    rows = [_listed(name) for name in library.names()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo(f"No traces in {library.root()}; import one: wattkeeper traces import --help")
        return
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
        click.echo("  ".join(shown).rstrip())
    for row in rows:
        if "broken" in row:
            click.echo(f"broken: {row['broken']}")


def _listed(name: str) -> dict[str, Any]:
    """A row of the list; a broken trace is listed as such."""
    from wattkeeper.traces import library

    try:
        trace = library.find(name)
    except WattkeeperError as error:
        return {"name": name, "broken": str(error)}
    return {
        "name": name,
        "kind": trace.kind,
        "origin": trace.origin,
        "format": trace.format,
        **library.sizes(trace),
    }


@traces.command()
@click.argument("name")
@click.option("--gpu", help="Only this GPU type.")
@click.option("--eta", type=_ETA, default=0.5, help="Of the savings shown [0.5].")
@click.option("--gpus", type=_GPUS, help="Hold jobs against a cluster of so many GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def describe(name: str, gpu: str | None, eta: float, gpus: int | None, as_json: bool) -> None:
    """Show what the trace NAME (or a path) covers, what is odd in it, and what could be saved."""
    from wattkeeper.traces import library
    from wattkeeper.traces.describe import describe as describe_trace
    from wattkeeper.traces.describe import render

    report = describe_trace(library.find(name), gpu_type=gpu, eta=eta, gpus=gpus)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        render(report, terminal.console())


class _Import(click.Command):
    """Its help ends with the formats that there are."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the registry."""
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
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--name", help="Its name in the library; by default the format says it.")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="CANONICAL=COLUMN",
    help="For csv: a column of the file; may be repeated.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out malformed rows, and count them.")
def import_(
    form: str,
    paths: tuple[Path, ...],
    name: str | None,
    replace: bool,
    maps: tuple[str, ...],
    skip_bad: bool,
) -> None:
    """Read PATH... as FORMAT into the trace library; auto is the format that recognises them."""
    from wattkeeper.traces import library

    mapping = _mapping(maps)
    added = library.add(form, paths, name, replace=replace, mapping=mapping, skip_bad=skip_bad)
    for table, rows in added.rows.items():
        click.echo(f"{rows:8} {table}")
    for line in library.counted(added.quality):
        click.echo(line)
    for note in added.notes:
        click.echo(f"Note: {note}")
    if warning := library.much_left_out(added.quality):
        click.echo(warning, err=True)
    click.echo(f"{added.name} ({added.kind}, {added.origin}): {added.folder}")


def _mapping(maps: tuple[str, ...]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for text in maps:
        canonical, _, column = text.partition("=")
        if not canonical or not column:
            reason = f"found {text!r}; allowed: CANONICAL=COLUMN"
            raise click.BadParameter(reason, param_hint="--map")
        if canonical in mapping:
            raise click.BadParameter(f"{canonical} is mapped twice", param_hint="--map")
        mapping[canonical] = column
    return mapping


@traces.group()
def generate() -> None:
    """Generate traces that nobody recorded, marked as synthetic."""


@generate.command("profiles")
@click.option("--name", default="synthetic", help="Its name in the library [synthetic].")
@click.option("--seed", type=_SEED, default=1, help="Seed of the noise [1].")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
def generate_profiles(name: str, seed: int, replace: bool) -> None:
    """Generate profiles of GPUs and workloads."""
    from wattkeeper.traces.synthetic import generate as generate_trace
    from wattkeeper.traces.synthetic_specs import SyntheticProfiles

    _save(generate_trace(SyntheticProfiles(seed=seed), name), replace)


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
    """Download the well-known trace NAME and import it; without NAME, list those that there are."""
    from wattkeeper.traces.well_known import listing

    if known is None:
        if name or replace or url or sha256 or skip_bad:
            raise click.UsageError("these options need the NAME of a well-known trace")
        click.echo("\n".join(listing()))
        return
    from wattkeeper.traces.fetch import fetch as fetch_trace
    from wattkeeper.traces.library import much_left_out

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
        click.echo(f"{file}: sha256 {digest} ({verdict})")
    for text in done.changed:
        click.echo(f"Note: {text}")
    for table, rows in done.added.rows.items():
        click.echo(f"{rows:8} {table}")
    if warning := much_left_out(done.added.quality):
        click.echo(warning, err=True)
    click.echo(f"{done.added.name} ({done.added.kind}, {done.added.origin}): {done.added.folder}")


@contextmanager
def _download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar over bytes on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield update


@generate.command("jobs")
@click.option("--name", default="synthetic-jobs", help="Its name in the library [synthetic-jobs].")
@click.option("--fit", default="philly", help="A shipped fit or a file of one [philly].")
@click.option("--jobs", type=_JOBS, default=100_000, help="How many [100000].")
@click.option("--seed", type=_SEED, default=1, help="Seed of all of it [1].")
@click.option("--rate-scale", type=_RATE, help="Times the fit's arrival rate [1].")
@click.option("--load", type=_LOAD, help="Or: share of the cluster that jobs ask for on average.")
@click.option("--gpus", type=_GPUS, help="GPUs of that cluster.")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
def generate_jobs(
    name: str,
    fit: str,
    jobs: int,
    seed: int,
    rate_scale: float | None,
    load: float | None,
    gpus: int | None,
    replace: bool,
) -> None:
    """Generate jobs with the shape of a fit: arrivals, GPU demands, run times, users, groups."""
    from wattkeeper.traces.fits import load_fit
    from wattkeeper.traces.sample import rate_for_load, sample

    if (load is None) != (gpus is None) or (load is not None and rate_scale is not None):
        raise click.UsageError("give --load with --gpus, or --rate-scale alone, or none of them")
    shape = load_fit(fit)
    if load is not None and gpus is not None:
        rate_scale = rate_for_load(shape, load, gpus)
    scale = 1.0 if rate_scale is None else rate_scale
    _save(sample(shape, name, jobs, seed, scale, fit), replace)


@traces.command("fit")
@click.argument("trace")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="File to write.")
@click.option("--compare", type=click.Path(path_type=Path), help="Folder for a comparison.")
@click.option("--seed", type=_SEED, default=1, help="Seed of the compared sample [1].")
def fit_jobs(trace: str, out: Path, compare: Path | None, seed: int) -> None:
    """Fit the jobs of TRACE, a name or a path, for `generate jobs --fit`.

    With --compare, as many jobs are sampled from the fit and compared with the trace: numbers in
    comparison.json, a picture in comparison.png; the picture needs matplotlib.
    """
    from wattkeeper.traces import library
    from wattkeeper.traces.fit import fit_trace
    from wattkeeper.traces.fits import to_json

    found = library.find(trace)
    fit = fit_trace(found)
    out.write_text(to_json(fit), encoding="utf-8")
    click.echo(f"{fit.jobs} jobs, {len(fit.demands)} GPU demands: {out}")
    for text in fit.absent:
        click.echo(f"Absent: {text}")
    if compare is not None:
        from wattkeeper.traces.plot_fit import save_comparison
        from wattkeeper.traces.sample import sample

        sampled = sample(fit, f"sample-of-{found.name}"[:100], fit.jobs, seed)
        save_comparison(found, sampled, compare)
        click.echo(f"Comparison: {compare}")


def _save(trace: Any, replace: bool) -> None:
    from wattkeeper.traces import library

    folder = library.save(trace, replace=replace)
    for name, table in trace.tables.items():
        click.echo(f"{table.num_rows:8} {name}")
    for note in trace.notes:
        click.echo(f"Note: {note}")
    click.echo(f"{trace.name} ({trace.kind}, {trace.origin}): {folder}")


@main.command()
@click.option("--look-only", is_flag=True, help="Do not try whether power limits may be set.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(look_only: bool, as_json: bool) -> None:
    """Show what live runs can use here, what they may do, and what to do about the rest.

    Power limits that killed runs left behind are put back, unless --look-only is given. Exit code
    3: something here makes a live run fail.
    """
    from wattkeeper.scenarios.doctor import examine, lines

    report = examine(look_only=look_only)
    if as_json:
        findings = [finding._asdict() for finding in report.findings]
        can = report.can_run_live
        whole = {"can_run_live": can, "findings": findings, "devices": report.devices}
        click.echo(json.dumps(whole, indent=2))
    else:
        click.echo("\n".join(lines(report)))
    if not report.can_run_live:
        raise click.exceptions.Exit(LACKING)


main.add_command(bench)
main.add_command(compare)
main.add_command(record)
main.add_command(report)
main.add_command(timeline)
main.add_command(zoo)
