"""What results of a search for architectures show: what its zoo saves."""

from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from typing_extensions import override

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.savings import (
    is_noise,
    point_labels,
    savings_labels,
    savings_note,
)
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import SHARES
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import (
    Cell,
    Paragraph,
    Small,
    Span,
    Strong,
    Table,
    TableRow,
    Text,
)
from wattkeeper.scenarios.document.replayed import ReplayedPresenter
from wattkeeper.scenarios.document.words import join_list, name_of, unsigned
from wattkeeper.scenarios.spec.wording import count, percent


class SearchPresenter(ReplayedPresenter):
    """See the module."""

    compares_runs: ClassVar[bool] = False

    @override
    def tell(self, study: Study) -> Iterator[Paragraph]:
        return describe_savings(study.summary)

    @override
    def list_variants(self, summary: Json) -> Iterator[Table]:
        if summary["saved"]:
            yield _savings_table(summary)

    @override
    def warn(self, summary: Json) -> Iterator[str]:
        yield from ()  # the note on savings tells what was measured


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
        for key, noun in point_labels(summary).items():
            bounds_text = ", ".join(f"{bound:+.2f}" for bound in saved[key]["ci95"] or ())
            words.append(f"; {noun} {saved[key]['mean']:+.2f} points")
            words += [Small(f" [{bounds_text}]")] * bool(bounds_text)
        yield Paragraph("answer" if index else "lead", [*words, "."])


def _savings_table(summary: Json) -> Table:
    """What the zoo of a search saves, with intervals."""
    points = point_labels(summary)
    titles = savings_labels(summary) | points
    rows = []
    for name, saved in summary["saved"].items():
        cells = []
        for key in titles:
            value, interval = saved[key]["mean"], saved[key]["ci95"]
            is_points = key in points
            text = _points if is_points else percent
            bounds = f"[{', '.join(map(text, interval))}]" if interval else ""
            cells.append(
                Cell((f"{text(value)} {'points' if is_points else '% saved'}",), "", bounds)
            )
        rows.append(TableRow((name_of(name, list(summary["variants"])),), cells))
    return Table(blocks.heads("variant", *titles.values()), rows, caption=savings_note(summary))


def _points(value: float) -> str:
    return f"{value:+.2f}"


FOUND_NOTE: Final = (
    "work: epochs times parameters, in percent of that of as many mean trainings from scratch. "
    "best accuracy: on the validation set, of the trainings that had ended by then; mean over "
    "seeds [95 % interval]."
)
RECORDED_NOTE: Final = (
    "saved: share of the work of the same networks from scratch, of recorded trainings from "
    "parents alone. Variants train other networks: this does not compare their parents."
)


TOLD: Final = ("10", "50")
"""Percentages of work that sentences tell."""


class TabularPresenter(SearchPresenter):
    """What a search on a recorded table found for its work.

    Times are no metrics: where parents are modelled, no ratio of them may be shown.
    """

    @override
    def metrics(self, summary: Json) -> tuple[str, ...]:
        return SHARES

    @override
    def tell(self, study: Study) -> Iterator[Paragraph]:
        summary = study.summary
        names = list(summary["variants"])
        for index, (name, found) in enumerate(summary["found"].items()):
            text: list[Span] = [name_of(name, names), " has found "]
            for share, best in found["best"].items():
                if share in TOLD:
                    shown = "nothing" if best is None else _accuracy(best)
                    text += [Strong(shown), Small(_bounds(best)), f" at {share} % of the work"]
                    text += [" and " if share != TOLD[-1] else "; "]
            recorded = found["trainings"] - found["modelled"]
            text += [f"{recorded:,} of its {found['trainings']:,} trainings were recorded."]
            yield Paragraph("answer" if index else "lead", text)

    @override
    def list_variants(self, summary: Json) -> Iterator[Table]:
        names = list(summary["variants"])
        shares = list(next(iter(summary["found"].values()))["best"])
        rows = [
            TableRow(
                (name_of(name, names),),
                [_cell(found["best"][share], _accuracy) for share in shares],
            )
            for name, found in summary["found"].items()
        ]
        heads = blocks.heads("best accuracy at work of", *(f"{share} %" for share in shares))
        yield Table(heads, rows, caption=FOUND_NOTE)
        rows = [
            TableRow(
                (name_of(name, names),),
                [
                    Cell((str(found["trainings"]),)),
                    Cell((str(found["recorded"]),)),
                    Cell((str(found["modelled"]),)),
                    _cell(found["recorded_saved"], _saved),
                ],
            )
            for name, found in summary["found"].items()
        ]
        titles = ("trainings", "from parents: recorded", "modelled", "saved, of recorded ones")
        yield Table(blocks.heads("variant", *titles), rows, caption=RECORDED_NOTE)

    @override
    def warn(self, summary: Json) -> Iterator[str]:
        modelled = sum(found["modelled"] for found in summary["found"].values())
        if modelled:
            trainings = sum(found["trainings"] for found in summary["found"].values())
            yield (
                f"{modelled:,} of {count(trainings, 'training')} are modelled by what a fitted "
                "model expects of their parents: no ratio between choices of parents follows from "
                "these searches."
            )


def _accuracy(found: Json) -> str:
    return f"{100 * found['mean']:.2f} %"


def _saved(found: Json) -> str:
    return f"{percent(found['mean'])} %"


def _bounds(found: Json | None) -> str:
    bounds = None if found is None else found["ci95"]
    return f" [{', '.join(f'{100 * bound:.2f}' for bound in bounds)}]" if bounds else ""


def _cell(found: Json | None, text: Callable[[Json], str]) -> Cell:
    return Cell(("-",)) if found is None else Cell((text(found),), "", _bounds(found).strip())
