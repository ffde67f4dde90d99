"""The decisions on jobs, with those of a start apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import Placement
from wattkeeper.sim.kernel.journal import Columns, Journal, digest_views


def split_starts(journal: Journal[Placement], gpus_of: Callable[[Ints], Ints]) -> Iterator[Columns]:
    """The decisions as `Journal.decisions` gives them, those of a start in two rows.

    `Select` and `Place` decide on a start together, and it is stored as one row: a choice of
    `Select` that is a placement. `Select` saw the number of waiting jobs and of free GPUs; `Place`,
    whose row follows, the GPUs of the job and the number of free ones.

    Args:
        journal: The decisions.
        gpus_of: Returns the GPUs of jobs by their number.
    """
    start, place = journal.index_choice("start"), journal.maker_of("place")
    is_placement = np.array([not isinstance(choice, str) for choice in journal.choices])
    for rows in journal.rows():
        starts = is_placement[rows["chose"]]
        columns = {name: np.repeat(values, 1 + starts) for name, values in rows.items()}
        placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
        columns["chose"][placed - 1] = start
        columns["maker"][placed] = place
        columns["seen"][placed] = gpus_of(columns["subject"][placed])
        yield digest_views(columns)
