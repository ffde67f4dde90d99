"""Blocks of a document as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Chapter,
    Code,
    Facts,
    Figure,
    Fold,
    Head,
    InputOrigin,
    Name,
    Paragraph,
    RangeBar,
    Small,
    StackedBar,
    Strong,
    Table,
    TableRow,
    Text,
    Verbatim,
    Whisker,
)
from wattkeeper.scenarios.report.markup import tag

MINUS: Final = re.compile(r"(?<![\w.,)-])-(?=[\d.]*\d)")
"""A hyphen that is the sign of a number."""

NUMERIC: Final = re.compile(r"[+-]?[\d.]")
"""How figures begin."""

COLOURS: Final = 8


def section(part: Chapter) -> Element:
    """A section with its heading."""
    title = tag("h2", *spans(part.title)) if part.title else None
    return tag("section", title, *render(part.blocks), id=part.id)


def render(blocks: Sequence[Block]) -> Iterator[Element]:
    """Elements for blocks; answers that follow each other are a list. Figures are left out."""
    answers: list[Element] = []
    for block in blocks:
        is_answer = isinstance(block, Paragraph) and block.role == "answer"
        if answers and not is_answer:
            yield tag("ul", *answers, class_="answer")
            answers = []
        match block:
            case Paragraph("answer", text):
                answers.append(tag("li", *spans(text), **_accent(text)))
            case Paragraph(role, text):
                yield tag("p", *spans(text), class_=role)
            case Table():
                yield from table(block)
            case Facts(rows):
                yield facts(rows)
            case Verbatim(text):
                yield tag("pre", text)
            case Fold(title, inner):
                yield tag("details", tag("summary", title), *render(inner))
            case Figure():
                pass
    if answers:
        yield tag("ul", *answers, class_="answer")


def _accent(text: Text) -> dict[str, str]:
    """The colour of the variant that a text begins with or is about."""
    first = next((span for span in text if isinstance(span, Name)), None)
    return {} if first is None else {"class_": f"b{first.number % COLOURS}"}


def spans(text: Text) -> Iterator[Element | str]:
    """The parts of a text, with minus signs before numbers."""
    for span in (text,) if isinstance(text, str) else text:
        yield typeset_minus(span) if isinstance(span, str) else _span(span)


def _span(span: Name | Strong | Small | Code | InputOrigin) -> Element:
    match span:
        case Name(text, number):
            return tag("span", swatch(number), text, class_="variant", data_variant=number)
        case Strong(text):
            return tag("strong", typeset_minus(text))
        case Small(text):
            return tag("small", typeset_minus(text))
        case Code(text):
            return tag("code", text)
        case InputOrigin(text, is_made_up):
            return tag("b", text, class_="warn" if is_made_up else "good")


def typeset_minus(text: str) -> str:
    """A text whose numbers have minus signs."""
    return MINUS.sub("−", text)


def swatch(index: int) -> Element:
    """A short line in the colour and dashes of a variant."""
    stroke = f"line v{index % COLOURS} d{index // COLOURS % 3}"
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=stroke)
    return tag("svg", line, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")


def facts(rows: Sequence[tuple[str, Sequence[Text]]]) -> Element:
    """Facts as a list of names and values."""
    lines = []
    for name, values in rows:
        lines += [tag("dt", name), *(tag("dd", *spans(value)) for value in values)]
    return tag("dl", *lines, class_="basis")


def table(block: Table) -> Iterator[Element]:
    """A table; its cells know the titles of their columns, for narrow screens."""
    if block.title:
        yield tag("h3", block.title)
    groups = any(row.group for row in block.rows)
    titles = [head.text for head in block.heads][1 + groups :]
    rows = []
    for index, row in enumerate(block.rows):
        heads = []
        if groups and (not index or block.rows[index - 1].group != row.group):
            span = _count_group(block.rows, index)
            heads.append(tag("th", row.group, rowspan=span, scope="rowgroup"))
        heads.append(tag("th", *spans(row.head), scope="row"))
        cells = (
            _cell(cell, title, block.texts) for cell, title in zip(row.cells, titles, strict=True)
        )
        rows.append(tag("tr", *heads, *cells))
    caption = tag("caption", block.caption) if block.caption else None
    top = tag("thead", tag("tr", *map(_head, block.heads)))
    whole = tag("table", top, tag("tbody", *rows), caption)
    has_bars = any(isinstance(cell.mark, RangeBar) for row in block.rows for cell in row.cells)
    whole.set("class", "plain" if groups else "cards bars" if has_bars else "cards")
    yield tag("div", whole, class_="scroll")


def _count_group(rows: Sequence[TableRow], first: int) -> int:
    """The number of rows of a group from the first one on."""
    name = rows[first].group
    return next((i for i, row in enumerate(rows[first:]) if row.group != name), len(rows) - first)


def _head(head: Head) -> Element:
    if not head.key:
        return tag("th", head.text, scope="col")
    box = tag("rect", width=10, height=10, style=f"fill:var({head.key})")
    key = tag("svg", box, viewBox="0 0 10 10", class_="key", aria_hidden="true")
    return tag("th", key, head.text, scope="col")


def _cell(cell: Cell, title: str, texts: bool) -> Element:
    content: list[Element | str | None] = []
    if isinstance(cell.mark, StackedBar):
        return tag("td", _stacked(cell.mark), class_="bar", data_label=title)
    if isinstance(cell.mark, RangeBar):
        return tag("td", _range_bar(cell.mark), class_="bar", data_label=title)
    first = cell.value[0] if len(cell.value) == 1 else None
    if isinstance(first, str) and not texts and (cell.change or NUMERIC.match(first)):
        content.append(tag("b", typeset_minus(first)))
    else:
        content += spans(cell.value)
    lines = (typeset_minus(text) for text in (cell.change, cell.interval) if text)
    content += [tag("span", line, class_="change") for line in lines]
    if cell.verdict:
        badge = tag("span", cell.verdict, class_=f"badge {cell.verdict.replace(' ', '-')}")
        if cell.effect is not None:
            size = f"effect size {cell.effect:.2f}"
            badge.set("title", f"{size}: mean difference over standard deviation")
        content.append(badge)
    if isinstance(cell.mark, Whisker):
        content.append(_whisker(cell.mark))
    is_text = texts or any(isinstance(span, Name) for span in cell.value)
    return tag("td", *content, data_label=title, **({"class_": "who"} if is_text else {}))


def _whisker(mark: Whisker) -> Element:
    """The change and its interval as an inline chart; the middle line is the baseline."""

    def x(change: float) -> float:
        return round(60 + 54 * max(-1.0, min(1.0, change / mark.span)), 2)

    end = x(mark.value)
    dot = tag("circle", cx=end, cy=7, r=4, class_="dot")
    if abs(mark.value) > mark.span:
        tip = 6 if mark.value > 0 else -6
        dot = tag("path", d=f"M{end - tip} 2 L{end} 7 L{end - tip} 12 Z", class_="dot")
    return tag(
        "svg",
        tag("line", x1=60, y1=0, x2=60, y2=14, class_="zero"),
        tag("line", x1=x(mark.low), y1=7, x2=x(mark.high), y2=7, class_="range"),
        dot,
        viewBox="0 0 120 14",
        class_="whisker",
        aria_hidden="true",
    )


def _range_bar(mark: RangeBar) -> Element:
    """A bar from 0 with a line over its range; hatched where it comes from a model."""
    width = mark.most - mark.least or 1.0

    def place(first: float, last: float) -> str:
        low, high = sorted(100 * (value - mark.least) / width for value in (first, last))
        return f"left:{low:.2f}%;width:{high - low:.2f}%"

    fill = "fill modelled" if mark.is_modelled else "fill"
    parts = [tag("i", class_=fill, style=place(0.0, mark.value))]
    parts.append(tag("i", class_="zero", style=place(0.0, 0.0)))
    if mark.low != mark.high:
        parts.append(tag("i", class_="range", style=place(mark.low, mark.high)))
    return tag("div", *parts, class_="saving", aria_hidden="true")


def _stacked(mark: StackedBar) -> Element:
    """The parts side by side; a bar of the full width is the largest of all variants."""
    whole = sum(value for _, value, _ in mark.parts)
    text = ", ".join(
        f"{label} {100 * value / whole:.1f} %" for label, value, _ in mark.parts if value
    )
    bar = tag(
        "svg",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        class_="stacked",
        aria_label=text or "nothing",
    )
    begin = 0.0
    for _, value, colour in mark.parts:
        width = 100 * value / mark.most if mark.most else 0.0
        if value:
            place = {"x": f"{begin:.3f}", "y": 0, "width": f"{width:.3f}", "height": 10}
            bar.append(tag("rect", **place, style=f"fill:var({colour})"))
        begin += width
    return bar
