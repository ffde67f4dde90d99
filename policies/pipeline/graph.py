"""Which instruction of a pipeline waits for which."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.schedules import (
    Instruction,
    PipelineSchedule,
    Program,
    program_of,
)


class PipelineGraph(NamedTuple):
    """The instructions of an iteration, numbered such that each comes after those it waits for.

    Attributes:
        operations: Operation by instruction.
        before: By instruction, those that it waits for.
        positions: By rank, the numbers of its instructions in program order.
        stages: Number of virtual stages.
    """

    operations: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    positions: tuple[tuple[int, ...], ...]
    stages: int


@lru_cache(maxsize=64)
def schedule_graph(schedule: PipelineSchedule) -> PipelineGraph:
    """The graph of a schedule."""
    return build_graph(program_of(schedule))


def build_graph(program: Program) -> PipelineGraph:
    """The graph of a program order.

    An instruction waits for the one before it on its rank; a forward pass for that of the stage
    before, a backward pass for that of the stage behind.

    Raises:
        InputError: If an instruction is missing, there twice or on several ranks, or if the order
            never ends.
    """
    stages = _check(program)
    unordered: dict[Instruction, list[Instruction]] = {}
    for order in program:
        for index, instruction in enumerate(order):
            unordered[instruction] = [order[index - 1]] if index else []
            source = instruction.stage + (-1 if instruction.kind == "forward" else 1)
            if 0 <= source < stages:
                unordered[instruction].append(instruction._replace(stage=source))
    numbers = _sort(program, unordered)
    return PipelineGraph(
        tuple(instruction.operation for instruction in numbers),
        tuple(tuple(numbers[other] for other in unordered[one]) for one in numbers),
        tuple(tuple(numbers[instruction] for instruction in order) for order in program),
        stages,
    )


def _check(program: Program) -> int:
    """Refuse incomplete program orders; the number of stages."""
    rank_of: dict[int, int] = {}
    seen: set[Instruction] = set()
    for rank, order in enumerate(program):
        for instruction in order:
            kind, stage, microbatch = instruction
            name = f"{kind} of microbatch {microbatch} in stage {stage}"
            if instruction in seen:
                raise InputError(f"the program order has {name} twice")
            if rank_of.setdefault(stage, rank) != rank:
                raise InputError(
                    f"stage {stage} is on rank {rank_of[stage]} and on rank {rank}; a stage must "
                    "be on one"
                )
            if kind == "backward" and instruction._replace(kind="forward") not in seen:
                raise InputError(f"the program order has {name} before its forward")
            seen.add(instruction)
    stages = 1 + max(rank_of, default=-1)
    microbatches = {instruction.microbatch for instruction in seen}
    if not seen or len(rank_of) < stages or len(seen) < 2 * stages * len(microbatches):
        raise InputError(
            f"the program order has {len(seen)} instructions; {stages} stages and "
            f"{len(microbatches)} microbatches need one forward and one backward each"
        )
    return stages


def _sort(program: Program, before: dict[Instruction, list[Instruction]]) -> dict[Instruction, int]:
    """Number the instructions such that each comes after those it waits for."""
    numbers: dict[Instruction, int] = {}
    done = [0] * len(program)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(program):
            while done[rank] < len(order):
                instruction = order[done[rank]]
                if any(other not in numbers for other in before[instruction]):
                    break
                numbers[instruction] = len(numbers)
                done[rank] += 1
                moved = True
    if len(numbers) < len(before):
        rank, place = next((r, d) for r, d in enumerate(done) if d < len(program[r]))
        kind, stage, microbatch = program[rank][place]
        raise InputError(
            f"the program order never ends: rank {rank} waits for ever at {kind} of microbatch "
            f"{microbatch} in stage {stage}"
        )
    return numbers
