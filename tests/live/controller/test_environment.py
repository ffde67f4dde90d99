"""A live environment waits for due events, wakes on external ones, and keeps their order."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clocks import ManualTime
from wattkeeper.live.controller import virtual_time
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.events import Event, Exited, ExternalEvent
from wattkeeper.live.controller.virtual_time import VirtualTime, VirtualWallClock
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.messages import Begun, EpochReport
from wattkeeper.policies.errors import StoreError
from wattkeeper.sim.kernel.loop import Callback


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path / "log.sqlite")
    yield log
    log.close()


EPOCH = EpochReport(1, None, 1.0, None)


def event(time_s: float, news: Event = EPOCH) -> ExternalEvent:
    return ExternalEvent(time_s, "job", 1, "job#1.0", news)


def environment_on(wall: WallClock, log: EventLog) -> LiveEnvironment:
    env = LiveEnvironment(wall, log)
    env.is_repeated = lambda news: isinstance(news.event, Exited)
    env.reply = lambda news: None
    env.process_external = lambda news: None
    env.expects_external = lambda: False
    env.finish_replay = lambda: None
    return env


def test_an_external_event_ends_the_waiting(log: EventLog) -> None:
    wall = WallClock(1.0, time.monotonic())
    env = LiveEnvironment(wall, log)
    threading.Timer(0.05, env.post, (event(1.0),)).start()
    assert env.wait(math.inf) == event(1.0)
    assert env.wait(wall.now_s() + 0.01) is None


def test_waiting_takes_no_cpu_time(log: EventLog) -> None:
    wall = WallClock(1.0, time.monotonic())
    env = LiveEnvironment(wall, log)
    before_s = time.thread_time()
    env.wait(wall.now_s() + 0.5)
    assert time.thread_time() - before_s < 0.05


def test_a_virtual_clock_passes_only_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ManualTime().govern(monkeypatch, virtual_time)
    wall = VirtualWallClock(1000.0, 7.0)
    host.sleep(0.01)
    assert wall.now_s() == 7.0
    wall.go(math.inf)
    host.sleep(0.01)
    assert wall.now_s() == pytest.approx(17.0)
    wall.go(18.0)
    assert wall.now_s() == pytest.approx(17.0)
    host.sleep(0.01)
    assert wall.now_s() == 18.0
    wall.stop(12.0)
    assert wall.now_s() == 12.0


def test_a_message_that_comes_late_lets_no_time_pass_while_a_process_works(
    monkeypatch: pytest.MonkeyPatch, log: EventLog
) -> None:
    host = ManualTime().govern(monkeypatch, virtual_time)
    wall = VirtualWallClock(1.0)
    env = environment_on(wall, log)
    woken = []
    virtual = VirtualTime(env)

    def sleep(run_id: str, until_s: float) -> None:
        virtual.sleep(run_id, until_s, lambda: woken.append((run_id, env.now)))

    for run_id, until_s in (("a", 10.0), ("b", 20.0)):
        virtual.note_work(run_id)
        sleep(run_id, until_s)
    assert not env.is_stopped()
    host.sleep(100)
    env.post(event(wall.now_s(), Exited()))
    env.step()
    assert woken == [("a", 10.0)]
    assert env.is_stopped()
    assert wall.now_s() == 10.0
    sleep("a", 12.0)
    env.step()
    assert woken == [("a", 10.0), ("a", 12.0)]


@given(due=st.lists(st.floats(0, 10), max_size=5), news=st.lists(st.floats(0, 10), max_size=5))
def test_a_replayed_log_gives_the_same_order(due: list[float], news: list[float]) -> None:
    def played(log: EventLog, posted: list[float]) -> list[tuple[float, str]]:
        env = environment_on(VirtualWallClock(1e9), log)
        happened: list[tuple[float, str]] = []
        env.process_external = lambda one: happened.append((env.now, f"news {one.time_s}"))
        for at in due:
            env.schedule_at(at, Callback(lambda at: happened.append((env.now, f"due {at}")), at))
        left = [event(at) for at in posted]
        for one in left:
            env.post(one)
        env.expects_external = lambda: (
            sum(what.startswith("news") for _, what in happened) < len(posted)
        )
        env.run()
        return happened

    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        log = EventLog(Path(folder) / "log.sqlite")
        first = played(log, news)
        assert [at for at, _ in first] == sorted(at for at, _ in first)
        assert sum(what.startswith("news") for _, what in first) == len(news) == len(log)
        again = played(log, [])
        log.close()
    assert again == first


def test_an_event_after_the_end_of_a_run_is_processed_by_the_next_run(log: EventLog) -> None:
    env = environment_on(WallClock(1.0, time.monotonic() - 0.3), log)
    env.expects_external = lambda: True
    processed: list[ExternalEvent] = []
    env.process_external = processed.append
    env.post(event(0.2, Begun()))
    env.run(until=0.1)
    assert (env.now, processed, list(log.events())) == (0.1, [], [])
    env.run(until=0.25)
    assert processed == list(log.events()) == [event(0.2, Begun())]


def test_a_log_keeps_its_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.sqlite")
    diverged = EpochReport(1, math.inf, 1.0, None)
    log.add(event(1.5, diverged))
    log.note("token", "secret")
    with pytest.raises(StoreError, match="another wattkeeper runs this"):
        EventLog(tmp_path / "log.sqlite")
    log.close()
    log = EventLog(tmp_path / "log.sqlite")
    assert list(log.events()) == [event(1.5, diverged)]
    assert (log.get("token"), log.get("port")) == ("secret", None)
    log.close()


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    """Its events have other payloads."""
    path = tmp_path / "log.sqlite"
    log = EventLog(path)
    log.note("version", "1")
    log.close()
    with pytest.raises(StoreError, match=r"version 1, .* version 6"):
        EventLog(path)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_text("no database " * 100)
    with pytest.raises(StoreError, match="is no log of a live run"):
        EventLog(tmp_path / "log.sqlite")
