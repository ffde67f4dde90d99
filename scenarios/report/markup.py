"""HTML as a tree, so that no text of a scenario can become markup."""

from __future__ import annotations

import json
from typing import Any
from xml.etree.ElementTree import Element, tostring

Inside = Element | str | None


def tag(name: str, *inside: Inside, **attributes: object) -> Element:
    """An element.

    Args:
        name: Of the element.
        inside: Elements and texts, in order; None is left out.
        attributes: `_` stands for `-`; one at the end is dropped, as in `class_`.
    """
    made = Element(name)
    for key, value in attributes.items():
        made.set(key.rstrip("_").replace("_", "-") if key != "viewBox" else key, str(value))
    for one in inside:
        if isinstance(one, Element):
            made.append(one)
        elif one and len(made):
            made[-1].tail = (made[-1].tail or "") + one
        elif one:
            made.text = (made.text or "") + one
    return made


def html(element: Element) -> str:
    """The element as HTML, with all texts escaped."""
    return tostring(element, encoding="unicode", method="html")


def embedded(content: Any) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
