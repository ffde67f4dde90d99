"""Terminal tables of a run: comparison of variants, workloads and savings."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.printable import printable
from wattkeeper.scenarios.analysis.consumption import (
    DIGITS,
    UNCHANGED,
    currency,
    describe_window,
    describe_year,
    format_amount,
    known_rates,
)
from wattkeeper.scenarios.analysis.learning.league import League, league_table
from wattkeeper.scenarios.analysis.learning.window import read_learning_window
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels, savings_note
from wattkeeper.scenarios.analysis.texts.losses import describe_losses
from wattkeeper.scenarios.analysis.times.deadlines import (
    HEADS,
    deadline_notes,
    deadline_rows,
    deadline_title,
)
from wattkeeper.scenarios.analysis.vocabulary import (
    SHARES,
    cautions,
    describe_profiles,
    format_value,
    is_elastic,
    knows_energy,
    label_variants,
    notes,
    own_baselines,
    shown_metrics,
)
from wattkeeper.scenarios.cli.tables.fitting import print_whole
from wattkeeper.scenarios.run.run import ScenarioResult
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.cluster_results.accounting import ENERGY, year_name
from wattkeeper.traces.describe.text import print_table

MOST_ABREAST: Final = 6
"""Variants that a terminal has room for side by side; more workloads have none, either."""

NOISE = "~"

NOISE_NOTE = f"{NOISE} only noise: the 95 % interval over seeds includes 0 %."


def print_league(console: Console, leagues: Sequence[tuple[str, League]]) -> None:
    """Print the regrets of bandits, a row for each of them in each block."""
    names, blocks, note = league_table(leagues)
    for block in blocks:
        title = f"Regret over that of {leagues[0][1]['against']}: {block.title}"
        rows = [[name, *(figure.cells[name] for figure in block.figures)] for name in names]
        heads = ["variant", *(figure.head for figure in block.figures)]
        print_table(console, title, heads, rows)
    console.print(note, style="dim")


def print_results(console: Console, scenario: Scenario, done: ScenarioResult) -> None:
    """Print the question, the comparison of variants, and the changes by workload."""
    print_heading(console, scenario.name, scenario.question)
    for line in describe_profiles(done.manifest):
        console.print(line, style="bold yellow")
    print_inputs(console, done.manifest["inputs"])
    for line in cautions(done.manifest, done.summary):
        console.print(line, style="bold yellow")
    if "saved" in done.summary:
        print_whole(console, _savings_table(done.summary, scenario.baseline))
        console.print(savings_note(done.summary), style="dim")
        if any(map(is_noise, chain(*(saved.values() for saved in done.summary["saved"].values())))):
            console.print(NOISE_NOTE, style="dim")
        return
    shown = shown_metrics(done.summary)
    print_whole(console, _overall(scenario, done, shown))
    changes = [
        about["versus"][metric]
        for about in done.summary["variants"].values()
        for metric in shown
        if metric in about["versus"]
    ]
    if any(change["verdict"] == "noise" and change["ratio"] is not None for change in changes):
        console.print(NOISE_NOTE, style="dim")
    print_electricity(console, done.manifest, done.summary)
    if "league" in done.summary:
        print_league(console, [("", done.summary["league"])])
    if "deadlines" in done.summary:
        print_table(console, deadline_title(done.summary), HEADS, deadline_rows(done.summary))
        for note in deadline_notes(done.summary):
            console.print(note, style="dim")
    losses = describe_losses(done.manifest["scenario"], done.summary)
    for note in (*notes(done.manifest, done.summary), *losses):
        console.print(note, style="dim")
    if not done.summary["by"]["workload"] or is_elastic(done.summary):
        return
    measured = knows_energy(done.summary)
    what, metric = ("Energy", "energy_j") if measured else ("Training time", "time_s")
    title = f"{what} of all jobs, learning included"
    print_whole(console, _by_workload(done.summary, metric, title))
    window = read_learning_window(done)
    if not window.longer:
        return
    title = f"{what} of one job after learning: {window.describe()} of each group"
    print_whole(console, _by_workload(done.summary, f"last5_{metric}", title))


def print_heading(console: Console, name: str, question: str) -> None:
    """Print a scenario's name and question."""
    console.print(Text.assemble((printable(name), "bold"), f"  {printable(question)}"))


