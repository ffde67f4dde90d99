"""Terminal table of a study: recorded and simulated waits."""

from rich.console import Console
from rich.table import Table

from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.waits_text import HEADS, rows_by_part


def print_waits(console: Console, manifest: Manifest, variant: str) -> None:
    """Print how far a variant reproduces the recorded waits, by size and queue of jobs."""
    if "waits" not in manifest:
        return
    table = Table(title=f"Recorded waits, and simulated ones ({variant})")
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="right" if number else "left")
    for row in rows_by_part(manifest["waits"], variant):
        table.add_row(*row)
    console.print(table)
