"""What a name that is not known may have been meant to be."""

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question with the known name that is most alike; empty if none is alike.

    It follows a word in a message: a space and parentheses are a part of it. Case does not count.
    """
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, 1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""
