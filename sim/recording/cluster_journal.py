"""The journal of a run of the cluster engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from mypy_extensions import i64

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import NEW, Placement
from wattkeeper.sim.kernel.journal import Columns, Journal, digest_views
from wattkeeper.sim.kernel.packed import append, vec
from wattkeeper.sim.kernel.rows import ABSENT
from wattkeeper.sim.kernel.spool import Spool

FEW_GPUS: Final = 16
"""Placements of fewer GPUs on one node are found by their numbers."""


class ClusterJournal(Journal[Placement]):
    """Decisions about jobs.

    The start of a job is decided by `Select` and `Place` together and stored as one row: a choice
    of `Select` that is a placement. `Select` saw the number of waiting jobs and of free GPUs.
    """

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool)
        self._on_one_node = vec[i64]()

    def index_placement(self, placement: Placement) -> int:
        """The index of a placement; one of a few whole GPUs of one node is found by its numbers."""
        node, gpus, gpu = placement[0]
        if gpu != NEW or len(placement) > 1 or gpus >= FEW_GPUS:
            return self.index_choice(placement)
        row: i64 = node * FEW_GPUS + gpus
        while row >= len(self._on_one_node):
            self._on_one_node = append(self._on_one_node, ABSENT)
        known = self._on_one_node[row]
        if known == ABSENT:
            known = self._on_one_node[row] = self.index_choice(placement)
        return known

    def decisions_on_jobs(self, gpus_of: Callable[[Ints], Ints]) -> Iterator[Columns]:
        """The decisions as `decisions` gives them, those of a start in two rows.

        The first is of `Select`; the second of `Place`, which saw the GPUs of the job and the
        number of free ones.

        Args:
            gpus_of: Returns the GPUs of jobs by their number.
        """
        start = self.index_choice("start")
        is_placement = np.array([not isinstance(choice, str) for choice in self.choices])
        place = self.maker_of("place")
        for rows in self.rows():
            starts = is_placement[rows["chose"]]
            columns = {name: np.repeat(values, 1 + starts) for name, values in rows.items()}
            placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
            columns["chose"][placed - 1] = start
            columns["maker"][placed] = place
            columns["seen"][placed] = gpus_of(columns["subject"][placed])
            yield digest_views(columns)
