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
from wattkeeper.scenarios.document.words import FUTURE, join_list, name_of, unsigned


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


def describe_savings(summary: Json) -> Iterator[Paragraph]:
    """What the zoo of a search saves: a sentence for each variant, the best in work first."""
    ordered = sorted(summary["saved"].items(), key=lambda item: -item[1]["work"]["mean"])
    for index, (name, saved) in enumerate(ordered):
        saves: list[Text] = []
        takes: list[Text] = []
        unclear: list[Text] = []
        for key, noun in savings_labels(summary).items():
            mean, interval = saved[key]["mean"], saved[key]["ci95"]
            sign = 1 if mean >= 0 or is_noise(saved[key]) else -1
            bounds = sorted(sign * bound for bound in interval or ())
            shown = f" [{', '.join(map(unsigned, bounds))}]" * bool(bounds)
            text = f"{unsigned(sign * mean)} %"
            if is_noise(saved[key]):
                unclear.append([f"{noun} ({text}", Small(shown), ")"])
            elif mean >= 0:
                saves.append([Strong(text), f" of {noun}", Small(shown)])
            else:
                takes.append([Strong(f"{text} more"), f" {noun}", Small(shown)])
        seeds = saved["work"]["n"]
        parts: list[list[Span]] = []
        parts += [["saves ", *join_list(saves)]] * bool(saves)
        parts += [["takes ", *join_list(takes)]] * bool(takes)
        parts += [[f"leaves open with {seeds} seeds: ", *join_list(unclear)]] * bool(unclear)
        words: list[Span] = [name_of(name, list(summary["variants"])), " "]
        for number, part in enumerate(parts):
            words += ["; "] * bool(number)
            words += part
        accuracy = saved["accuracy_points"]
        bounds_text = ", ".join(f"{bound:+.2f}" for bound in accuracy["ci95"] or ())
        words.append(f"; final accuracy {accuracy['mean']:+.2f} points")
        words += [Small(f" [{bounds_text}]")] * bool(bounds_text)
        yield Paragraph("answer" if index else "lead", [*words, "."])
