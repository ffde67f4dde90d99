"""The row of a decision in the journal."""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import i32, u8


class DecisionRow(NamedTuple):
    """A decision about a subject: a job, a round, a batch.

    Attributes:
        time_s: When, s.
        subject: The subject's number.
        seen: What the policy was shown: a number, or a digest.
        also_seen: A second number that it was shown; 0 if there is none.
        attempt: Number of the attempt at the subject, from 1.
        chose: Index of the choice.
        maker: Index of the decision point and its policy.
    """

    time_s: float
    subject: int
    seen: int
    also_seen: int
    attempt: i32
    chose: i32
    maker: u8
