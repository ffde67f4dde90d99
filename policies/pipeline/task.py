"""A pipeline-parallel job as policies and the world see it: measured points and their order."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.pipeline.execution import (
    PipelineIteration,
    execute_plan,
    execute_points,
    fastest_points,
    plan_of_points,
    waiting_power_w,
)
from wattkeeper.policies.pipeline.graph import PipelineGraph, schedule_graph
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule


class PipelineTask(NamedTuple):
    """What an iteration of a pipeline-parallel job consists of.

    Attributes:
        profile: Time and energy of its instructions by clock.
        schedule: Their order.
    """

    profile: PipelineProfile
    schedule: PipelineSchedule

    @property
    def graph(self) -> PipelineGraph:
        """Which instruction waits for which."""
        return schedule_graph(self.schedule)

    @property
    def waiting_w(self) -> float:
        """Power of all GPUs while all wait, W."""
        return waiting_power_w(self.profile, self.graph)

    @property
    def fastest(self) -> PipelineIteration:
        """The iteration at the highest clock of each instruction."""
        return _execute_fastest(self)

    @property
    def fastest_plan(self) -> ClockPlan:
        """The highest clock of each instruction."""
        return plan_of_points(self.profile, self.graph, fastest_points(self.profile, self.graph))

    @property
    def most_power_w(self) -> float:
        """What no iteration exceeds in the mean, W: each rank computes what draws most."""
        profile, graph = self.profile, self.graph
        total_w = 0.0
        for positions in graph.positions:
            operations = {graph.operations[index] for index in positions}
            busy_w = max(
                point.energy_j / point.time_s
                for operation in operations
                for point in profile.points(operation)
            )
            waiting_w = profile.blocking_power_w(graph.operations[positions[0]])
            total_w += max(busy_w, waiting_w)
        return total_w

    @property
    def lowest_plan(self) -> ClockPlan:
        """The lowest clock of each instruction."""
        graph, profile = self.graph, self.profile
        lowest = [
            min(point.frequency_mhz for point in profile.points(operation))
            for operation in range(2 * graph.stages)
        ]
        return tuple(
            tuple(lowest[graph.operations[index]] for index in positions)
            for positions in graph.positions
        )

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """The clocks that were measured for all instructions, ascending, MHz."""
        measured = [
            {point.frequency_mhz for point in self.profile.points(operation)}
            for operation in range(2 * self.graph.stages)
        ]
        return tuple(sorted(set.intersection(*measured)))

    def plan_at(self, clock_mhz: int) -> ClockPlan:
        """The plan of one clock for all instructions."""
        return tuple((clock_mhz,) * len(positions) for positions in self.graph.positions)

    def execute(self, plan: ClockPlan | None, clock_mhz: int | None = None) -> PipelineIteration:
        """The iteration at a plan, at one clock, or, without either, at the highest clocks.

        Raises:
            PolicyError: If a clock was not measured, or the plan has another number of
                instructions.
        """
        if plan is not None:
            return _execute(self, plan)
        if clock_mhz is None:
            return self.fastest
        if clock_mhz not in self.clocks_mhz:
            known = ", ".join(map(str, self.clocks_mhz)) or "none"
            raise PolicyError(
                f"the clock is {clock_mhz} MHz; measured for all instructions: {known}"
            )
        return _execute(self, self.plan_at(clock_mhz))


@lru_cache(maxsize=4096)
def _execute(task: PipelineTask, plan: ClockPlan) -> PipelineIteration:
    return execute_plan(task.profile, task.graph, plan)


@lru_cache(maxsize=256)
def _execute_fastest(task: PipelineTask) -> PipelineIteration:
    return execute_points(task.profile, task.graph, fastest_points(task.profile, task.graph))
