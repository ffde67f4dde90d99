"""Text of counts, changes in per cent and values of a sweep's axes."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

MOST_NAMED: Final = 3
"""Largest number of names that each have a line, or stand in one, with the same text."""


def count(number: float, noun: str) -> str:
    """A number and a noun that agrees with it, as `1 job` or `1,200 jobs`."""
    digits = f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"
    return f"{digits} {plural(number, noun)}"


def plural(number: float, noun: str) -> str:
    """A regular noun, singular or plural."""
    return noun if number == 1 else f"{noun}s"


def merge_names(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each name and its text; one for all names of a text, if they are many."""
    named: dict[str, list[str]] = {}
    listed = list(texts)
    for name, text in listed:
        named.setdefault(text, []).append(name)
    for name, text in listed:
        names = named[text]
        if len(names) <= MOST_NAMED:
            yield f"{name}: {text}"
        elif name == names[0]:
            left = len(names) - MOST_NAMED
            yield f"{', '.join(names[:MOST_NAMED])} and {left:,} more: {text}"


def count_verb(number: int, verb: str) -> str:
    """A number and a regular verb that agrees with it, as `1 asks` or `2 ask`."""
    return f"{number:,} {verb}s" if number == 1 else f"{number:,} {verb}"


def unlisted(rows: int, listed: int) -> str:
    """A line that counts the rows that are not listed; empty if all are."""
    left = rows - listed
    return f"... and {left:,} more (--json has all)" if left > 0 else ""


def percent(share: float, *, fine: bool = False) -> str:
    """A change in per cent, with its sign and without the unit.

    Args:
        share: The change, as a share of the old value: a ratio less 1.
        fine: Whether changes below 1 % keep two significant digits.
    """
    change = round(100 * share, 6 if fine else 1) + 0.0  # never -0.0
    return f"{change:+.2g}" if fine and 0 < abs(change) < 1 else f"{change:+,.1f}"


def axis_text(value: object) -> str:
    """A value of a sweep's axis: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
