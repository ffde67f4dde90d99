"""The jobs of a search: its networks, which are proposed upon those that ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Outcome
from wattkeeper.sim.engine.sources import Source


class NetworkSearch(Protocol):
    """A search for architectures."""

    def propose(self) -> str | None:
        """Name of the next network; None if the search is over or waits for a `report`."""

    def report(self, name: str, reached: bool) -> None:
        """Learn that the training of a network ended, and whether it reached its end."""

    def workload(self, name: str) -> str:
        """The workload of a network's job."""
        raise NotImplementedError


class NetworkSource(Source):
    """The networks that a search proposes, each submitted as soon as a slot is free.

    Args:
        search: The search.
        slots: How many networks may be under way at once.
    """

    def __init__(self, search: NetworkSearch, slots: int = 1) -> None:
        self._search, self._free = search, slots
        self._jobs: list[Job] = []

    def arrivals(self) -> Iterator[list[Job]]:
        """The first ones."""
        yield self._submit(0.0)

    @override
    def follow_up(self, outcome: Outcome, now_s: float) -> Sequence[Job]:
        """The next ones, which the accuracies so far decide on."""
        self._free += 1
        self._search.report(str(outcome.start.job.model), outcome.reached)
        return self._submit(now_s)

    def _submit(self, now_s: float) -> list[Job]:
        jobs: list[Job] = []
        while self._free and (name := self._search.propose()) is not None:
            number, workload = len(self._jobs) + len(jobs), self._search.workload(name)
            jobs.append(Job(name, name, 1, workload, 1, now_s, number=number, model=name))
            self._free -= 1
        self._jobs += jobs
        return jobs

    @override
    def column(self, name: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
        return pa.array([getattr(self._jobs[number], name) for number in numbers.tolist()])
