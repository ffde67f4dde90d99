"""Terminal tables of plans of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from wattkeeper.scenarios.cli.tables.document import print_block
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import text_table


def print_plans(
    console: Console, templates: Sequence[Mapping[str, Any]], plans: Sequence[Mapping[str, Any]]
) -> None:
    """Print pipeline templates, and the pipelines of plans."""
    rows = [
        (
            str(each["num_nodes"]),
            str(each["num_stages"]),
            f"{each['iteration_s']:.6g}",
            each["stages"],
        )
        for each in templates
    ]
    heads = ("nodes", "stages", "iteration s", "layers of the stages x GPUs")
    print_block(console, text_table(heads, rows, "Templates"))
    if not plans:
        return
    shapes = [(str(each["nodes"]), _pipelines(each["pipelines"])) for each in plans]
    print_block(console, text_table(("nodes", "balanced"), shapes, "Pipelines"))
    for note in blocks.notes(["2 x 4 (98): two pipelines of 4 nodes, with 98 micro-batches each."]):
        print_block(console, note)


def _pipelines(groups: Mapping[str, Any] | None) -> str:
    if groups is None:
        return "none"
    return ", ".join(f"{count} x {nodes} ({own})" for nodes, (count, own) in groups.items())


def print_shapes(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print shapes by number of nodes."""
    titles = {
        "nodes": "nodes",
        "depth": "depth",
        "replicas": "replicas",
        "microbatch_samples": "micro-batch",
        "microbatches": "micro-batches",
        "idle_gpus": "idle GPUs",
        "samples_per_s": "samples/s",
    }
    cells = [[_number(row[name]) if name in row else "" for name in titles] for row in rows]
    print_block(console, text_table(list(titles.values()), cells, "Pipelines by number of nodes"))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
