"""Section of a page on jobs with deadlines: what each saves, and how much it could."""

from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.times.deadlines import (
    HEADS,
    deadline_notes,
    deadline_rows,
    deadline_title,
)
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_labelled_table, tag
from wattkeeper.scenarios.report.phrases import typeset_minus

NAMES = ("variant", "against")
"""Columns without numbers."""


def deadlines_section(summary: Json) -> Element | None:
    """The section; None where no job has a deadline, or what jobs use is unknown."""
    if "deadlines" not in summary:
        return None
    rows = [
        [
            cell if head in NAMES else typeset_minus(cell)
            for head, cell in zip(HEADS, cells, strict=True)
        ]
        for cells in deadline_rows(summary)
    ]
    return tag(
        "section",
        tag("h2", deadline_title(summary)),
        build_labelled_table(HEADS, rows),
        *markup.notes(list(deadline_notes(summary))),
        id="deadlines",
    )
