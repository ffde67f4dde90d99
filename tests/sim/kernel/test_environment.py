"""The environment of a run is SimPy's, with events at absolute times in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment, Event, Interrupt, Resource
from simpy.core import EmptySchedule

from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import ARRIVAL, COMPLETION, Callback, LoopClient

Steps = Generator[Event, Any, Any]
Log = list[tuple[float, Any]]


class Arrivals(LoopClient):
    """Arrivals at given times, each followed by a pass."""

    def __init__(self, env: SimulationEnvironment, times_s: list[float], log: Log) -> None:
        self.env, self.left_s, self.log = env, sorted(times_s), log
        env.driven, env.next_arrival_s = self, self.left_s[0] if times_s else math.inf

    def arrive(self) -> None:
        self.log.append((self.env.now, "arrival"))
        del self.left_s[0]
        self.env.next_arrival_s = self.left_s[0] if self.left_s else math.inf
        self.env.pass_is_due = True

    def schedule(self) -> None:
        self.log.append((self.env.now, "pass"))


TIMES = st.lists(st.integers(0, 6).map(float), max_size=30)


@given(TIMES, TIMES, st.sets(st.integers(0, 29)))
def test_order_at_equal_times(
    events_s: list[float], arrivals_s: list[float], cancelled: set[int]
) -> None:
    """Scheduled events in the order of scheduling, arrivals, one pass; nothing of the cancelled."""
    env, log = SimulationEnvironment(), Log()
    Arrivals(env, arrivals_s, log)
    for number, time_s in enumerate(events_s):
        event = Callback(lambda number: log.append((env.now, number)), number)
        env.schedule_at(time_s, event)
        if number in cancelled:
            event.cancel()
    env.run()
    expected = Log()
    for time_s in sorted({*events_s, *arrivals_s}):
        numbers = [n for n, at_s in enumerate(events_s) if at_s == time_s and n not in cancelled]
        arrivals = arrivals_s.count(time_s)
        expected += [(time_s, what) for what in [*numbers, *["arrival"] * arrivals]]
        expected += [(time_s, "pass")] * bool(arrivals)
    assert log == expected
    assert env.events == len(events_s) + len(arrivals_s) + len(set(arrivals_s))
    assert env.peek() == math.inf


@given(st.lists(st.none() | st.integers(0, 6), max_size=60))
def test_events_scheduled_between_steps(moves: list[int | None]) -> None:
    """None processes the next event; a number schedules one that many seconds from now."""
    env, waiting, log = SimulationEnvironment(), list[tuple[float, int]](), list[int]()
    for number, move in enumerate([*moves, *[None] * len(moves)]):
        if move is not None:
            env.schedule_at(env.now + move, Callback(log.append, number))
            waiting.append((env.now + move, number))
        elif waiting:
            first = min(waiting)
            waiting.remove(first)
            env.step()
            assert (env.now, log[-1]) == first
        assert env.peek() == min(waiting, default=(math.inf, 0))[0]
    assert not waiting


def test_priorities_decide_at_equal_times() -> None:
    env, log = SimulationEnvironment(), Log()
    Arrivals(env, [1.0], log)
    for priority in (5, ARRIVAL, ARRIVAL - 1, COMPLETION, COMPLETION - 1):
        env.schedule_at(1.0, Callback(lambda p: log.append((env.now, p)), priority), priority)
    env.run()
    first = [COMPLETION - 1, COMPLETION, ARRIVAL - 1]
    assert [what for _, what in log] == [*first, "arrival", ARRIVAL, 5, "pass"]


def test_times_are_absolute() -> None:
    """0.2 + (0.9 - 0.2) is not 0.9."""
    env, times_s = SimulationEnvironment(), []
    note = Callback(lambda _: times_s.append(env.now))
    env.schedule_at(0.2, Callback(lambda _: env.schedule_at(0.9, note)))
    env.run()
    assert times_s == [0.9]


# --- what SimPy's documentation promises


def worker(env: Environment, log: Log, name: str, pauses_s: list[float]) -> Steps:
    for pause_s in pauses_s:
        got = yield env.timeout(pause_s, value=f"{name} after {pause_s}")
        log.append((env.now, got))
    return name


def waiter(env: Environment, log: Log, process: Event, event: Event) -> Steps:
    log.append((env.now, (yield process)))
    log.append((env.now, (yield event)))
    try:
        yield env.timeout(100.0)
    except Interrupt as interrupt:
        log.append((env.now, interrupt.cause))
    either = env.timeout(1.0, "one") | env.timeout(2.0, "two")
    log.append((env.now, list((yield either).values())))


def interrupter(env: Environment, victim: Any, event: Event) -> Steps:
    event.succeed("given at once")
    yield env.timeout(40.0)
    victim.interrupt("enough")


def customer(env: Environment, log: Log, desk: Resource, name: str) -> Steps:
    with desk.request() as turn:
        yield turn
        log.append((env.now, f"{name} is served"))
        yield env.timeout(2)


def play(env: Environment, pauses_s: list[list[float]]) -> Log:
    log, desk = Log(), Resource(env, capacity=1)
    workers = [
        env.process(worker(env, log, str(number), pauses)) for number, pauses in enumerate(pauses_s)
    ]
    event = env.event()
    waiting = env.process(waiter(env, log, workers[0], event))
    env.process(interrupter(env, waiting, event))
    for name in "ab":
        env.process(customer(env, log, desk, name))
    done = env.all_of(workers)
    results: Any = env.run(until=done)
    log.append((env.now, list(results.values())))
    env.run()
    return log


@given(st.lists(st.lists(st.floats(0, 5), max_size=5), min_size=1, max_size=4))
def test_processes_events_and_resources_do_as_in_simpy(pauses_s: list[list[float]]) -> None:
    assert play(SimulationEnvironment(), pauses_s) == play(Environment(0.0), pauses_s)


@pytest.mark.parametrize("make", [SimulationEnvironment, lambda: Environment(0.0)])
def test_run_until_a_time_stops_before_its_events(make: Callable[[], Environment]) -> None:
    env, log = make(), Log()
    env.process(worker(env, log, "w", [1.0, 1.0, 1.0]))
    assert env.run(until=2) is None
    assert (env.now, len(log), env.peek()) == (2.0, 1, 2.0)
    with pytest.raises(ValueError, match="until"):
        env.run(until=2.0)
    env.run()
    assert (env.now, len(log), env.peek()) == (3.0, 3, math.inf)


def test_run_until_a_time_stops_before_completions_and_arrivals_too() -> None:
    env, log = SimulationEnvironment(), Log()
    Arrivals(env, [1.0, 2.0], log)
    env.schedule_at(2.0, Callback(lambda _: log.append((env.now, "completion"))))
    env.run(until=2.0)
    assert log == [(1.0, "arrival"), (1.0, "pass")]
    env.run()
    assert log[2:] == [(2.0, "completion"), (2.0, "arrival"), (2.0, "pass")]


@pytest.mark.parametrize("make", [SimulationEnvironment, lambda: Environment(0.0)])
def test_run_until_an_event(make: Callable[[], Environment]) -> None:
    env, log = make(), Log()
    process = env.process(worker(env, log, "w", [1.0, 1.0]))
    assert env.run(until=process) == "w"
    assert env.run(until=process) == "w"  # it was processed already
    with pytest.raises(RuntimeError, match="not triggered"):
        env.run(until=env.event())


@pytest.mark.parametrize("make", [SimulationEnvironment, lambda: Environment(0.0)])
def test_what_a_process_raises_ends_the_run(make: Callable[[], Environment]) -> None:
    def failing(env: Environment) -> Steps:
        yield env.timeout(1.0)
        raise KeyError("lost")

    env = make()
    env.process(failing(env))
    with pytest.raises(KeyError, match="lost"):
        env.run()
    assert env.now == 1.0


@pytest.mark.parametrize("make", [SimulationEnvironment, lambda: Environment(0.0)])
def test_step_by_step(make: Callable[[], Environment]) -> None:
    env, log = make(), Log()
    env.process(worker(env, log, "w", [1.5]))
    assert env.peek() == 0.0
    env.step()
    assert (env.now, env.peek(), env.active_process) == (0.0, 1.5, None)
    env.step()
    env.step()
    with pytest.raises(EmptySchedule):
        env.step()
    assert log == [(1.5, "w after 1.5")]
