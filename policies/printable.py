"""Text of others (names, values of traces, messages) made safe to show on a terminal."""

from typing import Final

_HIDDEN: Final = (
    *(code for code in range(0x20) if chr(code) not in "\n\t"),  # C0: escape sequences begin here
    *range(0x7F, 0xA0),  # C1: the same sequences in one character
    0x2028,
    0x2029,  # separators of lines and paragraphs
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),  # direction of the text
    *range(0xD800, 0xE000),  # halves of surrogate pairs, which no encoding writes
)

_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _HIDDEN}


def printable(text: str) -> str:
    """The text with control characters as escapes of JSON, but for line feeds and tabs.

    JSON stays JSON of the same values.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)
