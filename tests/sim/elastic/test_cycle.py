"""Steps and commits in closed form, against a clock that goes step by step."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.sim.elastic.cycle import Cycle, CycleState

lengths = st.floats(0.5, 50)
cycles = st.builds(Cycle, lengths, st.integers(0, 5), st.just(0.0) | lengths)


def step_by_step(cycle: Cycle, elapsed_s: float) -> CycleState:
    """The same by going through all steps and writes."""
    now_s, committed, uncommitted, writes = 0.0, 0, 0, 0
    while True:
        if cycle.commit_steps and uncommitted == cycle.commit_steps:
            if now_s + cycle.write_s > elapsed_s:
                return CycleState(committed, uncommitted, 0.0, writes, elapsed_s - now_s)
            now_s += cycle.write_s
            committed, uncommitted = committed + uncommitted, 0
            writes += bool(cycle.write_s)
        if now_s + cycle.step_s > elapsed_s:
            return CycleState(committed, uncommitted, elapsed_s - now_s, writes, 0.0)
        now_s += cycle.step_s
        uncommitted += 1


def is_border(state: CycleState, cycle: Cycle) -> bool:
    """Whether a step or a write ends about then, so that rounding decides."""
    margin = 1e-6
    near = (
        state.part_s,
        state.part_s - cycle.step_s,
        state.writing_s,
        state.writing_s - cycle.write_s,
    )
    return any(0 < abs(each) < margin for each in near) or state.part_s == state.writing_s == 0


@given(cycle=cycles, elapsed_s=st.floats(0, 2000))
def test_it_is_what_a_clock_says(cycle: Cycle, elapsed_s: float) -> None:
    state, slow = cycle.at(elapsed_s), step_by_step(cycle, elapsed_s)
    if not is_border(slow, cycle):
        assert state == pytest.approx(slow, abs=1e-6)
    trained_s = (state.committed + state.uncommitted) * cycle.step_s + state.part_s
    written_s = state.writes * cycle.write_s + state.writing_s
    assert trained_s + written_s == pytest.approx(elapsed_s, abs=1e-6)


@given(cycle=cycles, elapsed_s=st.floats(0, 2000))
def test_the_end_of_a_step_is_the_next_time_at_which_none_is_under_way(
    cycle: Cycle, elapsed_s: float
) -> None:
    end_s = cycle.step_end_s(elapsed_s)
    assert end_s >= elapsed_s
    assert end_s - elapsed_s <= max(cycle.step_s, cycle.write_s) + 1e-6
    state = cycle.at(end_s)
    assert state.part_s == pytest.approx(0, abs=1e-6)
    assert state.writing_s == pytest.approx(0, abs=1e-6)


@given(cycle=cycles, steps=st.integers(1, 40))
def test_a_number_of_steps_is_finished_in_time(cycle: Cycle, steps: int) -> None:
    state = cycle.at(cycle.time_of_s(steps))
    assert state.committed + state.uncommitted == steps
    before = cycle.at(cycle.time_of_s(steps) * (1 - 1e-6))
    assert before.committed + before.uncommitted == steps - 1


@given(cycle=cycles, steps=st.integers(1, 40))
def test_a_step_under_way_ends_exactly_when_so_many_are_finished(cycle: Cycle, steps: int) -> None:
    end_s = cycle.time_of_s(steps)
    assert cycle.step_end_s(end_s - cycle.step_s / 2) == end_s


@given(cycle=cycles, elapsed_s=st.floats(0, 2000))
def test_writes_begin_where_steps_end(cycle: Cycle, elapsed_s: float) -> None:
    state = cycle.at(elapsed_s)
    spans = cycle.write_spans(elapsed_s, 10_000)
    assert len(spans) == state.writes + (state.writing_s > 0)
    for number, (begin_s, _) in enumerate(spans[: state.writes], 1):
        there = cycle.at(begin_s + cycle.write_s / 2)
        assert there.uncommitted == cycle.commit_steps
        assert there.committed == (number - 1) * cycle.commit_steps


@given(cycle=cycles, elapsed_s=st.floats(0, 2000), most=st.integers(1, 9))
def test_writes_that_stand_together_take_as_long(cycle: Cycle, elapsed_s: float, most: int) -> None:
    spans = cycle.write_spans(elapsed_s, most)
    alone = cycle.write_spans(elapsed_s, 10_000)
    assert len(spans) <= most
    assert {begin_s for begin_s, _ in spans} <= {begin_s for begin_s, _ in alone}
    assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(spans))
    lengths = [sum(end_s - begin_s for begin_s, end_s in each) for each in (spans, alone)]
    assert lengths[0] == pytest.approx(lengths[1], abs=1e-9)
