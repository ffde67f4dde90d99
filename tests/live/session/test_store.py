"""The store of sessions, in SQLite and in PostgreSQL: nothing is lost, nothing counted twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.messages import assert_states
from tests.support.postgres import Server, server
from tests.support.processes import finish, lines, until
from tests.support.strangers import NOBODY, as_root, give_away
from wattkeeper.live import Session
from wattkeeper.live.session.store import SCHEMA, SessionStore, schema, states
from wattkeeper.policies.errors import EnvironmentLacks, InputError, StoreError

SCRIPT = Path(__file__).parents[2] / "support/session_plain.py"
KILLS = Path(__file__).parents[2] / "support/session_kills.py"
TERMS: dict[str, Any] = {
    "job": "nightly",
    "batch_sizes": [32, 64, 128],
    "default_batch_size": 64,
    "target": 1.0,
    "max_epochs": 5,
    "eta": 0.0,
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store."""
    if request.param == "sqlite":
        return str(tmp_path / "store" / "sessions.sqlite")
    found: Server = request.getfixturevalue("postgres")
    name = f"t{abs(hash(str(tmp_path))):x}{os.getpid()}"
    admin = sa.create_engine(found.url.replace("postgresql:", "postgresql+psycopg:"))
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.exec_driver_sql(f"CREATE DATABASE {name}")
    admin.dispose()
    return found.url.replace("/postgres?", f"/{name}?")


def start(where: str, log: Path, **arguments: Any) -> subprocess.Popen[bytes]:
    given = json.dumps({**TERMS, "store": where, "log": str(log), **arguments})
    return subprocess.Popen([sys.executable, str(SCRIPT), given], stderr=subprocess.PIPE)


def train(where: str, gain: float = 0.5, **terms: Any) -> Session:
    with Session(**{**TERMS, "store": where, **terms}) as session:
        for epoch in session.epochs():
            session.report(gain * epoch.number)
    return session


def learnt(where: str) -> int:
    """How many observations the bandit's state holds."""
    query = sa.select(states.c.state).where(states.c.point == "configure")
    found = SessionStore(where).run(lambda db: list(db.execute(query).scalars()), 5.0)
    groups = [group for text in found for group in json.loads(text).values()]
    return sum(rewards["count"] for group in groups for _, rewards in group["rewards"])


def check(where: str) -> list[dict[str, Any]]:
    """Every attempt that ended has one observation, and each of those was learnt once."""
    history = SessionStore(where).history("nightly")
    ended = [row for row in history if row["status"] == "ended"]
    assert all(row["attempt_id"] is not None for row in ended)
    assert all(row["attempt_id"] is None for row in history if row["status"] != "ended")
    assert sorted(row["number"] for row in ended) == list(range(1, len(ended) + 1))
    assert learnt(where) == sum(row["learnt"] for row in ended)
    by_recurrence = Counter(row["recurrence"] for row in history if row["reached"])
    assert all(count == 1 for count in by_recurrence.values())
    return history


def test_an_attempt_is_stored_with_its_outcome(where: str) -> None:
    session = train(where)
    assert session.reached
    (row,) = check(where)
    assert (row["cause"], row["epochs"], row["batch_size"]) == ("reached", 2, 64)
    assert row["time_s"] == session.outcome.time_s
    assert row["energy_j"] is None
    assert row["how"] == "absent"
    assert train(where).assignment.job_id == "nightly-2"


def test_a_recurrence_that_missed_is_retried(where: str) -> None:
    missed = train(where, gain=0.1)
    assert missed.outcome.cause == "epochs"
    again = train(where)
    assert (again.assignment.recurrence, again.assignment.attempt) == (1, 2)
    assert again.batch_size != missed.batch_size, "what missed is not explored again"
    assert train(where).assignment.recurrence == 2
    check(where)


def test_concurrent_sessions_lose_and_double_nothing(where: str, tmp_path: Path) -> None:
    count = 5
    given = {**TERMS, "store": where, "log": str(tmp_path / "log"), "sessions": count}
    given |= {"processes": 4, "kills": 0, "seed": 0}
    script = [sys.executable, str(KILLS), json.dumps(given)]
    finish(subprocess.Popen(script, stderr=subprocess.PIPE))
    history = check(where)
    assert len(history) == 4 * count
    tries: dict[int, list[int]] = {}
    for row in history:
        assert row["cause"] in ("reached", "bound"), "on a busy machine a try may cost too much"
        tries.setdefault(row["recurrence"], []).append(row["attempt"])
    assert sorted(tries) == list(range(1, len(tries) + 1))
    assert all(each == list(range(1, len(each) + 1)) for each in tries.values())


