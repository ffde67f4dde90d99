"""Section of a page on a league of bandits."""

from collections.abc import Collection, Iterator, Sequence
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.league import League, league_table, rank_variants
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_labelled_table, tag
from wattkeeper.scenarios.report.phrases import FUTURE, typeset_minus, variant_sentence


def league_sentences(
    leagues: Sequence[tuple[str, League]], oracles: Collection[str], names: Json
) -> Iterator[Element]:
    """The variants by regret; those that know the future come last."""
    against = leagues[0][1]["against"]
    ranked = sorted(rank_variants(leagues), key=lambda row: row[0] in oracles)
    for name, mean, least, most in ranked:
        low, high = f"{least:.2f}", f"{most:.2f}"
        spread = "" if low == high else f", {low} to {high} by condition"
        yield variant_sentence(
            name,
            names,
            *([FUTURE] if name in oracles else []),
            ": ",
            tag("strong", f"{mean:.2f}"),
            f" times the regret of {against}{spread}.",
        )


def league_section(leagues: Sequence[tuple[str, League]]) -> Element | None:
    """The section; None where there is no league. Each comes with its conditions in words."""
    if not leagues:
        return None
    names, blocks, note = league_table(leagues)
    table = build_labelled_table(
        ["", *names],
        [
            [figure.title, *(typeset_minus(figure.cells[name]) for name in names)]
            for block in blocks
            for figure in block.figures
        ],
    )
    return tag(
        "section",
        tag("h2", f"Regret over that of {leagues[0][1]['against']}"),
        tag("div", table, class_="scroll"),
        *markup.notes([note]),
        id="league",
    )
