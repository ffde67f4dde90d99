"""Bandits in a league: their ranking in sentences, and their table."""

from collections.abc import Collection, Iterator, Sequence

from wattkeeper.scenarios.analysis.learning.league import League, league_table, rank_variants
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import Cell, Chapter, Paragraph, Strong, Table, TableRow
from wattkeeper.scenarios.document.words import FUTURE, name_of


def rank_in_words(
    leagues: Sequence[tuple[str, League]], oracles: Collection[str], names: Sequence[str]
) -> Iterator[Paragraph]:
    """The variants by regret, the best first; those that know the future come last."""
    against = leagues[0][1]["against"]
    ranked = sorted(rank_variants(leagues), key=lambda row: row[0] in oracles)
    for index, (name, mean, least, most) in enumerate(ranked):
        low, high = f"{least:.2f}", f"{most:.2f}"
        spread = "" if low == high else f", {low} to {high} by condition"
        if not index and name == against:
            yield Paragraph("lead", (name_of(name, names), " learns at the least cost."))
            continue
        future = FUTURE if name in oracles else ""
        first = " learns at the least cost: " if not index else f"{future}: "
        yield Paragraph(
            "answer" if index else "lead",
            (
                name_of(name, names),
                first,
                Strong(f"{mean:.2f}"),
                f" times the regret of {against}{spread}.",
            ),
        )


def league_section(leagues: Sequence[tuple[str, League]], names: Sequence[str]) -> Chapter:
    """The regrets of variants, a table for each block; each league has its conditions in words."""
    listed, parts, note = league_table(leagues)
    tables = [
        Table(
            blocks.heads("variant", *(figure.head for figure in part.figures)),
            [
                TableRow(
                    (name_of(name, names),),
                    [Cell((figure.cells[name],)) for figure in part.figures],
                )
                for name in listed
            ],
            part.title,
        )
        for part in parts
    ]
    title = f"Regret over that of {leagues[0][1]['against']}"
    return Chapter("league", (title,), [*tables, *blocks.notes([note])])
