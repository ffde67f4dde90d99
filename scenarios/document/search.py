"""What results of a search for architectures show: what its zoo saves."""

from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.savings import (
    is_noise,
    point_labels,
    savings_labels,
    savings_note,
)
from wattkeeper.scenarios.analysis.study import Study
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
from wattkeeper.scenarios.spec.wording import percent


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
