"""How a notebook displays results: the answer of their page, and its table.

What draws and writes is imported when it is asked for: a run makes studies that nobody displays.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wattkeeper.scenarios.analysis.study import StoredStudy, Study, read

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import pandas as pd

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
        from wattkeeper.scenarios.analysis.learning.window import read_learning_window
        from wattkeeper.scenarios.report.page import describe_variants, write_answer

        window = read_learning_window(self)
        variants = describe_variants(self.manifest, self.summary)
        return to_fragment([*write_answer(self, window), *variants])


class SavedStudy(DisplayedStudy, StoredStudy):
    """A study in a folder."""


def open_study(folder: Path) -> SavedStudy:
    """Read the study in a folder; see `wattkeeper.scenarios.analysis.study.read`."""
    stored = read(folder)
    return SavedStudy(stored.folder, stored.manifest, stored.summary)


def to_fragment(body: Iterable[Element]) -> str:
    """HTML of elements of a page, with the style that they need, to stand in a notebook."""
    from wattkeeper.scenarios.report.markup import tag, to_html

    return to_html(tag("div", tag("style", _read_style()), *body, class_="wattkeeper"))


@cache
def _read_style() -> str:
    """The style, with the colours of the page; the first is that of text, as themes differ."""
    from wattkeeper.scenarios.notebook.colours import SHEETS, variant_colours

    colours = "currentColor", *variant_colours()[1:]
    variables = " ".join(f"--v{index}: {colour};" for index, colour in enumerate(colours))
    return f".wattkeeper {{ {variables} }}\n{SHEETS.joinpath('notebook.css').read_text('utf-8')}"
