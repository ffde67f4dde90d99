"""Terminal tables of published replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

LABELS: Final = {
    "avg_samples_per_s": "samples/s",
    "samples_per_s": "samples/s",
    "steps": "steps",
    "fatal": "fatal",
    "preemptions": "losses",
    "avg_instances": "nodes",
    "dollars_per_h": "$/h",
    "value": "samples/s per $/h",
    "on_demand_value": "on demand",
}
"""Columns of a replay that a terminal shows, in this order, and their titles; --json has all."""

LEGEND: Final = (
    "samples/s: from the begin of the first step to the end of the last finished one; what was "
    "lost does not count. steps: finished ones, less ten for each checkpoint of Varuna that "
    "failed; those that Varuna loses with a node still count here. fatal: losses after which the "
    "job restarts or reconfigures. losses: nodes lost before the time of the trace's last row, at "
    "which the run ends. nodes: those there on average, booting ones too. varuna-nockpt: Varuna "
    "with free checkpoints."
)

LEGEND_RATIO: Final = " over varuna: samples/s over those of varuna with the same model."

LEGEND_ALONE: Final = (
    "samples/s: from the begin of the first step to the end of the last finished one. steps: "
    "finished ones. fatal: losses after which the job restarts. losses: nodes lost. nodes: those "
    "there on average, booting ones too. $/h: of these nodes at spot prices. on demand: samples/s "
    "per $/h of the same training on nodes on demand."
)


def print_replays(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print published replays, a row each, and what the columns mean."""
    is_alone = "system" not in rows[0]
    ratios = {} if is_alone else _over_varuna(rows)
    names = [name for name in ("system", "model") if name in rows[0]]
    shown = [name for name in LABELS if name in rows[0]]
    if "samples_per_s" in shown:
        shown = [name for name in shown if name != "avg_samples_per_s"]
    table = Table(title=title)
    for name in names:
        table.add_column(name)
    for name in shown:
        table.add_column(LABELS[name], justify="right", no_wrap=True)
    if ratios:
        table.add_column("over varuna", justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        cells = [*(row[name] for name in names), *(_number(row[name]) for name in shown)]
        table.add_row(*cells, *([ratios.get(index, "")] * bool(ratios)))
    console.print(table)
    legend = LEGEND_ALONE if is_alone else LEGEND + LEGEND_RATIO * bool(ratios)
    console.print(legend, style="dim")
    unfit = [row["model"] for row in rows if not row.get("fits_memory", True)]
    if unfit:
        console.print(f"Bamboo has no memory for {', '.join(unfit)}.", style="dim")
    console.print("These are the numbers of the artifacts, with their accidents.", style="dim")


def _over_varuna(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Rates over those of varuna with the same model, by index; without rows of which it is 0."""
    base = {row["model"]: row["avg_samples_per_s"] for row in rows if row["system"] == "varuna"}
    return {
        index: f"{row['avg_samples_per_s'] / base[row['model']]:,.2f}"
        for index, row in enumerate(rows)
        if base.get(row["model"]) and row.get("fits_memory", True)
    }


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
