"""Section of a page on a league of bandits."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from wattkeeper.scenarios.analysis.learning.league import League, league_table
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_labelled_table, tag
from wattkeeper.scenarios.report.phrases import typeset_minus


def league_section(leagues: Sequence[tuple[str, League]]) -> Element | None:
    """The section; None where there is no league. Each comes with its conditions in words."""
    if not leagues:
        return None
    heads, rows, note = league_table(leagues)
    table = build_labelled_table(heads, [[row[0], *map(typeset_minus, row[1:])] for row in rows])
    return tag("section", tag("h2", f"Regret over that of {leagues[0][1]['against']}"),
               tag("div", table, class_="scroll"), *markup.notes([note]), id="league")  # fmt: skip
