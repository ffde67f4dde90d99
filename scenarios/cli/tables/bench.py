"""Terminal tables of benchmarks: outcomes and changes."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from wattkeeper.scenarios.bench.examine import Change, EntryResult
from wattkeeper.scenarios.bench.growth import Growth
from wattkeeper.scenarios.bench.speed import SLOWER, core
from wattkeeper.scenarios.cli.tables.document import print_block
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import text_table
from wattkeeper.scenarios.spec.wording import percent, unlisted

STATES: Final = {
    "same": "as before",
    "changed": "changed",
    "failed": "failed",
    "new": "no baseline",
    "skipped": "skipped",
}
"""The text of each state."""
MOST_ROWS: Final = 12
"""Changes of an entry that are listed; --json has all."""


def print_outcomes(console: Console, outcomes: Sequence[EntryResult]) -> None:
    """Print the outcome of each entry, then the changes."""
    rows = [
        (
            outcome.entry.name,
            outcome.entry.scenario,
            STATES[outcome.state],
            f"{outcome.runs}" if outcome.runs else "",
            *_speed(outcome),
        )
        for outcome in outcomes
    ]
    heads = ("entry", "scenario", "result", "runs", "CPU ratio", "baseline", "change")
    meaning = (
        "CPU ratio: CPU time of the entry over that of a loop of fixed work beside it; more than "
        f"{SLOWER:g} times the baseline's is a regression. Core: {core()}."
    )
    notes = [
        f"{outcome.entry.name}: {text}"
        for outcome in outcomes
        for text in (outcome.why, *outcome.notes)
        if text
    ]
    changes = [row for outcome in outcomes for row in _changes(outcome)]
    print_block(console, text_table(heads, rows, "Benchmarks"))
    for block in (*blocks.notes([meaning]), *blocks.cautions(notes)):
        print_block(console, block)
    if changes:
        titles = ("entry", "variant", "quantity", "baseline", "now", "change")
        print_block(console, text_table(titles, changes, "What changed"))


def print_growths(console: Console, growths: Sequence[Growth]) -> None:
    """Print how the counted work of each grows."""
    rows = [
        (
            growth.what,
            growth.unit,
            "as allowed" if growth.is_allowed else "too fast",
            *(" to ".join(f"{each:,}" for each in pair) for pair in (growth.sizes, growth.work)),
            f"{growth.exponent:.2f}",
            f"{growth.most:g}",
        )
        for growth in growths
    ]
    heads = ("what", "counted", "result", "sizes", "work", "exponent", "at most")
    meaning = (
        "Exponent: the work grows as the size to this power. It is counted, the same on any "
        "machine."
    )
    print_block(console, text_table(heads, rows, "Growth of counted work"))
    for note in blocks.notes([meaning]):
        print_block(console, note)


def _speed(outcome: EntryResult) -> tuple[str, str, str]:
    if outcome.speed is None:
        return "", "", ""
    expected = outcome.entry.expected
    before = None if expected is None else expected.cpu.get(core())
    now = outcome.speed.ratio
    if before is None:
        return f"{now:.3g}", "", ""
    return f"{now:.3g}", f"{before:.3g}", f"{percent(now / before - 1, fine=True)} %"


def _changes(outcome: EntryResult) -> Iterator[tuple[str, ...]]:
    for change in outcome.changes[:MOST_ROWS]:
        yield outcome.entry.name, change.variant, change.quantity, *_cells(change)
    if rest := unlisted(len(outcome.changes), MOST_ROWS):
        yield outcome.entry.name, "", rest, "", "", ""


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
