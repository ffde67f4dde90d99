"""Terminal tables of benchmarks: outcomes and changes."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattkeeper.scenarios.bench.examine import Change, EntryResult
from wattkeeper.scenarios.bench.growth import Growth
from wattkeeper.scenarios.bench.speed import SLOWER, core
from wattkeeper.scenarios.spec.wording import percent, unlisted

STATES: Final = {
    "same": ("as before", ""),
    "changed": ("changed", "bold red"),
    "failed": ("failed", "bold red"),
    "new": ("no baseline", "bold yellow"),
    "skipped": ("skipped", "yellow"),
}
"""The text of each state, and its style."""
MOST_ROWS: Final = 12
"""Changes of an entry that are listed; --json has all."""


def print_outcomes(console: Console, outcomes: Sequence[EntryResult]) -> None:
    """Print the outcome of each entry, then the changes."""
    table = Table(title="Benchmarks")
    for head in ("entry", "scenario", "result"):
        table.add_column(head, overflow="fold")
    for head in ("runs", "CPU ratio", "baseline", "change"):
        table.add_column(head, justify="right", no_wrap=True)
    for outcome in outcomes:
        entry = outcome.entry
        runs = f"{outcome.runs}" if outcome.runs else ""
        state = Text(*STATES[outcome.state])
        table.add_row(entry.name, entry.scenario, state, runs, *_speed(outcome))
    console.print(table)
    console.print(
        "CPU ratio: CPU time of the entry over that of a loop of fixed work beside it; more than "
        f"{SLOWER:g} times the baseline's is a regression. Core: {core()}.",
        style="dim",
    )
    for outcome in outcomes:
        for text in (outcome.why, *outcome.notes):
            if text:
                console.print(f"{outcome.entry.name}: {text}", style="bold yellow")
    if any(outcome.changes for outcome in outcomes):
        console.print(_changes(outcomes))


def print_growths(console: Console, growths: Sequence[Growth]) -> None:
    """Print how the counted work of each grows."""
    table = Table(title="Growth of counted work")
    for head in ("what", "counted", "result"):
        table.add_column(head, overflow="fold")
    for head in ("sizes", "work", "exponent", "at most"):
        table.add_column(head, justify="right", no_wrap=True)
    for growth in growths:
        state = Text("as allowed") if growth.is_allowed else Text("too fast", "bold red")
        sizes, work = (
            " to ".join(f"{each:,}" for each in pair) for pair in (growth.sizes, growth.work)
        )
        table.add_row(
            growth.what,
            growth.unit,
            state,
            sizes,
            work,
            f"{growth.exponent:.2f}",
            f"{growth.most:g}",
        )
    console.print(table)
    console.print(
        "Exponent: the work grows as the size to this power. It is counted, the same on any "
        "machine.",
        style="dim",
    )


def _speed(outcome: EntryResult) -> tuple[str, str, str]:
    if outcome.speed is None:
        return "", "", ""
    expected = outcome.entry.expected
    before = None if expected is None else expected.cpu.get(core())
    now = outcome.speed.ratio
    if before is None:
        return f"{now:.3g}", "", ""
    return f"{now:.3g}", f"{before:.3g}", f"{percent(now / before - 1, fine=True)} %"


def _changes(outcomes: Sequence[EntryResult]) -> Table:
    table = Table(title="What changed")
    for head in ("entry", "variant", "quantity"):
        table.add_column(head, overflow="fold")
    for head in ("baseline", "now", "change"):
        table.add_column(head, justify="right", no_wrap=True)
    for outcome in outcomes:
        name = outcome.entry.name
        for change in outcome.changes[:MOST_ROWS]:
            table.add_row(name, change.variant, change.quantity, *_cells(change))
            name = ""
        if rest := unlisted(len(outcome.changes), MOST_ROWS):
            table.add_row("", "", rest)
        if outcome.changes:
            table.add_section()
    return table


def _cells(change: Change) -> tuple[str, str, str]:
    share = change.share
    growth = "" if share is None else f"{percent(share, fine=True)} %"
    return _value(change.baseline), _value(change.now), growth


def _value(value: float | str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
