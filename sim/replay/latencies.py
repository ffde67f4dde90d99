"""What carrying out takes beyond training, as live runs have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Latencies(NamedTuple):
    """How long an attempt holds its GPUs, idle, for other things than training, s.

    What a preemption takes is in `wattkeeper.sim.cluster.cluster_spec.ClusterSpec`:
    `checkpoint_s` and `restore_s`.

    Attributes:
        start_s: From its start to its first step.
        stop_s: From its last step until its GPUs are free.
        report_s: To report an epoch; all epochs together, after the last one.
        settle_s: Until a power limit is in force, each time that one is set.
    """

    start_s: float = 0.0
    stop_s: float = 0.0
    report_s: float = 0.0
    settle_s: float = 0.0


NO_LATENCIES: Final = Latencies()

AllLatencies = Mapping[tuple[str, int, str], Latencies]
"""By workload, number of GPUs and GPU type; none of those that are not there."""
