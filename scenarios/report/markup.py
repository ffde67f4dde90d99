"""HTML as a tree, so that no text of a scenario can become markup."""

import json
from collections.abc import Mapping
from xml.etree.ElementTree import Element, tostring

from wattkeeper.policies.printable import printable

CAMEL = ("viewBox", "preserveAspectRatio")
"""Attributes of SVG that have no `-`."""


def tag(name: str, *content: Element | str | None, **attributes: object) -> Element:
    """Make an element.

    Args:
        name: Name of the element.
        content: Elements and texts, in order; None is left out.
        attributes: `_` stands for `-`; one at the end is dropped, as in `class_`.
    """
    element = Element(name)
    for key, value in attributes.items():
        element.set(key.rstrip("_").replace("_", "-") if key not in CAMEL else key, str(value))
    for part in content:
        if isinstance(part, Element):
            element.append(part)
        elif part and len(element):
            element[-1].tail = (element[-1].tail or "") + part
        elif part:
            element.text = (element.text or "") + part
    return element


def to_html(element: Element) -> str:
    """The element as HTML, with all texts escaped."""
    return printable(tostring(element, encoding="unicode", method="html"))


def to_script_json(content: Mapping[str, object]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
