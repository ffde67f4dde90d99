"""Terminal table of a run: what the cluster uses, and what that costs and emits."""

from rich.console import Console
from rich.table import Table

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.consumption import (
    DIGITS,
    UNCHANGED,
    currency,
    describe_window,
    describe_year,
    format_amount,
    known_rates,
)
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.vocabulary import label_variants
from wattkeeper.scenarios.cli.tables.fitting import print_whole
from wattkeeper.sim.cluster_results.accounting import ENERGY, year_name


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
