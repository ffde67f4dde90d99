"""What happens to a policy that is rehearsed, and how it is asked."""

from collections.abc import Callable
from typing import Any, Final, Literal

Step = tuple[Literal["submit", "end"], int]
"""A step, and a number that says which one.

`submit`: a job of a group; a node that comes; a model that is offered to a store. `end`: an
attempt; a node that is lost; a stored model that is used.
"""

Ask = Callable[..., Any]
"""Calls a method of the policy, by name, with views; it takes down the answer."""

LONG: Final[list[Step]] = [("submit", n) for n in (0, 1, 0, 2)] + [
    (action, n % 7)
    for n in range(300)
    for action in (("end", "submit") if n % 5 else ("end", "end", "submit", "submit"))
]
"""A stream of 727 steps."""
