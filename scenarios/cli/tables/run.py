"""The comparison on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels, savings_note
from wattkeeper.scenarios.analysis.vocabulary import (
    SHARES,
    cautions,
    knows_energy,
    notes,
    shown_metrics,
    value_text,
)
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.results.metrics import LAST

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from wattkeeper.scenarios.run.run import ScenarioResult
    from wattkeeper.scenarios.spec.schema import Scenario

NOISE = "~"

NOISE_NOTE = f"{NOISE} only noise: the 95 % interval over seeds includes 0 %."


def show(console: Console, scenario: Scenario, done: ScenarioResult) -> None:
    """Print the question, the comparison of variants, and what each workload gained."""
    console.print(f"[bold]{scenario.name}[/bold]  {escape(scenario.question)}")
    show_inputs(console, done.manifest["inputs"])
    for line in cautions(done.manifest, done.summary):
        console.print(escape(line), style="bold yellow")
    if "saved" in done.summary:
        console.print(_savings_table(done.summary, scenario.baseline))
        console.print(savings_note(done.summary), style="dim")
        if any(map(is_noise, chain(*(one.values() for one in done.summary["saved"].values())))):
            console.print(NOISE_NOTE, style="dim")
        return
    shown = shown_metrics(done.summary)
    console.print(_overall(scenario, done, shown))
    verdicts = [one["versus"][m].get("verdict") for one in done.summary["variants"].values()
                for m in shown if m in one["versus"]]  # fmt: skip
    if "noise" in verdicts:
        console.print(NOISE_NOTE, style="dim")
    for note in notes(done.manifest, done.summary):
        console.print(note, style="dim")
    workloads = done.summary["by"]["workload"]
    if not workloads:
        return
    measured = knows_energy(done.summary)
    what, metric = ("Energy", "energy_j") if measured else ("Training time", "time_s")
    title = f"{what} of all jobs, learning included"
    console.print(_by_workload(scenario, workloads, metric, title))
    title = f"{what} of one job after learning: the last {LAST} recurrences of each group"
    console.print(_by_workload(scenario, workloads, f"last5_{metric}", title))


def show_inputs(console: Console, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Print which traces results rest on, and whether anybody recorded them."""
    for trace in inputs:
        synthetic = trace["origin"] == "synthetic"
        warning = " - made by a model, measured by nobody" if synthetic else ""
        style = "bold yellow" if synthetic else "dim"
        console.print(
            f"{trace['kind']}: {trace['trace']} ({trace['origin']}{warning})", style=style
        )


def title_of(seeds: int, variants: int, baseline: str) -> str:
    """What a table of all jobs shows, given how many seeds and variants there are."""
    title = f"All jobs, mean of {seeds} seeds" if seeds > 1 else "All jobs"
    if variants > 1:
        title += f", against {baseline}" + " [95 % interval]" * (seeds > 1)
    return title


def _overall(scenario: Scenario, done: ScenarioResult, shown: Mapping[str, str]) -> Table:
    seeds, variants = len(scenario.all_seeds), len(scenario.variants)
    table = Table(title=title_of(seeds, variants, scenario.baseline))
    table.add_column("variant")
    for title in (*shown.values(), *(("regret", "gave up") if "cost" in shown else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for name, variant in done.summary["variants"].items():
        metrics = variant["metrics"]
        baseline = variant["versus"]["baseline"]
        label = name if baseline in (name, scenario.baseline) else f"{name} (vs {baseline})"
        cells = [against(variant, name, metric) for metric in shown]
        if "cost" in shown:
            cells.append(value_text(metrics["regret"]["mean"], "regret"))
            cells.append(f"{metrics['gave_up']['mean']:g} of {metrics['jobs']['mean']:g}")
        table.add_row(escape(label), *cells)
    return table


def _by_workload(
    scenario: Scenario, workloads: Mapping[str, Any], metric: str, title: str
) -> Table:
    table = Table(title=title)
    table.add_column("workload", no_wrap=True)
    for name in scenario.variants:
        table.add_column(escape(name), justify="right")
    for workload, variants in workloads.items():
        cells = [
            against(variants[name], name, metric, with_value=False) for name in scenario.variants
        ]
        table.add_row(escape(workload), *cells)
    return table


def against(variant: Mapping[str, Any], name: str, metric: str, with_value: bool = True) -> str:
    """A value and how it differs from the baseline's, its interval on a line of its own."""
    if metric not in variant["metrics"]:
        return "-"
    shown = value_text(variant["metrics"][metric]["mean"], metric)
    versus = variant["versus"]
    if metric in SHARES:
        return shown
    ratio, interval = versus[metric]["ratio"], versus[metric]["ci95"]
    if versus["baseline"] == name or ratio is None:
        return shown
    change = f"{percent(ratio - 1)} %" + f" {NOISE}" * (versus[metric].get("verdict") == "noise")
    low, high = (percent(bound - 1) for bound in interval or (ratio, ratio))
    if low != high:
        change += f"\n[{low}, {high}]"
    return f"{shown} {change}" if with_value else change


def _savings_table(summary: Mapping[str, Any], baseline: str) -> Table:
    """Savings against the baseline, a row a variant."""
    several = any(saved["work"]["ci95"] for saved in summary["saved"].values())
    over = "95 % interval over seeds" if several else "one seed: no interval"
    table = Table(title=f"Saved against {escape(baseline)} \\[{over}]")
    heads = savings_labels(summary)
    for head in ("variant", *heads.values(), "final accuracy"):
        justify: JustifyMethod = "left" if head == "variant" else "right"
        table.add_column(head.replace(" ", "\n", 1), justify=justify, no_wrap=True)
    for name, saved in summary["saved"].items():
        cells = [_savings_cell(saved[what], 100, " %") for what in heads]
        table.add_row(escape(name), *cells, _savings_cell(saved["accuracy_points"], 1, " points"))
    return table


def _savings_cell(value: Mapping[str, Any], factor: float, unit: str) -> str:
    digits = 1 if factor == 100 else 2
    shown = f"{factor * value['mean']:+.{digits}f}{unit}" + " ~" * is_noise(value)
    if value["ci95"] is None:
        return shown
    low, high = (f"{factor * bound:+.{digits}f}" for bound in value["ci95"])
    return f"{shown}\n[{low}, {high}]"
