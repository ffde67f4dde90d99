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


def print_plans(
    console: Console, templates: Sequence[Mapping[str, Any]], plans: Sequence[Mapping[str, Any]]
) -> None:
    """Print pipeline templates, and the pipelines of plans."""
    table = Table(title="Templates")
    for name in ("nodes", "stages", "iteration s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layers of the stages x GPUs", overflow="fold")
    for each in templates:
        table.add_row(str(each["num_nodes"]), str(each["num_stages"]),
                      f"{each['iteration_s']:.6g}", each.get("stages", ""))  # fmt: skip
    console.print(table)
    if not plans:
        return
    table = Table(title="Pipelines")
    table.add_column("nodes", justify="right", no_wrap=True)
    for title in ("balanced", "as Oobleck's engine chooses"):
        table.add_column(title)
    for each in plans:
        table.add_row(str(each["nodes"]), _pipelines(each["best_balanced"]),
                      _pipelines(each["best_by_engine"]))  # fmt: skip
    console.print(table)
    console.print("2 x 4 (98): two pipelines of 4 nodes, with 98 micro-batches each.", style="dim")


def _pipelines(plan: Mapping[str, Any] | None) -> str:
    if plan is None:
        return "none"
    groups = plan["pipelines"].items()
    return ", ".join(f"{count} x {nodes} ({own})" for nodes, (count, own) in groups)


def print_shapes(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print shapes by number of nodes."""
    table = Table(title="Pipelines by number of nodes")
    titles = {"nodes": "nodes", "depth": "depth", "replicas": "replicas",
              "microbatch_samples": "micro-batch", "microbatches": "micro-batches",
              "idle_gpus": "idle GPUs", "samples_per_s": "samples/s"}  # fmt: skip
    for title in titles.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_number(row[name]) if name in row else "" for name in titles))
    console.print(table)
