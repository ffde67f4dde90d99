"""Terminal tables of plans of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_plans(
    console: Console, templates: Sequence[Mapping[str, Any]], plans: Sequence[Mapping[str, Any]]
) -> None:
    """Print pipeline templates, and the pipelines of plans."""
    table = Table(title="Templates")
    for name in ("nodes", "stages", "iteration s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layers of the stages x GPUs", overflow="fold")
    for each in templates:
        table.add_row(
            str(each["num_nodes"]),
            str(each["num_stages"]),
            f"{each['iteration_s']:.6g}",
            each["stages"],
        )
    console.print(table)
    if not plans:
        return
    table = Table(title="Pipelines")
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("balanced")
    for each in plans:
        table.add_row(str(each["nodes"]), _pipelines(each["pipelines"]))
    console.print(table)
    console.print("2 x 4 (98): two pipelines of 4 nodes, with 98 micro-batches each.", style="dim")


def _pipelines(groups: Mapping[str, Any] | None) -> str:
    if groups is None:
        return "none"
    return ", ".join(f"{count} x {nodes} ({own})" for nodes, (count, own) in groups.items())


def print_shapes(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print shapes by number of nodes."""
    table = Table(title="Pipelines by number of nodes")
    titles = {
        "nodes": "nodes",
        "depth": "depth",
        "replicas": "replicas",
        "microbatch_samples": "micro-batch",
        "microbatches": "micro-batches",
        "idle_gpus": "idle GPUs",
        "samples_per_s": "samples/s",
    }
    for title in titles.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_number(row[name]) if name in row else "" for name in titles))
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
