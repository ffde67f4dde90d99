"""Time and energy of one iteration at given clocks, from measured points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile


class PipelineIteration(NamedTuple):
    """An executed iteration: time (s), and energy of all GPUs with their waiting (J)."""

    time_s: float
    energy_j: float

    def held(self, time_s: float, blocking_w: float) -> float:
        """Energy (J) if all ranks, drawing `blocking_w` W, wait for others until `time_s`."""
        return self.energy_j + blocking_w * (time_s - self.time_s)


def last_end(before: Sequence[tuple[int, ...]], times_s: Sequence[float]) -> float:
    """When the last instruction ends, s, if each starts when those that it waits for have ended."""
    ends: list[float] = []
    last = 0.0
    for instruction in range(len(before)):
        start = 0.0
        for other in before[instruction]:
            end = ends[other]
            if end > start:
                start = end
        end = start + times_s[instruction]
        ends.append(end)
        if end > last:
            last = end
    return last


def waiting_power_w(profile: PipelineProfile, graph: PipelineGraph) -> float:
    """Power of all GPUs while all ranks wait, W."""
    return sum(
        profile.blocking_power_w(graph.operations[positions[0]]) for positions in graph.positions
    )


def check_stages(profile: PipelineProfile, graph: PipelineGraph) -> None:
    """Refuse a profile of another number of stages, or of ranks with several numbers of GPUs.

    Raises:
        PolicyError: With what differs.
    """
    if len(profile.stages) != graph.stages:
        raise PolicyError(
            f"the profile has {len(profile.stages)} stages and the schedule {graph.stages}"
        )
    for rank, positions in enumerate(graph.positions):
        gpus = {profile.stages[graph.operations[index] // 2].gpus for index in positions}
        if len(gpus) > 1:
            raise PolicyError(f"stages of rank {rank} have {sorted(gpus)} GPUs; all must be equal")


def execute_points(
    profile: PipelineProfile, graph: PipelineGraph, points: Sequence[int]
) -> PipelineIteration:
    """An iteration in which each instruction runs at one of the points of its operation.

    Each GPU draws the blocking power whenever it does not compute, from the start of the iteration
    to its end.

    Args:
        profile: Measured points.
        graph: The instructions.
        points: Index of a point by instruction.
    """
    times_s = []
    energy_j = 0.0
    for operation, index in zip(graph.operations, points, strict=True):
        _, time_s, point_j = profile.points(operation)[index]
        times_s.append(time_s)
        energy_j += point_j - profile.blocking_power_w(operation) * time_s
    time_s = last_end(graph.before, times_s)
    return PipelineIteration(time_s, energy_j + waiting_power_w(profile, graph) * time_s)


def execute_plan(
    profile: PipelineProfile, graph: PipelineGraph, plan: ClockPlan
) -> PipelineIteration:
    """An iteration at the clocks of a plan.

    Raises:
        PolicyError: If a clock was not measured, or the plan has another number of instructions.
    """
    check_stages(profile, graph)
    points = [0] * len(graph.operations)
    expected = [len(positions) for positions in graph.positions]
    if [len(clocks) for clocks in plan] != expected:
        found = [len(clocks) for clocks in plan]
        raise PolicyError(
            f"the plan has clocks for {found} instructions by rank; the schedule has {expected}"
        )
    for rank, (positions, clocks) in enumerate(zip(graph.positions, plan, strict=True)):
        for place, (index, clock) in enumerate(zip(positions, clocks, strict=True)):
            measured = [point.frequency_mhz for point in profile.points(graph.operations[index])]
            if clock not in measured:
                raise PolicyError(
                    f"the plan has {clock} MHz for instruction {place} of rank {rank}; measured "
                    f"are {', '.join(map(str, sorted(measured)))} MHz"
                )
            points[index] = measured.index(clock)
    return execute_points(profile, graph, points)


def plan_of_points(
    profile: PipelineProfile, graph: PipelineGraph, points: Sequence[int]
) -> ClockPlan:
    """The clocks of points, by rank in program order."""
    return tuple(
        tuple(
            profile.points(graph.operations[index])[points[index]].frequency_mhz
            for index in positions
        )
        for positions in graph.positions
    )


def fastest_points(profile: PipelineProfile, graph: PipelineGraph) -> list[int]:
    """The point of the highest clock of each instruction."""
    highest = []
    for operation in range(2 * graph.stages):
        points = profile.points(operation)
        highest.append(max(range(len(points)), key=lambda index: points[index].frequency_mhz))
    return [highest[operation] for operation in graph.operations]
