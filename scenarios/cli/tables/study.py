"""Terminal tables of a study: recorded and simulated waits."""

from rich.console import Console

from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.texts.waits import (
    CLOSENESS_HEADS,
    HEADS,
    WAITS_NOTE,
    rows_by_part,
    rows_by_scheduler,
)
from wattkeeper.traces.describe.text import print_table


def print_waits(console: Console, manifest: Manifest, variant: str) -> None:
    """Print how far a variant reproduces the recorded waits, by size and queue of jobs."""
    if "waits" in manifest:
        rows = rows_by_part(manifest["waits"], variant)
        print_table(console, f"Recorded waits, and simulated ones ({variant})", HEADS, rows)


def print_closeness(console: Console, manifest: Manifest) -> None:
    """Print how close each scheduler comes to the recorded waits."""
    if "waits" in manifest:
        rows = rows_by_scheduler(manifest["waits"], manifest["scenario"])
        print_table(console, "Waits of each scheduler, and the record", CLOSENESS_HEADS, rows)
        console.print(WAITS_NOTE, style="dim")
