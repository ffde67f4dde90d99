"""The board of jobs: transitions assert the old state, and counts end what goes on for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worlds import spec
from wattkeeper.policies.points.job import Job
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.board import (
    MOST_IDLE,
    SHORTEST_WAKE_S,
    WAKES,
    IdleCount,
    JobBoard,
    WakeLimit,
)
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.kernel.spool import Spool
from wattkeeper.sim.recording.cluster_journal import ClusterJournal


class Prepared(Execution):
    """An attempt that is only moved from state to state."""

    def go_on(self, delay_s: float) -> None: ...

    def pause(self) -> None: ...


def attempt_of(submitted: Job) -> Prepared:
    return Prepared(Attempt(submitted, 1, ((0, 1, -1),), 0, "V100", 0.0, 40.0))


@pytest.fixture
def loop() -> EventLoop:
    return EventLoop()


@pytest.fixture
def board(loop: EventLoop) -> JobBoard:
    return JobBoard(loop, Cluster(spec()), ClusterJournal(Spool()))


def test_a_job_goes_from_state_to_state(board: JobBoard) -> None:
    submitted = job("a")
    run = attempt_of(submitted)
    board.submit(submitted)
    assert board.start(submitted) is None
    board.run(run)
    assert (board.has(run), board.waiting, board.on_node(0)) == (True, {}, [run])
    board.halt(submitted.number)
    board.pause(run, 1.0)
    assert (board.has(run), board.running, board.waiting) == (True, {}, {0: submitted})
    paused = board.start(submitted)
    assert paused is not None
    assert (paused.execution, paused.since_s) == (run, 1.0)
    board.run(run)
    board.halt(submitted.number)
    board.suspend(run, 2.0)
    assert (board.has(run), board.waiting, board.has_work) == (True, {}, True)
    board.resume(submitted.number)
    assert board.waiting == {0: submitted}
    board.start(submitted)
    board.run(run)
    assert board.end(submitted.number)
    assert not board.has(run)
    assert not board.has_work


def test_a_transition_from_another_state_is_refused(board: JobBoard) -> None:
    submitted = job("a")
    run = attempt_of(submitted)
    refusals = (AssertionError, KeyError)
    for move in (board.halt, board.resume, board.withdraw, board.end):
        with pytest.raises(refusals):
            move(submitted.number)
    board.submit(submitted)
    with pytest.raises(refusals):
        board.run(run)
    with pytest.raises(refusals):
        board.suspend(run, 0.0)
    board.start(submitted)
    board.run(run)
    again: tuple[Callable[[], object], ...] = (
        lambda: board.submit(submitted),
        lambda: board.start(submitted),
        lambda: board.pause(run, 0.0),
        lambda: board.suspend(run, 0.0),
        lambda: board.resume(submitted.number),
    )
    for forbidden in again:
        with pytest.raises(refusals):
            forbidden()
    assert board.running == {submitted.number: run}


def test_wakes_without_an_end_are_too_many_unless_time_passes(loop: EventLoop) -> None:
    limit = WakeLimit(loop)
    for _ in range(WAKES - 1):
        assert not limit.count()
    loop.now_s = WAKES * SHORTEST_WAKE_S
    assert not limit.count()
    for _ in range(WAKES - 1):
        assert not limit.count()
    loop.now_s += 1.0
    assert f"was woken {WAKES:,} times within 1 s" in limit.count()


def test_what_happens_on_an_idle_cluster_is_counted_in_a_row(
    loop: EventLoop, board: JobBoard
) -> None:
    count = IdleCount(board)
    for _ in range(MOST_IDLE):
        assert not count.is_beyond()
    loop.next_arrival_s = 1.0
    assert not count.is_beyond()
    loop.next_arrival_s = float("inf")
    for _ in range(MOST_IDLE):
        assert not count.is_beyond()
    assert count.is_beyond()
