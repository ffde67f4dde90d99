"""What the ranks of a pipeline tell each other about an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wattkeeper.policies.pipeline.profile import ClockPlan


class OperationTotals(NamedTuple):
    """Instructions of one kind in one stage, summed over an iteration.

    Attributes:
        number: How many instructions.
        time_s: Their time, without that in which they waited for others, s.
        energy_j: Their energy, J.
    """

    number: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0

    def plus(self, other: OperationTotals) -> OperationTotals:
        """The sums with other instructions."""
        return OperationTotals(
            self.number + other.number, self.time_s + other.time_s, self.energy_j + other.energy_j
        )


class RankReport(NamedTuple):
    """An iteration of one rank, from its start to the end of the rank's last instruction.

    Attributes:
        ended_s: That end on the rank's clock, s.
        time_s: Its time, s.
        energy_j: Its energy, J.
        operations: By operation number (`wattkeeper.policies.pipeline.profile.operation_number`).
    """

    ended_s: float
    time_s: float
    energy_j: float
    operations: Mapping[int, OperationTotals]


class RankTotals(NamedTuple):
    """An iteration of one rank, from its start to that of the next one: time (s), energy (J)."""

    time_s: float
    energy_j: float


class ReplicaPace(NamedTuple):
    """What the leaders of replicas tell each other after each iteration.

    Attributes:
        ended_s: When its last instruction ended, s; compared on emulated clocks only.
        fastest_s: Time of an iteration at the highest clocks, s; None while it is profiled.
    """

    ended_s: float
    fastest_s: float | None


class Order(NamedTuple):
    """What the leader tells all ranks to do in the next iteration.

    Attributes:
        plan: Clocks of all ranks, MHz.
        measures: Whether it is an iteration of the profiling.
        number: Of the plan among those that were in force, from 1; 0 while profiling.
    """

    plan: ClockPlan
    measures: bool
    number: int = 0


class IterationRow(NamedTuple):
    """An iteration that all ranks have done.

    Attributes:
        number: From 1; iterations of the profiling count.
        measures: Whether it was part of the profiling.
        plan: Number of the plan in force, from 1; 0 while profiling.
        pipeline_s: From its start to the end of the last instruction of all ranks, s.
        time_s: The same to the start of the next one, s: with replicas that are slower, and with
            what the script does in between.
        energy_j: Energy by rank over `time_s`, J.
        slow: Measured time over that of the profile, by stage; empty while profiling.
        slowdown: Pace that other replicas imposed, over the own one at the highest clocks.
    """

    number: int
    measures: bool
    plan: int
    pipeline_s: float
    time_s: float
    energy_j: tuple[float, ...]
    slow: tuple[float, ...]
    slowdown: float
