"""Names of traces, variants, models and tasks, and the names of files that are made of them."""

import re
from hashlib import sha256
from typing import Final

from wattkeeper.policies.errors import InputError, cut_message
from wattkeeper.policies.printable import printable

PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"
LONGEST: Final = 100
"""Of names that are names of folders, too."""

LONGEST_LABEL: Final = 200


def is_name(text: str) -> bool:
    """Whether a text is allowed as a trace's name, which is the name of its folder."""
    return len(text) <= LONGEST and re.fullmatch(PATTERN, text) is not None


def check_name(text: str) -> str:
    """Return the name of a trace if it is allowed.

    Raises:
        InputError: If it is not; the message says what is allowed.
    """
    if not is_name(text):
        raise InputError(
            f"trace name {text!r}: allowed are up to {LONGEST} letters, digits, '.', '_' and '-', "
            "with a letter or digit first"
        )
    return text


def explain_label(text: str, what: str) -> str:
    """Why a text is not allowed as the name of a variant, model, task or job; empty if it is.

    These are no names of files. The message begins with `what`, and says what is allowed.
    """
    hidden = printable(text) != text or "\n" in text or "\t" in text
    if 0 < len(text) <= LONGEST_LABEL and not hidden:
        return ""
    allowed = f"1 to {LONGEST_LABEL} characters, none of them a control character"
    return f"{what} {cut_message(text, LONGEST)!r}: allowed are {allowed}"


def check_label(text: str, what: str) -> str:
    """Return the name of a variant, model, task or job if it is allowed.

    Raises:
        InputError: If it is not; see `explain_label`.
    """
    if problem := explain_label(text, what):
        raise InputError(problem)
    return text


def derive_name(text: str) -> str:
    """The nearest allowed name; ``trace`` if no character of the text is allowed."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:LONGEST]
    return cleaned or "trace"


def file_name(text: str) -> str:
    """A name of a file or folder for any text; different texts have different ones.

    The text itself if it is a name (with `#`, as of attempts), else the nearest name and a digest.
    """
    if is_name(text.replace("#", "_")):
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"_{re.sub('[^A-Za-z0-9._#-]+', '-', text)[:40]}-{digest}"
