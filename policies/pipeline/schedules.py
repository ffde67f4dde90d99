"""Program orders of pipeline-parallel training, as data: what each rank does, in which order."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.profile import InstructionKind, operation_number


class Instruction(NamedTuple):
    """One microbatch through one stage, forwards or backwards."""

    kind: InstructionKind
    stage: int
    microbatch: int

    @property
    def operation(self) -> int:
        """Number of its stage and kind, by which profiles list points."""
        return operation_number(self.kind, self.stage)


Program = tuple[tuple[Instruction, ...], ...]
"""Instructions by rank, in program order."""


class PipelineSchedule(NamedTuple):
    """What a program order is made from.

    Attributes:
        kind: Its name.
        ranks: Number of groups of GPUs that each work on a part of the model.
        microbatches: Of an iteration.
        chunks: Parts of the model on each rank; more than one only if interleaved.
        backwards: Order of the backward passes of `gpipe`.
    """

    kind: Literal["1f1b", "gpipe", "interleaved"]
    ranks: int
    microbatches: int
    chunks: int = 1
    backwards: Literal["last-first", "first-first"] = "last-first"

    @property
    def stages(self) -> int:
        """Number of virtual stages."""
        return self.ranks * self.chunks


def program_of(schedule: PipelineSchedule) -> Program:
    """The program order of a schedule.

    Raises:
        InputError: If there is none for these numbers.
    """
    kind, ranks, microbatches, chunks, backwards = schedule
    if min(ranks, microbatches, chunks) < 1:
        raise InputError(
            f"the schedule has {ranks} ranks, {microbatches} microbatches and {chunks} chunks; "
            "1 or more of each is allowed"
        )
    if kind == "interleaved":
        return interleaved(ranks, microbatches, chunks)
    if chunks > 1:
        raise InputError(f"{kind} with {chunks} chunks: only interleaved has more than one")
    if kind == "1f1b":
        return one_forward_one_backward(ranks, microbatches)
    return gpipe(ranks, microbatches, backwards)


def one_forward_one_backward(ranks: int, microbatches: int) -> Program:
    """1F1B: as few forward passes as keep all ranks busy, then one backward for each forward."""
    return tuple(
        _alternate(
            [Instruction("forward", rank, index) for index in range(microbatches)],
            [Instruction("backward", rank, index) for index in range(microbatches)],
            ranks - 1 - rank,
        )
        for rank in range(ranks)
    )


def gpipe(
    ranks: int, microbatches: int, backwards: Literal["last-first", "first-first"] = "last-first"
) -> Program:
    """GPipe: all forward passes, then all backward ones, by default the last microbatch first."""
    order = range(microbatches)
    reverse = order if backwards == "first-first" else order[::-1]
    return tuple(
        (
            *(Instruction("forward", rank, index) for index in order),
            *(Instruction("backward", rank, index) for index in reverse),
        )
        for rank in range(ranks)
    )


def interleaved(ranks: int, microbatches: int, chunks: int) -> Program:
    """Interleaved 1F1B (Megatron-LM): each rank has several chunks of the model.

    Raises:
        InputError: If the microbatches are no multiple of the ranks.
    """
    if microbatches % ranks:
        raise InputError(
            f"{microbatches} microbatches on {ranks} ranks: interleaved needs a multiple of the "
            "ranks"
        )
    program = []
    for rank in range(ranks):
        forward, backward = [], []
        for index in range(chunks * microbatches):
            chunk = index % (ranks * chunks) // ranks
            microbatch = index // (ranks * chunks) * ranks + index % ranks
            forward.append(Instruction("forward", chunk * ranks + rank, microbatch))
            stage = (chunks - 1 - chunk) * ranks + rank
            backward.append(Instruction("backward", stage, microbatch))
        program.append(_alternate(forward, backward, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks))
    return tuple(program)


def _alternate(
    forward: list[Instruction], backward: list[Instruction], ahead: int
) -> tuple[Instruction, ...]:
    """Some forward passes, then one forward and one backward in turn, then the rest."""
    ahead = min(ahead, len(forward))
    order = forward[:ahead]
    for pair in zip(forward[ahead:], backward, strict=False):
        order += pair
    return (*order, *backward[len(forward) - ahead :])
