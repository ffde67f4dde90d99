"""Shortest remaining time first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._preempting import Preempting, RunningJob


class SrtfConfig(PolicyConfig):
    """The job with the shortest remaining time first; longer ones are preempted for it.

    Shortest remaining processing time (Schrage, Operations Research 16, 1968), by the recorded run
    time, which it knows exactly: it minimises the mean completion time on one GPU, and is what
    Tiresias (Gu et al., NSDI '19) calls SRTF. Waiting jobs are tried in order of the remaining
    time, ties by submission; one that cannot start is passed over. For one that does not fit,
    running jobs with strictly more time left (by more than 1 µs, against rounding) are preempted,
    those with the most first, until it does, but none that it does not need.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["srtf"] = "srtf"

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """How long jobs run."""
        return {"duration_s": "choose a policy that does not need it"}

    def build(self) -> Srtf:
        """A new policy."""
        return Srtf()


class Srtf(Preempting):
    """See `SrtfConfig`."""

    def waiting_order(self, run: RunningJob) -> float:
        """By remaining time, s."""
        return run.job.duration_s - run.attained_s

    def running_order(self, run: RunningJob) -> float:
        """By the time at which it will end, s."""
        return run.began_s + run.job.duration_s

    def shift(self, now_s: float) -> float:
        """What makes a remaining time of the time of an end."""
        return now_s
