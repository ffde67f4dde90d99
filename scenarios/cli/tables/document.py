"""Documents on the terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text as Line

from wattkeeper.policies.printable import printable
from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Code,
    Document,
    Facts,
    Figure,
    Fold,
    InputOrigin,
    Name,
    Paragraph,
    RangeBar,
    Span,
    StackedBar,
    Strong,
    Table,
    Text,
    Verbatim,
    plain,
)
from wattkeeper.traces.describe.text import NUMBER

STYLES: Final = {"lead": "bold", "answer": "", "caution": "bold yellow", "note": "dim"}
"""The style of a paragraph by its role."""

DOUBTS: Final = ("noise", "cannot tell")
"""Verdicts that a cell shows; others follow from its interval."""

BAR: Final = 20
"""Characters of a bar."""

EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

NARROWEST_NAMES: Final = 12
"""Names fold to this width before figures wrap."""


def print_document(console: Console, document: Document) -> None:
    """Print the title and the sections of a document that are for all media or for screens."""
    name = "" if document.name == document.title else f"{document.name}: "
    _print_line(console, Line.assemble(*map(_plain, ((name, "dim"), (document.title, "bold")))))
    for section in document.sections:
        if section.place == "page":
            continue
        if section.title:
            console.print()
            console.print(printable(plain(section.title)), style="italic")
        for block in section.blocks:
            print_block(console, block)


def print_block(console: Console, block: Block) -> None:
    """Print a block; charts are left out."""
    match block:
        case Paragraph(role, text):
            line = _line(text)
            line.stylize_before(STYLES[role])
            _print_line(console, line)
        case Table():
            print_whole(console, _grid(block))
            if block.caption:
                console.print(block.caption, style="dim")
        case Facts(rows):
            for name, values in rows:
                for value in values:
                    _print_line(console, Line.assemble((f"{name}: ", "dim"), _line(value)))
        case Verbatim(text):
            console.print(text)
        case Fold(title, inner):
            console.print(title, style="italic")
            for each in inner:
                print_block(console, each)
        case Figure():
            pass


def _print_line(console: Console, line: Line) -> None:
    """Print a text in lines of the width of the terminal, without spaces at their ends."""
    for part in line.wrap(console, console.width):
        part.rstrip()
        console.print(part, soft_wrap=True)


def _line(text: Text) -> Line:
    return Line.assemble(*(_plain(_style(span)) for span in text))


def _style(span: Span) -> tuple[str, str]:
    match span:
        case str():
            return span, ""
        case Name(text, _) | Strong(text):
            return text, "bold"
        case InputOrigin(text, is_made_up):
            return text, "bold yellow" if is_made_up else ""
        case Code(text):
            return f"`{text}`", ""
    return span.text, ""


def _plain(styled: tuple[str, str]) -> tuple[str, str]:
    """A text whose control characters are escaped, and its style."""
    return printable(styled[0]), styled[1]


def _grid(table: Table) -> Grid:
    """A table for the terminal, without columns that hold nothing but parts of bars."""
    grid = Grid(title=table.title or None, title_justify="left")
    groups = any(row.group for row in table.rows)
    first = 1 + groups
    shown = [
        index
        for index in range(len(table.heads) - first)
        if not any(isinstance(row.cells[index].mark, StackedBar) for row in table.rows)
    ]
    for head in table.heads[:first]:
        grid.add_column(head.text, overflow="fold")
    for index in shown:
        cells = [row.cells[index] for row in table.rows]
        figures = not table.texts and all(map(_is_figure, cells))
        grid.add_column(
            table.heads[first + index].text,
            justify="right" if figures else "left",
            no_wrap=figures,
            overflow="fold",
        )
    group = before = ""
    for number, row in enumerate(table.rows):
        own = [row.group if row.group != group or not number else ""] * groups
        if own and own[0] and number:
            grid.add_section()
        label = _head(row.head)
        name = "" if label == before and not groups else label
        grid.add_row(*own, name, *(_cell(row.cells[index]) for index in shown))
        group, before = row.group, label
    return grid


def _head(text: Text) -> str:
    """The head of a row; remarks in small print stand behind it."""
    first, *rest = (span if isinstance(span, str) else span.text for span in text)
    return first + "".join(f" ({remark})" for remark in rest)


def _is_figure(cell: Cell) -> bool:
    if isinstance(cell.mark, RangeBar):
        return False
    value = plain(cell.value)
    return bool(cell.change or cell.interval or NUMBER.fullmatch(value) or value[:1].isdigit())


def _cell(cell: Cell) -> str:
    """The value and its change, and in further lines the interval and the verdict."""
    if isinstance(cell.mark, RangeBar):
        return _bar(cell.mark)
    value = _head(cell.value) if cell.value else ""
    verdict = cell.verdict if cell.verdict in DOUBTS else ""
    first = "  ".join(filter(None, (value, cell.change)))
    return "\n".join(filter(None, (first, " ".join(filter(None, (cell.interval, verdict))))))


def _bar(mark: RangeBar) -> str:
    """A bar from 0; light where it comes from a model."""
    width = mark.most - mark.least or 1.0
    begin, end = sorted(BAR * (value - mark.least) / width for value in (0.0, mark.value))
    if mark.is_modelled:
        return " " * round(begin) + "░" * max(1, round(end - begin))
    whole, part = divmod(round(8 * (end - round(begin))), 8)
    return " " * round(begin) + "█" * whole + EIGHTHS[part].strip()


def print_whole(console: Console, grid: Grid) -> None:
    """Print a table without cutting its cells.

    Columns that wrap, such as names, get narrower first; if that does not suffice, those that do
    not wrap (`no_wrap`) wrap, too.
    """
    frame = 3 * len(grid.columns) + 1
    widths = [(column, _measure(console, column)) for column in grid.columns]
    least = frame + sum(
        width if column.no_wrap else min(NARROWEST_NAMES, width) for column, width in widths
    )
    for column in grid.columns:
        column.overflow = "fold"
        column.no_wrap = column.no_wrap and least <= console.width
    console.print(grid)


def _measure(console: Console, column: Column) -> int:
    return max(console.measure(cell).maximum for cell in (column.header, *column.cells))
