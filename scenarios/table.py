"""The comparison on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from wattkeeper.sim.metrics import LAST

if TYPE_CHECKING:
    from rich.console import Console

    from wattkeeper.scenarios.run import Done
    from wattkeeper.scenarios.schema import Scenario

SHOWN = {"energy_j": "energy", "time_s": "time", "cost": "cost", "jct_s": "job completion"}
HOUR_S = 3600.0


def show(console: Console, scenario: Scenario, done: Done) -> None:
    """Print the question, the comparison of variants, and the savings after learning."""
    console.print(f"[bold]{scenario.name}[/bold]  {escape(scenario.question)}")
    for trace in done.manifest["inputs"]:
        synthetic = trace["origin"] == "synthetic"
        warning = " - made by a model, measured by nobody" if synthetic else ""
        style = "bold yellow" if synthetic else "dim"
        console.print(
            f"{trace['kind']}: {trace['trace']} ({trace['origin']}{warning})", style=style
        )
    if scenario.rng == "published" and scenario.workload.kind == "trace":
        console.print("rng: published takes seeds from the names of groups: all seeds are alike")
    console.print(_overall(scenario, done))
    workloads = done.summary["by"]["workload"]
    console.print(_by_workload(scenario, workloads))


def _overall(scenario: Scenario, done: Done) -> Table:
    seeds = len(scenario.all_seeds)
    table = Table(title=f"All jobs, mean of {seeds} seed{'s' * (seeds > 1)}, against the baseline")
    table.add_column("variant")
    for title in (*SHOWN.values(), "regret"):
        table.add_column(title, justify="right")
    table.add_column("gave up", justify="right")
    for name, variant in done.summary["variants"].items():
        metrics = variant["metrics"]
        cells = [_against(variant, name, metric) for metric in SHOWN]
        gave_up = f"{metrics['gave_up']['mean']:g} of {metrics['jobs']['mean']:g}"
        table.add_row(escape(name), *cells, _value(metrics["regret"]["mean"], "regret"), gave_up)
    return table


def _by_workload(scenario: Scenario, workloads: Mapping[str, Any]) -> Table:
    table = Table(title=f"Energy of a job, mean of the last {LAST} recurrences of each group")
    table.add_column("workload")
    for name in scenario.variants:
        table.add_column(escape(name), justify="right")
    for workload, variants in workloads.items():
        cells = [
            _against(variants[name], name, "last5_energy_j", with_value=False)
            for name in scenario.variants
        ]
        table.add_row(escape(workload), *cells)
    return table


def _against(variant: Mapping[str, Any], name: str, metric: str, with_value: bool = True) -> str:
    """A value and how it differs from the baseline's: `1.23 GJ -12.3 %`."""
    shown = _value(variant["metrics"][metric]["mean"], metric)
    versus = variant["versus"]
    ratio = versus[metric]["ratio"]
    if versus["baseline"] == name or ratio is None:
        return shown
    change = f"{100 * (ratio - 1):+.1f} %"
    if versus[metric]["ci95"]:
        low, high = (100 * (bound - 1) for bound in versus[metric]["ci95"])
        change += f" [{low:+.1f}, {high:+.1f}]"
    return f"{shown} {change}" if with_value else change


def _value(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    if metric.endswith("_s"):
        return f"{value / HOUR_S:,.1f} h"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.2f} {prefix}J"
    return f"{value:.1f} J"