def print_inputs(console: Console, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Print the input traces and their origin."""
    for trace in inputs:
        synthetic = trace["origin"] == "synthetic"
        warning = " - generated by a model, not measured" if synthetic else ""
        style = "bold yellow" if synthetic else "dim"
        console.print(
            f"{trace['kind']}: {trace['trace']} ({trace['origin']}{warning})", style=style
        )


def make_title(seeds: int, variants: Json, baseline: str) -> str:
    """Title of a table of all jobs; `variants` are those of a summary."""
    title = f"All jobs, mean of {seeds} seeds" if seeds > 1 else "All jobs"
    if len(variants) > 1:
        has_own = bool(own_baselines(variants))
        title += ", each variant against its baseline" if has_own else f", against {baseline}"
        title += " [95 % interval]" * (seeds > 1)
    return title


def _overall(scenario: Scenario, done: ScenarioResult, shown: Mapping[str, str]) -> Table:
    variants = done.summary["variants"]
    table = Table(title=make_title(len(scenario.all_seeds), variants, scenario.baseline))
    table.add_column("variant")
    for title in (*shown.values(), *(("regret", "gave up") if "cost" in shown else ())):
        table.add_column(title, justify="right", no_wrap=True)
    labels = label_variants(variants)
    for name, variant in variants.items():
        metrics = variant["metrics"]
        cells = [format_comparison(variant, name, metric) for metric in shown]
        if "cost" in shown:
            cells.append(format_value(metrics["regret"]["mean"], "regret"))
            cells.append(f"{metrics['gave_up']['mean']:g} of {metrics['jobs']['mean']:g}")
        table.add_row(labels[name], *cells)
    return table


def _by_workload(summary: Json, metric: str, title: str) -> Table:
    """A metric by workload and variant; many variants go downwards."""
    labels, by_workload = label_variants(summary["variants"]), summary["by"]["workload"]
    corner, down, across = "workload", {name: name for name in by_workload}, labels
    is_turned = len(labels) > max(MOST_ABREAST, len(by_workload))
    if is_turned:
        corner, down, across = "variant", across, down
    table = Table(title=title)
    table.add_column(corner, no_wrap=True)
    for label in across.values():
        table.add_column(label, justify="right")
    for row, label in down.items():
        places = [(column, row) if is_turned else (row, column) for column in across]
        table.add_row(
            label,
            *(
                format_comparison(by_workload[workload][name], name, metric, with_value=False)
                for workload, name in places
            ),
        )
    return table


def format_comparison(
    variant: Mapping[str, Any], name: str, metric: str, with_value: bool = True
) -> str:
    """A value, its change against the baseline, and the interval on a line of its own."""
    if metric not in variant["metrics"]:
        return "-"
    value = format_value(variant["metrics"][metric]["mean"], metric)
    versus = variant["versus"]
    if metric in SHARES:
        return value
    ratio, interval = versus[metric]["ratio"], versus[metric]["ci95"]
    if versus["baseline"] == name or ratio is None:
        return value
    change = f"{percent(ratio - 1)} %" + f" {NOISE}" * (versus[metric].get("verdict") == "noise")
    low, high = (percent(bound - 1) for bound in interval or (ratio, ratio))
    if low != high:
        change += f"\n[{low}, {high}]"
    return f"{value} {change}" if with_value else change


def _savings_table(summary: Mapping[str, Any], baseline: str) -> Table:
    """Savings against the baseline, a row a variant."""
    several = any(saved["work"]["ci95"] for saved in summary["saved"].values())
    over = "95 % interval over seeds" if several else "one seed: no interval"
    table = Table(title=f"Saved against {baseline} [{over}]")
    heads = savings_labels(summary)
    for head in ("variant", *heads.values(), "final accuracy"):
        justify: JustifyMethod = "left" if head == "variant" else "right"
        table.add_column(head.replace(" ", "\n", 1), justify=justify, no_wrap=head != "variant")
    for name, saved in summary["saved"].items():
        cells = [_savings_cell(saved[what], 100, " %") for what in heads]
        table.add_row(name, *cells, _savings_cell(saved["accuracy_points"], 1, " points"))
    return table


def _savings_cell(value: Mapping[str, Any], factor: float, unit: str) -> str:
    digits = 1 if factor == 100 else 2
    shown = f"{factor * value['mean']:+.{digits}f}{unit}" + " ~" * is_noise(value)
    if value["ci95"] is None:
        return shown
    low, high = (f"{factor * bound:+.{digits}f}" for bound in value["ci95"])
    return f"{shown}\n[{low}, {high}]"


def print_electricity(console: Console, manifest: Manifest, summary: Json) -> None:
    """Print energy, cost and emissions of the cluster, where prices or emissions are stated.

    They are those of a year where that is known, else those of the window.
    """
    shown = {ENERGY: "energy"} | known_rates(manifest, summary)
    if len(shown) == 1:
        return
    seeds = len(manifest["seeds"])
    of_year = list(describe_year(manifest, summary))
    name_of, digits = (year_name, DIGITS) if of_year else (str, None)
    over = "a year" if of_year else f"over {describe_window(manifest)}"
    title = f"Electricity of the cluster {over}" + f", mean of {seeds} seeds" * (seeds > 1)
    table = Table(title=f"{title}, with the difference to the baseline")
    table.add_column("variant")
    for label in shown.values():
        table.add_column(label, justify="right", no_wrap=True)
    money = currency(manifest)
    labels = label_variants(summary["variants"])
    means = {
        name: {metric: about["metrics"][name_of(metric)]["mean"] for metric in shown}
        for name, about in summary["variants"].items()
    }
    for name, about in summary["variants"].items():
        cells = []
        for metric, value in means[name].items():
            usual = means[about["versus"]["baseline"]][metric]
            change = ""
            if abs(value - usual) > UNCHANGED * abs(usual):
                change = f" ({format_amount(value - usual, metric, money, '+', digits)})"
            cells.append(format_amount(value, metric, money, digits=digits) + change)
        table.add_row(labels[name], *cells)
    print_whole(console, table)
    for line in of_year:
        console.print(line, style="dim")
