"""Submits jobs: as they arrive, and as they follow others that ended."""

from __future__ import annotations

import math

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Outcome
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.sources import Source


class Submission:
    """Puts jobs into the queue, and tells policies of them.

    Args:
        core: What the parts of the world share.
        source: The jobs.

    Attributes:
        follows: Whether the source submits jobs when others end.
    """

    def __init__(self, core: Core, source: Source) -> None:
        self._loop = core.loop
        self._source = source
        self._board = core.board
        self._room = core.room
        self._host = core.host
        self._arrivals = source.arrivals()
        self.follows: bool = type(source).follow_up is not Source.follow_up
        self._batch: list[Job] = []
        self._arrived = 0

    def begin(self) -> None:
        """Let the first job arrive in its time."""
        self._loop.next_arrival_s = self._next_arrival_s()

    def arrive(self) -> None:
        """Submit the jobs that arrive now."""
        now_s = self._loop.now_s
        next_s = self._loop.next_arrival_s
        while next_s <= now_s:
            self._arrived += 1
            self._submit(self._batch[self._arrived - 1])
            next_s = self._next_arrival_s()
        self._loop.next_arrival_s = next_s

    def follow_up(self, outcome: Outcome) -> bool:
        """Submit the jobs that follow one that ended; returns whether there are any."""
        followers = self._source.follow_up(outcome, self._loop.now_s)
        for job in followers:
            self._submit(job)
        return bool(followers)

    def _next_arrival_s(self) -> float:
        while self._arrived == len(self._batch):
            batch = next(self._arrivals, None)
            if batch is None:
                return math.inf
            self._batch, self._arrived = batch, 0
        return self._batch[self._arrived].submit_time_s

    def _submit(self, job: Job) -> None:
        if job.gpus > self._room.gpus:
            raise InputError(
                f"job {job.job_id} asks for {job.gpus} GPUs, the cluster has {self._room.gpus}: "
                "give it more (cluster.gpus)"
            )
        self._board.submit(job)
        self._host.submitted(job)
