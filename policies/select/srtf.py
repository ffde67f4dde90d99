"""Shortest remaining time first."""

from collections.abc import Mapping
from typing import Literal

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.preempting import Srtf


class SrtfConfig(PolicyConfig):
    """Shortest remaining time first, with preemption.

    Shortest remaining processing time (Schrage, Operations Research 16, 1968) by recorded run
    time, which is known exactly: it minimises the mean completion time on one GPU, and is what
    Tiresias (Gu et al., NSDI '19) calls SRTF. Waiting jobs are tried in order of remaining
    time, ties by submission; jobs that cannot start are skipped. For a job that does not fit,
    running jobs with strictly more remaining time (by more than 1 µs, against rounding) are
    preempted, those with the most first, until it fits, but none that is not necessary.
    """

    kind: Literal["srtf"] = "srtf"
    policy = Srtf
    plain = "the shortest remaining time first"

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The recorded run time."""
        return {"duration_s": "choose a policy that does not need it"}
