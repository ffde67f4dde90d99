"""Names of traces: safe as a folder name on any system."""

import re

from wattkeeper.policies.errors import InputError

PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST = 100


def is_name(text: str) -> bool:
    """Whether a text is allowed as a trace's name."""
    return len(text) <= LONGEST and PATTERN.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the name if it is allowed.

    Raises:
        InputError: If it is not; the message says what is allowed.
    """
    if not is_name(text):
        raise InputError(
            f"trace name {text!r}: allowed are up to {LONGEST} letters, digits, '.', '_' and '-', "
            "with a letter or digit first"
        )
    return text


def derive_name(text: str) -> str:
    """The nearest allowed name; ``trace`` if no character of the text is allowed."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:LONGEST]
    return cleaned or "trace"
