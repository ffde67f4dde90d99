"""Terminal tables of elastic training: published replays and plans of pipelines."""

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


def print_replays(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print published replays, a row each."""
    names = [name for name in ("system", "model") if name in rows[0]]
    shown = [name for name in LABELS if name in rows[0]]
    if "samples_per_s" in shown:
        shown = [name for name in shown if name != "avg_samples_per_s"]
    table = Table(title=title)
    for name in names:
        table.add_column(name)
    for name in shown:
        table.add_column(LABELS[name], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[name] for name in names), *(_number(row[name]) for name in shown))
    console.print(table)
    unfit = [row["model"] for row in rows if not row.get("fits_memory", True)]
    if unfit:
        console.print(f"Bamboo has no memory for {', '.join(unfit)}.", style="dim")
    console.print("These are the numbers of the artifacts, with their accidents.", style="dim")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
