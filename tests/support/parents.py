"""The choice of a parent among candidates that all are scored: what policies must come to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattkeeper.policies.matching.choice import (
    Candidate,
    Rule,
    choose_best,
    choose_bucketed,
    eligible,
)


def choose(
    rule: Rule, candidates: Sequence[Candidate], task: str, minimum: float, own: float
) -> int | None:
    """Index of the parent by a rule; None if no candidate is eligible."""
    allowed = np.flatnonzero(eligible(candidates, task, minimum)).tolist()
    if not allowed:
        return None
    pool = [candidates[index] for index in allowed]
    return int(allowed[choose_best(pool) if rule == "best" else choose_bucketed(pool, own)])
