"""The log of a live run: what was changed in it is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.live_runs import REHEARSED, scenario
from tests.support.messages import assert_states
from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.events import ExternalEvent
from wattkeeper.live.wire.messages import EpochReport
from wattkeeper.policies.errors import StoreError
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

EVENTS = [ExternalEvent(n, f"job{n}", 1, "run", EpochReport(n, None, 0.5, None)) for n in range(3)]


def make_log(path: Path) -> Path:
    with closing(EventLog(path)) as log:
        for event in EVENTS:
            log.add(event)
        log.note("port", "80")
    return path


def test_a_log_gives_back_what_was_added(tmp_path: Path) -> None:
    with closing(EventLog(make_log(tmp_path / "log.sqlite"))) as log:
        assert list(log.events()) == EVENTS
        assert len(log) == 3
        assert log.get("port") == "80"
        assert log.get("token") is None


def read_log(path: Path) -> None:
    with closing(EventLog(path)) as log:
        list(log.events())
        log.get("port")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE events SET time_s = 9 WHERE number = 2", "event 2"),
        ("UPDATE events SET payload = '{' WHERE number = 3", "event 3"),
        ("UPDATE events SET job_id = x'ff' WHERE number = 1", "event 1"),
        ("DELETE FROM events WHERE number = 2", "event 2"),
        ("UPDATE about SET value = 'x' WHERE name = 'port'", "port"),
        ("DELETE FROM events WHERE number = 3", "it has 2 events, and the last one was number 3"),
        ("DELETE FROM events", "it has 0 events, and the last one was number 3"),
        ("DELETE FROM about WHERE name = 'last'", "it has 3 events, and their number is missing"),
        (
            "UPDATE events SET number = 9 WHERE number = 1; UPDATE events SET number = 1 WHERE "
            "number = 2; UPDATE events SET number = 2 WHERE number = 9",
            "event 1",
        ),
        (
            "UPDATE events SET number = 4 WHERE number = 3; UPDATE events SET number = 3 WHERE "
            "number = 2; UPDATE events SET number = 2 WHERE number = 4",
            "event 2",
        ),
        ("DROP TABLE events; CREATE TABLE events (number)", "no such column"),
    ],
)
def test_a_changed_log_is_refused(tmp_path: Path, statement: str, what: str) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statement)
    with pytest.raises(StoreError) as caught:
        read_log(path)
    assert_states(str(caught.value), path, "damaged", what)


def test_events_without_the_time_when_the_run_began_are_refused(tmp_path: Path) -> None:
    loaded = load(str(scenario(tmp_path, REHEARSED | {"live": {"lease_s": 60}})))
    inputs = read_inputs(loaded, live=True).runs
    log = make_log(tmp_path / "live" / "zeus" / "1" / "log.sqlite")
    with pytest.raises(StoreError) as caught:
        live_run.replay(loaded, inputs, tmp_path / "live")
    assert_states(str(caught.value), log, "damaged", "the time when the run began is missing")
