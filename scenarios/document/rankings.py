"""Rankings of variants in sentences: of bandits in a league, with its table, and of a search."""

from collections.abc import Collection, Iterator, Sequence

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.league import League, league_table, rank_variants
from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import (
    Cell,
    Chapter,
    Paragraph,
    Small,
    Span,
    Strong,
    Table,
    TableRow,
    Text,
)
from wattkeeper.scenarios.document.words import FUTURE, join_list, name_of
from wattkeeper.scenarios.spec.wording import percent


def rank_in_words(
    leagues: Sequence[tuple[str, League]], oracles: Collection[str], names: Sequence[str]
) -> Iterator[Paragraph]:
    """The variants by regret, the best first; those that know the future come last."""
    against = leagues[0][1]["against"]
    ranked = sorted(rank_variants(leagues), key=lambda row: row[0] in oracles)
    for index, (name, mean, least, most) in enumerate(ranked):
        low, high = f"{least:.2f}", f"{most:.2f}"
        spread = "" if low == high else f", {low} to {high} by condition"
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


def describe_savings(summary: Json) -> Iterator[Paragraph]:
    """A sentence for each variant, the one that saves most work first."""
    ordered = sorted(summary["saved"].items(), key=lambda item: -item[1]["work"]["mean"])
    for index, (name, saved) in enumerate(ordered):
        clear: list[Text] = []
        unclear: list[Text] = []
        for key, noun in savings_labels(summary).items():
            mean, interval = saved[key]["mean"], saved[key]["ci95"]
            text = f"{percent(abs(mean)).removeprefix('+')} %"
            bounds = f" [{', '.join(map(percent, interval))}]" if interval else ""
            if is_noise(saved[key]):
                unclear.append([f"{noun} ({text}", Small(bounds), ")"])
            else:
                more = " more" * (mean < 0)
                clear.append([Strong(f"{text}{more}"), f" of {noun}", Small(bounds)])
        words: list[Span] = [name_of(name, list(summary["variants"]))]
        words += [" saves ", *join_list(clear)] if clear else []
        if unclear:
            seeds = saved["work"]["n"]
            words += ["; " if clear else ": ", f"open with {seeds} seeds: ", *join_list(unclear)]
        accuracy = saved["accuracy_points"]
        interval = ", ".join(f"{bound:+.2f}" for bound in accuracy["ci95"] or ())
        bounds = f" [{interval}]" * bool(interval)
        words += [f"; final accuracy {accuracy['mean']:+.2f} points", Small(bounds), "."]
        yield Paragraph("answer" if index else "lead", words)
