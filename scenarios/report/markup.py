"""HTML as a tree, so that no text of a scenario can become markup."""

import json
from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element, tostring

from wattkeeper.policies.printable import printable


def tag(name: str, *content: Element | str | None, **attributes: object) -> Element:
    """Make an element.

    Args:
        name: Name of the element.
        content: Elements and texts, in order; None is left out.
        attributes: `_` stands for `-`; one at the end is dropped, as in `class_`.
    """
    element = Element(name)
    for key, value in attributes.items():
        element.set(key.rstrip("_").replace("_", "-") if key != "viewBox" else key, str(value))
    for part in content:
        if isinstance(part, Element):
            element.append(part)
        elif part and len(element):
            element[-1].tail = (element[-1].tail or "") + part
        elif part:
            element.text = (element.text or "") + part
    return element


def notes(lines: Iterable[str], class_: str = "note") -> list[Element]:
    """A paragraph for each line."""
    return [tag("p", line, class_=class_) for line in lines]


def build_table(
    titles: Iterable[str], rows: Iterable[Element], caption: str | None = None, **attributes: object
) -> Element:
    """A table with titles of its columns."""
    heads = [tag("th", title, scope="col") for title in titles]
    content = [tag("thead", tag("tr", *heads)), tag("tbody", *rows)]
    return tag("table", *content, caption and tag("caption", caption), **attributes)


def to_html(element: Element) -> str:
    """The element as HTML, with all texts escaped."""
    return printable(tostring(element, encoding="unicode", method="html"))


def to_script_json(content: Mapping[str, object]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def build_labelled_table(heads: Sequence[str], texts: Iterable[Sequence[str]]) -> Element:
    """A table of texts whose first column names the row; cells know the title of their column."""
    rows = []
    for label, *values in texts:
        cells = zip(heads[1:], values, strict=True)
        rows.append(
            tag(
                "tr",
                tag("th", label, scope="row"),
                *(tag("td", value, data_label=head) for head, value in cells),
            )
        )
    return build_table(heads, rows, class_="cards")
