"""What a pipeline-parallel job was measured to do: time and energy by stage and clock."""

from __future__ import annotations

from math import isfinite
from typing import Literal, NamedTuple

from wattkeeper.policies.errors import InputError, Problem

InstructionKind = Literal["forward", "backward"]
KINDS: tuple[InstructionKind, InstructionKind] = ("forward", "backward")

ClockPlan = tuple[tuple[int, ...], ...]
"""Clocks in MHz: by rank, those of its instructions in program order."""


class ClockPoint(NamedTuple):
    """A measured point of an instruction.

    Attributes:
        frequency_mhz: Clock of the stage's GPUs.
        time_s: Time of one instruction, the longest over the GPUs.
        energy_j: Its energy, summed over the GPUs.
    """

    frequency_mhz: int
    time_s: float
    energy_j: float


class StageClocks(NamedTuple):
    """The measured points of a stage; each of its GPUs runs at the same clock."""

    forward: tuple[ClockPoint, ...]
    backward: tuple[ClockPoint, ...]
    gpus: int = 1


class PipelineProfile(NamedTuple):
    """The measured points of all stages.

    Where ranks have several chunks of a model, the stages are the virtual ones: stage
    ``chunk * ranks + rank`` is on ``rank``.

    Attributes:
        stages: By stage.
        blocking_w: Power of a GPU that waits for another rank, W.
    """

    stages: tuple[StageClocks, ...]
    blocking_w: float

    def points(self, operation: int) -> tuple[ClockPoint, ...]:
        """The points of an operation, numbered as by `operation_number`."""
        stage = self.stages[operation // 2]
        return stage.backward if operation % 2 else stage.forward

    def blocking_power_w(self, operation: int) -> float:
        """What all GPUs of an operation's stage together draw while they wait."""
        return self.blocking_w * self.stages[operation // 2].gpus


def operation_number(kind: InstructionKind, stage: int) -> int:
    """The number of what a stage does forwards or backwards: 0 for the first one's forwards."""
    return 2 * stage + (kind == "backward")


def check_profile(profile: PipelineProfile) -> None:
    """Refuse a profile without points, or with points out of range.

    Raises:
        InputError: With all problems.
    """
    problems = []
    if not profile.stages:
        problems.append(Problem("a pipeline needs the points of at least one stage"))
    if not (isfinite(profile.blocking_w) and profile.blocking_w >= 0):
        problems.append(
            Problem(f"the blocking power is {profile.blocking_w} W; 0 or more is allowed")
        )
    for number, stage in enumerate(profile.stages):
        if stage.gpus < 1:
            problems.append(Problem(f"stage {number} has {stage.gpus} GPUs; it needs at least 1"))
        for kind, points in zip(KINDS, stage[:2], strict=True):
            if error := _error_in(points):
                problems.append(Problem(f"{kind} of stage {number}: {error}"))
    if problems:
        raise InputError(problems)


def _error_in(points: tuple[ClockPoint, ...]) -> str:
    """What is wrong with the points of an operation; empty if nothing is."""
    if not points:
        return "there is no measured point"
    clocks = [point.frequency_mhz for point in points]
    if repeated := sorted({clock for clock in clocks if clocks.count(clock) > 1}):
        return f"{repeated[0]} MHz is there more than once; one point for each clock is allowed"
    for clock, time_s, energy_j in points:
        if clock < 1:
            return f"the clock is {clock} MHz; 1 or more is allowed"
        if not (isfinite(time_s) and time_s > 0):
            return f"at {clock} MHz the time is {time_s} s; it must be above 0"
        if not (isfinite(energy_j) and energy_j > 0):
            return f"at {clock} MHz the energy is {energy_j} J; it must be above 0"
    return ""
