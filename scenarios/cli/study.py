"""The command `wattkeeper study`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.import_options import import_options, print_import
from wattkeeper.scenarios.cli.options import FILE, PATH
from wattkeeper.scenarios.log_study.schedulers import SCHEDULERS

if TYPE_CHECKING:
    from wattkeeper.traces.readers.base import ImportOptions


@click.command()
@click.argument("form", metavar="FORMAT")
@click.argument("paths", metavar="LOG...", nargs=-1, required=True, type=PATH)
@click.option("--nodes", required=True, type=FILE, help="YAML file that describes the nodes.")
@click.option("--out", required=True, type=PATH, help="Folder of the study.")
@click.option("--price", metavar="X|FILE", help="Price of a kWh: a number, or a file of prices.")
@click.option("--currency", metavar="C", help="Currency of the price, as EUR.")
@click.option("--carbon", metavar="X|FILE", help="Emissions of a kWh, g: a number, or a file.")
@import_options
@click.option("--workers", type=click.IntRange(1), default=2, help="Processes to run in [2].")
@click.option(
    "--baseline", type=click.Choice(SCHEDULERS), help="Scheduler to compare with [the closest]."
)
@click.option(
    "--pause", "pauses", metavar="HOURS", multiple=True, help="Hours without jobs, as 22:00-06:00."
)
@click.option("--place", "places", metavar="POLICY", multiple=True, help="Placement to compare.")
@click.option(
    "--quota",
    "quotas",
    metavar="QUEUE=GPUS|FILE",
    multiple=True,
    help="Most GPUs of a queue, or a file of limits.",
)
@click.option("--replace", is_flag=True, help="Replace a finished study.")
def study(
    form: str,
    paths: tuple[Path, ...],
    nodes: Path,
    out: Path,
    price: str | None,
    currency: str | None,
    carbon: str | None,
    options: ImportOptions,
    skip_bad: bool,
    workers: int,
    baseline: str | None,
    pauses: tuple[str, ...],
    places: tuple[str, ...],
    quotas: tuple[str, ...],
    replace: bool,
) -> None:
    """Study a cluster from its LOG of format FORMAT: what would save energy, money and CO2.

    Imports the log into --out, writes scenario.yaml there, which can be edited and run again,
    compares schedulers, power limits and sleeping nodes, and ends in the page results/report.html.

    Not simulated: network, placement and contention for CPUs, memory or disks never change the
    speed of a job, nor does heat. Users submit as they did, however long they wait; priorities and
    reservations are unknown. Pods that serve hold their GPUs, whatever their requests. Energy is
    that of GPUs, times the PUE of the nodes file.
    """
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.log_study import study as log_study
    from wattkeeper.scenarios.log_study.asked import read_asked
    from wattkeeper.scenarios.log_study.electricity import RateOptions, at_place, read_electricity
    from wattkeeper.scenarios.log_study.nodes import read_nodes
    from wattkeeper.scenarios.log_study.scenario_text import StudyPlan
    from wattkeeper.traces.library import store

    log_study.check_free(out, replace=replace)
    asked = read_asked(pauses, places, quotas)
    cluster = read_nodes(nodes)
    options_of_rates = RateOptions(price, currency, carbon)
    rates = read_electricity(options_of_rates, cluster, nodes.parent)
    folder = out.absolute() / log_study.TRACE
    place = None
    if options.zone not in (None, rates.zone) and rates.zone is not None:
        text = f"{options.zone}, and the file of nodes says {rates.zone}: leave one of them out"
        raise InputError([Problem(text, "--zone"), Problem(rates.zone, rates.places["zone"])])
    if options.zone is None and rates.zone is not None:
        options, place = options._replace(zone=rates.zone), rates.places["zone"]
    with at_place(place):
        added = store.add(
            form, paths, replace=True, options=options, skip_bad=skip_bad, folder=folder
        )
    if added.kind != "jobs":
        raise InputError(f"{form} holds {added.kind}; a study needs a log of jobs")
    print_import(added, str(added.folder))
    plan = StudyPlan(added.name, f"./{log_study.TRACE}", cluster, rates, baseline=baseline or "")
    with terminal.trainings(added.name, live=False) as (progress, _):
        reporter = log_study.Reporter(terminal.write, progress)
        ended = log_study.study_log(plan, out, workers, reporter, asked, options.zone)
    from wattkeeper.scenarios.cli.tables.document import print_document
    from wattkeeper.scenarios.document.study import describe_study

    print_document(terminal.console(), describe_study(ended.done, with_charts=False))
    terminal.write(f"\nScenario: {out / log_study.SCENARIO}")
    terminal.write(f"Page: {ended.folder / 'report.html'}")
