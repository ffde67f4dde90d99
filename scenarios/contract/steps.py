"""What happens to a policy that is rehearsed."""

from typing import Final, Literal

Step = tuple[Literal["submit", "end"], int]
"""A step, and a number that says which one.

`submit`: a job of a group, which trains a model where the policy decides on a store; a node that
comes. `end`: time passes, in which attempts end; a node that is lost.
"""

LONG: Final[list[Step]] = [("submit", n) for n in (0, 1, 0, 2)] + [
    (action, n % 7)
    for n in range(300)
    for action in (("end", "submit") if n % 5 else ("end", "end", "submit", "submit"))
]
"""A stream of 727 steps."""
