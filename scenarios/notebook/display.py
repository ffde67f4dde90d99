"""How a notebook displays results: the answer of their page, and its table.

What draws and writes is imported when it is asked for: a run makes studies that nobody displays.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wattkeeper.scenarios.analysis.study import StoredStudy, Study, read

if TYPE_CHECKING:
    import pandas as pd

    from wattkeeper.scenarios.document.blocks import Document
    from wattkeeper.scenarios.notebook.plots import StudyPlots


class DisplayedStudy(Study):
    """A study that notebooks display, with plots."""

    @cached_property
    def plot(self) -> StudyPlots:
        """Plots of the study."""
        from wattkeeper.scenarios.notebook.plots import StudyPlots

        return StudyPlots(self)

    @cached_property
    def regret(self) -> pd.DataFrame:
        """Jobs, cost and regret (J), a row for each recurrence of a workload in a run.

        What several groups of the workload have at one recurrence is summed up. Regret is absent
        where no best configuration is known, and where the workload's jobs differ in their GPUs.
        """
        from wattkeeper.scenarios.notebook.regret import tabulate_regret

        return tabulate_regret(self)

    def _repr_html_(self) -> str:
        from wattkeeper.scenarios.document.study import describe_study

        return to_fragment(describe_study(self, with_charts=False))


class SavedStudy(DisplayedStudy, StoredStudy):
    """A study in a folder."""


def open_study(folder: Path) -> SavedStudy:
    """Read the study in a folder; see `wattkeeper.scenarios.analysis.study.read`."""
    stored = read(folder)
    return SavedStudy(stored.folder, stored.manifest, stored.summary)


def to_fragment(document: Document) -> str:
    """HTML of the parts of a document that are for all media, with the style that they need."""
    from wattkeeper.scenarios.report.html import section
    from wattkeeper.scenarios.report.markup import tag, to_html

    body = [section(part) for part in document.sections if part.place == "all"]
    title = tag("h1", document.title)
    return to_html(tag("div", tag("style", _read_style()), title, *body, class_="wattkeeper"))


@cache
def _read_style() -> str:
    """The style, with the colours of the page; the first is that of text, as themes differ."""
    from wattkeeper.scenarios.notebook.colours import SHEETS, variant_colours

    colours = "currentColor", *variant_colours()[1:]
    variables = " ".join(f"--v{index}: {colour};" for index, colour in enumerate(colours))
    return f".wattkeeper {{ {variables} }}\n{SHEETS.joinpath('notebook.css').read_text('utf-8')}"
