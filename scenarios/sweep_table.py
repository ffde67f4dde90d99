"""A sweep on the terminal: a row a point and variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.markup import escape
from rich.table import Table

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios import study
from wattkeeper.scenarios.shown import shown_metrics
from wattkeeper.scenarios.sweep import shown
from wattkeeper.scenarios.table import against, show_inputs
from wattkeeper.scenarios.usable import left_out, ran_on_any

if TYPE_CHECKING:
    from rich.console import Console


MOST: Final = 100
"""Points that a table shows."""


def content(folder: Path) -> Json:
    """`sweep.json`, and the summary of each variant at each point that is done."""
    about: Json = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    for point in about["points"]:
        done = point["state"] == "done"
        point["variants"] = _saved(folder, point).summary["variants"] if done else None
    return about


def show(console: Console, folder: Path) -> None:
    """Print the question and the comparison of variants at each point."""
    about = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    console.print(f"[bold]{about['scenario']}[/bold]  {escape(about['question'])}")
    show_inputs(console, about["inputs"])
    done = [point for point in about["points"] if point["state"] == "done"]
    if not done:
        return
    manifests = [_saved(folder, point).manifest for point in done]
    lines = [
        line
        for one in manifests
        for line in (*left_out(one["dropped_jobs"]), *ran_on_any(one["ignored_gpu_types"]))
    ]
    for line in dict.fromkeys(lines):
        console.print(line, style="bold yellow")
    metrics = shown_metrics(_saved(folder, done[0]).summary)
    seeds = len(about["seeds"])
    title = f"All jobs, mean of {seeds} seeds" if seeds > 1 else "All jobs"
    if len(about["variants"]) > 1:
        title += f", against {about['baseline']}" + " [95 % interval]" * (seeds > 1)
    table = Table(title=title)
    for axis in about["axes"]:
        table.add_column(escape(axis.replace(".", ".\n")), overflow="fold")
    table.add_column("variant")
    for name in metrics.values():
        table.add_column(name, justify="right", no_wrap=True)
    for point in done[:MOST]:
        values = [escape(shown(value)) for value in point["values"].values()]
        for name, variant in _saved(folder, point).summary["variants"].items():
            cells = [against(variant, name, metric) for metric in metrics]
            table.add_row(*values, escape(name), *cells)
            values = [""] * len(values)
        table.add_section()
    console.print(table)
    if len(done) > MOST:
        console.print(f"The first {MOST} of {len(done)} points; metrics.parquet has all of them.")


def _saved(folder: Path, point: Json) -> study.Saved:
    return study.read(folder / "points" / point["id"])
