"""The blocks of a document: paragraphs, tables of typed cells, facts and charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from wattkeeper.scenarios.charts.chart import Chart


class Name(NamedTuple):
    """The name of a variant; its number among all decides its colour."""

    text: str
    number: int


class Strong(NamedTuple):
    """A figure or a statement that stands out."""

    text: str


class Small(NamedTuple):
    """A remark in small print, as an interval."""

    text: str


class Code(NamedTuple):
    """What somebody types."""

    text: str


class InputOrigin(NamedTuple):
    """Where an input comes from; a warning if it was made up."""

    text: str
    is_made_up: bool


Span: TypeAlias = str | Name | Strong | Small | Code | InputOrigin
Text: TypeAlias = Sequence[Span]

Role: TypeAlias = Literal["lead", "answer", "caution", "note"]


class Paragraph(NamedTuple):
    """A sentence or several.

    Roles: the `lead` is the answer to the question of a study, `answer` a further part of it;
    a `caution` belongs before the figures, a `note` says what figures mean.
    """

    role: Role
    text: Text


class Whisker(NamedTuple):
    """A change and its interval in a cell, on a scale from -`span` to `span`; 0 is the baseline."""

    value: float
    low: float
    high: float
    span: float


class RangeBar(NamedTuple):
    """A bar from 0 to `value` with its range, on a scale from `least` to `most`.

    `is_modelled`: the value comes from a model and was not measured.
    """

    value: float
    low: float
    high: float
    least: float
    most: float
    is_modelled: bool


class StackedBar(NamedTuple):
    """Parts side by side: label, value and colour of the style sheet; `most` fills the width."""

    parts: Sequence[tuple[str, float, str]]
    most: float


class Cell(NamedTuple):
    """A cell: its value, and below it what it says of a change.

    Attributes:
        value: The value in its unit.
        change: Its change against the baseline.
        interval: The 95 % interval of the change.
        verdict: What can be said of the change.
        effect: Its effect size, d_z.
        mark: A small chart.
    """

    value: Text
    change: str = ""
    interval: str = ""
    verdict: str = ""
    effect: float | None = None
    mark: Whisker | RangeBar | StackedBar | None = None


class TableRow(NamedTuple):
    """A row of a table; rows of one `group` that follow each other share its name."""

    head: Text
    cells: Sequence[Cell]
    group: str = ""


class Head(NamedTuple):
    """The head of a column; `key` is the colour of the parts of bars that it names."""

    text: str
    key: str = ""


class Table(NamedTuple):
    """A table: the first head is that of the rows.

    Attributes:
        heads: Those of the groups, if rows have any, of the rows, and of the cells.
        rows: The rows.
        title: What stands above it, where it is not alone in its section.
        caption: What stands below it.
        texts: Whether cells hold words, not figures.
    """

    heads: Sequence[Head]
    rows: Sequence[TableRow]
    title: str = ""
    caption: str = ""
    texts: bool = False


class Facts(NamedTuple):
    """Names and their values, of which there may be several."""

    rows: Sequence[tuple[str, Sequence[Text]]]


class Verbatim(NamedTuple):
    """A text that is shown as it is."""

    text: str


class Figure(NamedTuple):
    """A chart, which only pages draw."""

    chart: Chart


class Fold(NamedTuple):
    """Blocks that are shown on demand."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Paragraph | Table | Facts | Verbatim | Figure | Fold


class Chapter(NamedTuple):
    """Blocks under a heading.

    Attributes:
        id: Its name in the page.
        title: The heading; empty: there is none.
        blocks: What it holds.
        place: Where it is shown: in `all` media, on `screens` (page and terminal), or on the `page`
            alone.
    """

    id: str
    title: Text
    blocks: Sequence[Block]
    place: Literal["all", "screens", "page"] = "all"


class Document(NamedTuple):
    """What results say.

    Attributes:
        name: Of the scenario.
        title: The question.
        variants: Names of the variants, in the order of their colours.
        sections: Its parts; the first is the answer.
    """

    name: str
    title: str
    variants: Sequence[str]
    sections: Sequence[Chapter]


def caution(*text: Span) -> Paragraph:
    """A paragraph that belongs before the figures."""
    return Paragraph("caution", text)


def cautions(lines: Iterable[str]) -> Iterator[Paragraph]:
    """A caution for each line."""
    return (caution(line) for line in lines)


def notes(lines: Iterable[str]) -> Iterator[Paragraph]:
    """A note for each line."""
    return (Paragraph("note", (line,)) for line in lines)


def heads(*texts: str) -> tuple[Head, ...]:
    """Heads without keys."""
    return tuple(map(Head, texts))


def text_table(titles: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """A table of plain texts, whose first column names the row."""
    return Table(
        heads(*titles),
        [TableRow((head,), [Cell((value,)) for value in values]) for head, *values in rows],
        title,
    )


def plain(text: Text) -> str:
    """A text without its marks."""
    return "".join(span if isinstance(span, str) else span.text for span in text)
