"""Text of counts, changes in per cent and values of a sweep's axes."""

from __future__ import annotations

import json


def count(number: float, noun: str) -> str:
    """How many there are of something, as `1 job` or `1,200 jobs`."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"
    return f"{shown} {plural(number, noun)}"


def plural(number: float, noun: str) -> str:
    """A regular noun in the right number."""
    return noun if number == 1 else f"{noun}s"


def do(number: int, verb: str) -> str:
    """What so many do, as `1 asks` or `2 ask`: a regular verb in the right number."""
    return f"{number:,} {verb}s" if number == 1 else f"{number:,} {verb}"


def unlisted(rows: int, listed: int) -> str:
    """What to say of rows that are not listed; empty if all are."""
    left = rows - listed
    return f"... and {left:,} more (--json has all)" if left > 0 else ""


def percent(share: float, *, fine: bool = False) -> str:
    """A change in per cent, with its sign and without the unit.

    Args:
        share: The change as a share of what it was: a ratio less 1.
        fine: Whether changes below 1 % keep two significant digits, so that they are seen.
    """
    change = round(100 * share, 6 if fine else 1) + 0.0  # never -0.0
    return f"{change:+.2g}" if fine and 0 < abs(change) < 1 else f"{change:+,.1f}"


def axis_text(value: object) -> str:
    """A value of a sweep's axis: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
