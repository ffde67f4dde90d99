"""The commands `wattkeeper traces generate ...` and `wattkeeper traces fit`.

Only what a command needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from pathlib import Path
from typing import Any

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_traces
from wattkeeper.scenarios.cli.options import GPUS, PATH, number_type

_FACTOR = "a number > 0 without unit, times"
_JOBS = number_type("a whole number of jobs >= 1", lambda n: n >= 1, whole=True)
_NODES = number_type("a whole number from 1 to 100000", lambda n: 1 <= n <= 1e5, whole=True)
_DAYS = number_type("a number of days > 0, at most 36500", lambda n: 0 < n <= 36500)
_SHAPE = number_type("a number from 0.2 to 1", lambda n: 0.2 <= n <= 1)
_AWAY = number_type("a time in s > 0, at most 1e9", lambda n: 0 < n <= 1e9)
_SEED = number_type("a whole number >= 0", lambda n: n >= 0, whole=True)
_RATE = number_type(f"{_FACTOR} the fit's arrival rate", lambda n: n > 0)
_LOAD = number_type(
    "a number > 0, at most 10, times the cluster's GPU time (90 % is 0.9)", lambda n: 0 < n <= 10
)


@click.group("generate")
def generate() -> None:
    """Generate traces, marked as synthetic."""


@generate.command("profiles")
@click.option("--name", default="synthetic", help="Name in the library [synthetic].")
@click.option("--seed", type=_SEED, default=1, help="Seed of the noise [1].")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
def generate_profiles(name: str, seed: int, replace: bool) -> None:
    """Generate profiles of GPUs and workloads."""
    from wattkeeper.traces.generate.synthetic import generate as generate_trace
    from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles

    _save(generate_trace(SyntheticProfiles(seed=seed), name), replace)


@generate.command("jobs")
@click.option("--name", default="synthetic-jobs", help="Name in the library [synthetic-jobs].")
@click.option("--fit", default="philly", help="A shipped fit or a file of one [philly].")
@click.option("--jobs", type=_JOBS, default=100_000, help="Number of jobs [100000].")
@click.option("--seed", type=_SEED, default=1, help="Seed of the generator [1].")
@click.option("--rate-scale", type=_RATE, help="Factor on the fit's arrival rate [1].")
@click.option("--load", type=_LOAD, help="Or: requested share of the cluster, on average.")
@click.option("--gpus", type=GPUS, help="GPUs of that cluster.")
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
    from wattkeeper.traces.generate.sample import rate_for_load, sample

    if (load is None) != (gpus is None) or (load is not None and rate_scale is not None):
        raise click.UsageError("give --load with --gpus, or --rate-scale alone, or none of them")
    shape = load_fit(fit)
    if load is not None and gpus is not None:
        rate_scale = rate_for_load(shape, load, gpus)
    scale = 1.0 if rate_scale is None else rate_scale
    _save(sample(shape, name, jobs, seed, scale, fit), replace)


def parse_loss_rate(text: str) -> float | str:
    """A rate of losses, or the name of a published one."""
    from wattkeeper.traces.generate.node_events import RATES

    if text in RATES:
        return text
    names = ", ".join(RATES)
    return number_type(
        f"a number of losses > 0, at most 1e7, or one of {names}", lambda n: 0 < n <= 1e7
    )(text)


@generate.command("node-events")
@click.option("--name", default="synthetic-losses", help="Name in the library [synthetic-losses].")
@click.option(
    "--rate",
    type=parse_loss_rate,
    metavar="RATE",
    default="rsc-1",
    help="Losses per 1,000 node-days, or a name [rsc-1].",
)
@click.option("--shape", type=_SHAPE, default=1.0, help="Weibull shape, 0.2 to 1 [1: exponential].")
@click.option("--away-s", type=_AWAY, default=3600.0, help="Median time to the return, s [3600].")
@click.option("--nodes", type=_NODES, default=64, help="Number of nodes [64].")
@click.option("--days", type=_DAYS, default=30.0, help="Length, days [30].")
@click.option("--seed", type=_SEED, default=1, help="Seed of the generator [1].")
@click.option("--replace", is_flag=True, help="Replace a trace of that name.")
def generate_node_events(
    name: str,
    rate: float | str,
    shape: float,
    away_s: float,
    nodes: int,
    days: float,
    seed: int,
    replace: bool,
) -> None:
    """Generate nodes that go down and come back.

    Names of rates: llama3, rsc-1, rsc-2. Losses of several nodes and notices are drawn by
    scenarios (cluster.losses.events).
    """
    from wattkeeper.traces.generate.node_events import DrawnLosses
    from wattkeeper.traces.generate.node_events import generate as generate_trace

    losses = DrawnLosses.model_validate({"rate": rate, "shape": shape, "away_s": away_s})
    _save(generate_trace(losses, nodes, days, name, seed), replace)


@click.command("fit")
@click.argument("trace", shell_complete=complete_traces)
@click.option("--out", required=True, type=PATH, help="File to write.")
@click.option("--compare", type=PATH, help="Folder for a comparison.")
@click.option("--seed", type=_SEED, default=1, help="Seed of the compared sample [1].")
def fit_jobs(trace: str, out: Path, compare: Path | None, seed: int) -> None:
    """Fit the jobs of TRACE, a name or a path, for `generate jobs --fit`.

    With --compare, as many jobs are sampled from the fit and compared with the trace: numbers in
    comparison.json, a picture in comparison.png; the picture needs matplotlib.
    """
    from wattkeeper.traces.fits import to_json
    from wattkeeper.traces.generate.fit import fit_trace
    from wattkeeper.traces.library import store

    source = store.find(trace)
    fit = fit_trace(source)
    out.write_text(to_json(fit), encoding="utf-8")
    terminal.write(f"{fit.jobs} jobs, {len(fit.demands)} GPU demands: {out}")
    for text in fit.absent:
        terminal.write(f"Absent: {text}")
    if compare is not None:
        from wattkeeper.traces.generate.plot_fit import save_comparison
        from wattkeeper.traces.generate.sample import sample

        sampled = sample(fit, f"sample-of-{source.name}"[:100], fit.jobs, seed)
        save_comparison(source, sampled, compare)
        terminal.write(f"Comparison: {compare}")


def _save(trace: Any, replace: bool) -> None:
    from wattkeeper.traces.library import store

    folder = store.save(trace, replace=replace)
    for name, table in trace.tables.items():
        terminal.write(f"{table.num_rows:8} {name}")
    for note in trace.notes:
        terminal.write(f"Note: {note}")
    terminal.write(f"{trace.name} ({trace.kind}, {trace.origin}): {folder}")