def test_a_concurrent_session_takes_the_best_so_far(where: str) -> None:
    with Session(**TERMS, store=where) as first, Session(**TERMS, store=where) as second:
        assert (first.assignment.recurrence, second.assignment.recurrence) == (1, 2)
        assert [session.batch_size for session in (first, second)] == [64, 64]
        assert SessionStore(where).history("nightly")[1]["in_flight"] == 1
    assert [row["status"] for row in check(where)] == ["stopped", "stopped"]


def test_the_same_store_gives_the_same_decision(tmp_path: Path) -> None:
    store = tmp_path / "a" / "sessions.sqlite"
    for _ in range(12):
        train(str(store))
    chosen = []
    for name in ("b", "c"):
        shutil.copytree(store.parent, tmp_path / name)
        chosen.append([train(str(tmp_path / name / store.name), 1.0).batch_size for _ in range(4)])
        shutil.rmtree(tmp_path / name / "sessions.sqlite.checkpoints", ignore_errors=True)
    first = [each[0] for each in chosen]
    assert first[0] == first[1]


def test_other_arguments_learn_separately(where: str) -> None:
    train(where)
    assert train(where).batch_size == 32, "the default was explored"
    assert train(where, eta=0.0, max_epochs=6).batch_size == 64
    assert train(where).batch_size == 128


@pytest.mark.parametrize("sign", ["SIGKILL", "SIGSTOP"])
def test_a_dead_or_silent_process_is_recorded_once(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    log = tmp_path / "log"
    lost = start(
        where, log, epoch_s=0.4, per_epoch=0.01, max_epochs=1000, lease_s=60.0, marked=True
    )
    until(lambda: len(lines(log, "step")) > 2)
    lost.send_signal(getattr(signal, sign))  # in the midst of an epoch, and of no transaction
    if sign == "SIGKILL":
        lost.wait()
    else:
        now_s = SessionStore.now_s
        monkeypatch.setattr(SessionStore, "now_s", lambda self, db: now_s(self, db) + 61.0)
    again = train(where, max_epochs=1000, target=1.0)
    assert (again.assignment.recurrence, again.assignment.attempt) == (1, 2)
    first = check(where)[0]
    assert first["cause"] == {"SIGKILL": "crashed", "SIGSTOP": "hung"}[sign]
    assert not first["learnt"], "one accident says nothing of a batch size"
    if sign == "SIGSTOP":  # what it says afterwards counts no more, and it stops
        lost.send_signal(signal.SIGCONT)
        finish(lost)
        assert lines(log, "ended")[0][3] == "stopped"
    finish(lost, code=-9 if sign == "SIGKILL" else 0)
    assert check(where)[0] == first


def test_a_step_that_hangs_loses_the_lease(where: str) -> None:
    store = SessionStore(where)

    def is_lost() -> bool:
        (row,) = store.history("nightly")
        return bool(store.run(store.now_s, 5.0) > row["heard_s"] + row["lease_s"])

    with Session(**TERMS, store=where, lease_s=1.0) as hung:
        for epoch in hung.epochs(range(9)):
            for step in epoch:
                if step == 3:
                    until(is_lost)
                    assert train(where).assignment.attempt == 2
    assert hung.outcome.cause == "stopped"
    assert [row["cause"] for row in check(where)] == ["silent", "reached"]


def test_failures_are_accidents_until_the_third(where: str) -> None:
    for attempt in (1, 2, 3):
        with pytest.raises(ValueError, match="no data"):  # noqa: SIM117
            with Session(**TERMS, store=where) as session:
                raise ValueError("no data")
        assert (session.assignment.attempt, session.batch_size) == (attempt, 64)
        assert session.outcome.message == "ValueError: no data"
    assert [row["learnt"] for row in check(where)] == [False, False, True]
    assert train(where).batch_size == 128


def test_running_out_of_memory_is_a_miss_at_once(where: str) -> None:
    with pytest.raises(MemoryError):  # noqa: SIM117
        with Session(**TERMS, store=where):
            raise MemoryError
    assert [row["learnt"] for row in check(where)] == [True]
    assert train(where).batch_size == 128


def killed(where: str, log: Path, kills: int) -> subprocess.Popen[bytes]:
    """Three processes that train and are killed."""
    given = {**TERMS, "store": where, "log": str(log), "sessions": 10**6, "epoch_s": 0.005}
    given |= {"patient": True, "lease_s": 20.0, "processes": 3, "kills": kills, "seed": kills}
    return subprocess.Popen([sys.executable, str(KILLS), json.dumps(given)], stderr=subprocess.PIPE)


def check_after_kills(where: str, log: Path) -> None:
    """All that said that it ended did, as it said; the next start buries the others."""
    after = train(where)
    assert after.reached
    history = check(where)
    stored = {(row["job"], row["recurrence"], row["attempt"]): row["cause"] for row in history}
    said = [(line[1], int(line[2]), line[3]) for line in lines(log, "ended")]
    assert said, "no session ended"
    for job_id, attempt, cause in said:
        job, _, recurrence = job_id.rpartition("-")
        assert stored[job, int(recurrence), attempt] == cause
    assert {row["status"] for row in history} == {"ended"}
    assert {row["cause"] for row in history} >= {"crashed", "reached"}


@pytest.mark.parametrize(
    ("where", "kills"),
    [
        ("sqlite", 8),
        pytest.param("sqlite", 100, marks=pytest.mark.slow),
        pytest.param("postgresql", 100, marks=pytest.mark.slow),
    ],
    indirect=["where"],
)
def test_killed_sessions_neither_lose_nor_repeat_attempts(
    where: str, tmp_path: Path, kills: int
) -> None:
    finish(killed(where, tmp_path / "log", kills))
    check_after_kills(where, tmp_path / "log")


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ["postgresql"], indirect=True)
def test_sessions_survive_restarts_of_the_server(
    where: str, postgres: Server, tmp_path: Path, kills: int
) -> None:
    log = tmp_path / "log"
    process = killed(where, log, kills)
    for mode in ("immediate", "fast") * (1 if kills < 100 else 5):

        def has_progressed(goal: int = len(lines(log, "")) + 30) -> bool:
            return len(lines(log, "")) >= goal or process.poll() is not None

        until(has_progressed)
        postgres.stop(mode)
        time.sleep(0.1)
        postgres.start()
    finish(process)
    check_after_kills(where, log)


