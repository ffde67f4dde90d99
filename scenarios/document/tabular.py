"""What results of a search on a recorded table show: what it found for its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from typing_extensions import override

from wattkeeper.policies.json_types import Json
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
)
from wattkeeper.scenarios.document.search import SearchPresenter
from wattkeeper.scenarios.document.words import name_of
from wattkeeper.scenarios.spec.wording import count, percent

NOTE: Final = (
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
    """See the module."""

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
        yield Table(heads, rows, caption=NOTE)
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
