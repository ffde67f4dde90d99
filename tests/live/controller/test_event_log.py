"""The log of a live run: what was changed in it is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.messages import assert_states
from wattkeeper.live.controller.event_log import EventLog, ExternalEvent
from wattkeeper.policies.errors import StoreError

EVENTS = [ExternalEvent(n, f"job{n}", 1, "run", "epoch", {"n": n}) for n in range(3)]


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
