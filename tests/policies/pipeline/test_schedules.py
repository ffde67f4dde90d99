"""Program orders, their graphs, and errors in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.graph import build_graph, schedule_graph
from wattkeeper.policies.pipeline.schedules import (
    Instruction,
    PipelineSchedule,
    Program,
    interleaved,
    one_forward_one_backward,
    program_of,
)

SCHEDULES = [
    *(PipelineSchedule("1f1b", ranks, m) for ranks in (1, 2, 4, 8) for m in (1, 2, 3, 8, 19)),
    *(PipelineSchedule("gpipe", 4, m) for m in (1, 5)),
    PipelineSchedule("gpipe", 3, 4, backwards="first-first"),
    *(
        PipelineSchedule("interleaved", ranks, 8, chunks)
        for ranks in (1, 2, 4)
        for chunks in (1, 3)
    ),
]


def names(program: Program) -> list[str]:
    """Rows such as F0 B0, as written in papers."""
    return [" ".join(f"{i.kind[0].upper()}{i.microbatch}" for i in order) for order in program]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_each_instruction_is_there_once_and_after_those_it_waits_for(
    schedule: PipelineSchedule,
) -> None:
    program = program_of(schedule)
    graph = schedule_graph(schedule)
    count = 2 * schedule.stages * schedule.microbatches
    assert len(graph.operations) == sum(map(len, program)) == count
    assert all(other < index for index, waits in enumerate(graph.before) for other in waits)
    edges = sum(map(len, graph.before))
    on_ranks = count - schedule.ranks
    assert edges == on_ranks + 2 * (schedule.stages - 1) * schedule.microbatches
    for order, positions in zip(program, graph.positions, strict=True):
        assert [one.operation for one in order] == [graph.operations[i] for i in positions]


def test_one_forward_one_backward() -> None:
    assert names(one_forward_one_backward(3, 4)) == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


@pytest.mark.parametrize("microbatches", [4, 8])
def test_orders_of_the_published_example(shared: Path, microbatches: int) -> None:
    path = shared / f"reference/perseus/plans_m{microbatches}_u5ms.json"
    published = json.loads(path.read_text(encoding="utf-8"))["order"]
    assert names(one_forward_one_backward(4, microbatches)) == [*map(" ".join, published)]


def test_gpipe_runs_the_last_microbatch_backwards_first() -> None:
    assert names(program_of(PipelineSchedule("gpipe", 1, 3))) == ["F0 F1 F2 B2 B1 B0"]
    first = PipelineSchedule("gpipe", 1, 3, backwards="first-first")
    assert names(program_of(first)) == ["F0 F1 F2 B0 B1 B2"]


def test_interleaved_gives_each_rank_several_stages() -> None:
    first = interleaved(2, 4, 2)[0]
    assert [one.stage for one in first if one.kind == "forward"] == [0, 0, 2, 2, 0, 0, 2, 2]
    assert [one.stage for one in first if one.kind == "backward"] == [2, 2, 0, 0, 2, 2, 0, 0]
    assert names((first,)) == ["F0 F1 F0 F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 B2 B3"]


def test_one_chunk_interleaved_has_more_forwards_ahead_than_1f1b() -> None:
    assert names(interleaved(2, 4, 1)) == ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


@pytest.mark.parametrize(
    ("schedule", "facts"),
    [
        (PipelineSchedule("1f1b", 0, 4), ["0 ranks", "4 microbatches", "1 or more"]),
        (PipelineSchedule("gpipe", 2, 4, 2), ["gpipe", "2 chunks", "interleaved"]),
        (PipelineSchedule("interleaved", 4, 6, 2), ["6 microbatches", "4 ranks", "multiple"]),
    ],
)
def test_impossible_schedules(schedule: PipelineSchedule, facts: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        program_of(schedule)
    assert_states(str(raised.value), *facts)


def in_order(*orders: str) -> Program:
    """A program order from names, a stage on each rank."""
    return tuple(
        tuple(
            Instruction("forward" if name[0] == "F" else "backward", rank, int(name[1:]))
            for name in order.split()
        )
        for rank, order in enumerate(orders)
    )


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        ((), ["0 instructions"]),
        (in_order("F0 F1 B0 B1", "F0 B0 F1"), ["7 instructions", "2 stages", "2 microbatches"]),
        (in_order("", "F0 B0"), ["2 instructions", "2 stages"]),
        (in_order("F0 B0", "F0 B0 F0"), ["forward of microbatch 0 in stage 1 twice"]),
        (
            (*in_order("F0 B0", "F0 B0"), (Instruction("forward", 0, 7),)),
            ["stage 0", "rank 0", "rank 2"],
        ),
        (in_order("B0 F0"), ["backward of microbatch 0 in stage 0", "before its forward"]),
        (
            in_order("F0 B0 F1 B1", "F0 F1 B0 B1"),
            ["never ends", "rank 0", "backward of microbatch 0 in stage 0"],
        ),
    ],
)
def test_bad_program_orders(program: Program, facts: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        build_graph(program)
    assert_states(str(raised.value), *facts)