@pytest.mark.parametrize("where", ["postgresql"], indirect=True)
def test_a_training_outlives_its_database(where: str, postgres: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(where, log, epoch_s=0.2, per_epoch=0.1, max_epochs=100, lease_s=30.0)
    until(lambda: lines(log, "epoch"))
    postgres.stop()
    postgres.start()
    finish(process)
    (row,) = check(where)
    assert (row["cause"], row["epochs"]) == ("reached", 10)


def test_unreachable_stores_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattkeeper.live.session.store.FIRST_S", 0.1)
    other = "or name another store"
    nowhere = "postgresql://me:secret@localhost:1/none"
    with pytest.raises(EnvironmentLacks, match=f"cannot be reached .*{other}") as told:
        SessionStore(nowhere).history("")
    assert "secret" not in str(told.value)
    with pytest.raises(InputError, match=r"'mysql'.*allowed.*file.*postgres"):
        SessionStore("mysql://localhost/none")
    with pytest.raises(InputError, match="URL cannot be read; allowed"):
        SessionStore("://")
    (tmp_path / "file").write_text("x" * 5000)
    with pytest.raises(StoreError, match=f"damaged, or no store .*{other}"):
        SessionStore(tmp_path / "file")
    with pytest.raises(EnvironmentLacks, match=f"cannot be written .*{other}"):
        SessionStore(tmp_path / "file" / "store")
    with pytest.raises(EnvironmentLacks, match=f"cannot be written .*{other}"):
        SessionStore("/proc/none.sqlite")


def test_a_store_of_a_newer_wattkeeper_is_refused(where: str) -> None:
    store = SessionStore(where)
    newer = sa.update(schema).values(version=SCHEMA + 1)
    store.run(lambda db: db.execute(newer), 1.0)
    with pytest.raises(StoreError, match=r"schema 2, .* 1: "):
        SessionStore(where)


def test_a_read_only_database_is_named(postgres: Server) -> None:
    admin = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    with admin.begin() as db:
        db.exec_driver_sql("CREATE ROLE guest LOGIN")
    admin.dispose()
    with pytest.raises(EnvironmentLacks, match=r"user .*write tables"):
        SessionStore(postgres.url.replace("keeper@", "guest@"))
    with pytest.raises(EnvironmentLacks, match="does not exist"):
        SessionStore(postgres.url.replace("/postgres?", "/absent?"))


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from wattkeeper.live.session.store import SessionStore\n"
        "SessionStore('postgresql://localhost/none')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert_states(done.stderr, "EnvironmentLacks: ", "PostgreSQL", "pip install")


@as_root
@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_store_beside_files_of_another_user_is_refused(tmp_path: Path, suffix: str) -> None:
    """SQLite would take over what stands in them."""
    path = tmp_path / f"store.sqlite{suffix}"
    path.touch(mode=0o600)
    give_away(path)
    with pytest.raises(StoreError) as caught:
        SessionStore(tmp_path / "store.sqlite")
    assert_states(str(caught.value), str(path), f"user {NOBODY}")
