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
"""Of jobs with profiles."""

QUEUE = {
    "cluster_energy_j": "cluster energy",
    "jct_s": "job completion",
    "p95_jct_s": "95 % below",
    "queue_delay_s": "queue delay",
}
"""Of jobs that run for their recorded duration, so that only the queue can differ."""

HOUR_S = 3600.0


def show(console: Console, scenario: Scenario, done: Done) -> None:
    """Print the question, the comparison of variants, and what each workload gained."""
    console.print(f"[bold]{scenario.name}[/bold]  {escape(scenario.question)}")
    for trace in done.manifest["inputs"]:
        synthetic = trace["origin"] == "synthetic"
        warning = " - made by a model, measured by nobody" if synthetic else ""
        style = "bold yellow" if synthetic else "dim"
        console.print(
            f"{trace['kind']}: {trace['trace']} ({trace['origin']}{warning})", style=style
        )
    if scenario.rng == "published" and scenario.workload.kind == "trace":
        console.print("Seeds change nothing here: rng: published takes them from group names.")
    for reason, count in done.manifest["dropped_jobs"].items():
        console.print(f"Left out: {count} jobs {reason}.", style="bold yellow")
    workloads = done.summary["by"]["workload"]
    console.print(_overall(scenario, done, SHOWN if workloads else QUEUE))
    if not workloads:
        console.print(
            "No job has a profile: they run as long as recorded, at the modelled power of a busy "
            "GPU. job completion: mean, from submission to end. queue delay: mean, from submission "
            "to the first start.",
            style="dim",
        )
        return
    _explain(console, done)
    title = "Energy of all jobs, learning included"
    console.print(_by_workload(scenario, workloads, "energy_j", title))
    title = f"Energy of one job after learning: the last {LAST} recurrences of each group"
    console.print(_by_workload(scenario, workloads, "last5_energy_j", title))


def _overall(scenario: Scenario, done: Done, shown: Mapping[str, str]) -> Table:
    seeds = len(scenario.all_seeds)
    table = Table(title=f"All jobs, mean of {seeds} seed{'s' * (seeds > 1)}, against the baseline")
    table.add_column("variant")
    for title in (*shown.values(), *(("regret", "gave up") if shown is SHOWN else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for name, variant in done.summary["variants"].items():
        metrics = variant["metrics"]
        baseline = variant["versus"]["baseline"]
        label = name if baseline in (name, scenario.baseline) else f"{name} (vs {baseline})"
        cells = [_against(variant, name, metric) for metric in shown]
        if shown is SHOWN:
            cells.append(_value(metrics["regret"]["mean"], "regret"))
            cells.append(f"{metrics['gave_up']['mean']:g} of {metrics['jobs']['mean']:g}")
        table.add_row(escape(label), *cells)
    return table


def _explain(console: Console, done: Done) -> None:
    """What the columns are, where a reader could take them for something else."""
    etas = {variant.get("objective", {}).get("eta") for variant in _variants(done)} - {None}
    eta = done.manifest["scenario"]["objective"]["eta"]
    console.print(
        f"energy and time: sums over all jobs. cost: eta * energy + (1 - eta) * largest power limit"
        f" * time (J), eta {eta:g}. regret: cost above the expected cost of the best configuration;"
        " luck can make it negative. job completion: mean, from submission to end.",
        style="dim",
    )
    if etas - {eta}:
        console.print("Costs under different eta are not compared.", style="dim")


def _variants(done: Done) -> list[dict[str, Any]]:
    return list(done.manifest["scenario"]["variants"].values())


def _by_workload(
    scenario: Scenario, workloads: Mapping[str, Any], metric: str, title: str
) -> Table:
    table = Table(title=title)
    table.add_column("workload", no_wrap=True)
    for name in scenario.variants:
        table.add_column(escape(name), justify="right")
    for workload, variants in workloads.items():
        cells = [
            _against(variants[name], name, metric, with_value=False) for name in scenario.variants
        ]
        table.add_row(escape(workload), *cells)
    return table


def _against(variant: Mapping[str, Any], name: str, metric: str, with_value: bool = True) -> str:
    """A value and how it differs from the baseline's, its interval on a line of its own."""
    shown = _value(variant["metrics"][metric]["mean"], metric)
    versus = variant["versus"]
    ratio, interval = versus[metric]["ratio"], versus[metric]["ci95"]
    if versus["baseline"] == name or ratio is None:
        return shown
    change = f"{100 * (ratio - 1):+.1f} %"
    if interval and interval[0] < interval[1]:
        low, high = (100 * (bound - 1) for bound in interval)
        change += f"\n[{low:+.1f}, {high:+.1f}]"
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
